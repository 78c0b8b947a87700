"""The demo's display: a screen on a terminal, else a line every second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jobs.demo.follower import Follower

OP_STYLES = {"+I": "green", "-U": "yellow", "+U": "yellow", "-D": "red"}
FRAMES_PER_SECOND = 5
LINE_SECONDS = 1.0
WIDTH_SIDE_BY_SIDE = 110
LATEST_ROWS_MIN = 6
_RESULT_COLUMNS = ("name", "sum_cnt", "top", "n")


class Display(Protocol):
    def show(self, follower: Follower, behind: int) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Screen:
    """Redraws results, newest changelog rows, and one line of figures."""

    def __init__(self, console: Console, hints: Sequence[str]) -> None:
        self._console = console
        self._hints = hints
        self._live = Live(console=console, refresh_per_second=FRAMES_PER_SECOND)

    def show(self, follower: Follower, behind: int) -> None:
        """Show the tables side by side on a wide terminal, else one above the other."""
        wide = self._console.width >= WIDTH_SIDE_BY_SIDE
        rows = max(len(follower.fold.results), LATEST_ROWS_MIN) if wide else LATEST_ROWS_MIN
        tables = [_build_results(follower), _build_changelog(follower, rows)]
        self._live.update(
            Group(
                Columns(tables, padding=(0, 3)) if wide else Group(*tables),
                _describe_figures(follower, behind),
                Text("\n".join(["", *self._hints]), style="dim"),
            )
        )

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)


class Lines:
    """Prints the figures and the newest changelog row, for pipes and logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = 0.0

    def show(self, follower: Follower, behind: int) -> None:
        if time.monotonic() - self._shown < LINE_SECONDS:
            return
        self._shown = time.monotonic()
        line = _describe_figures(follower, behind)
        if follower.latest:
            newest = follower.latest[-1]
            line.append(f"   {newest.op} {_write_row(newest.row)}")
        self._console.print(line, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


def _build_results(follower: Follower) -> RenderableType:
    table = Table(title=f"results at epoch {follower.epoch}", title_justify="left")
    for name in _RESULT_COLUMNS:
        table.add_column(name, justify="left" if name == "name" else "right", min_width=7)
    for key, row in follower.list_results():
        cells = [
            Text(
                str(row[name]),
                style="bold black on green" if (key, name) in follower.changed else "",
            )
            for name in _RESULT_COLUMNS
        ]
        table.add_row(*cells)
    return table


def _build_changelog(follower: Follower, rows: int) -> RenderableType:
    table = Table(title="newest changelog rows, as consumed", title_justify="left")
    table.add_column("epoch", justify="right")
    table.add_column("op")
    table.add_column("row", min_width=46, no_wrap=True)
    for record in list(follower.latest)[-rows:]:
        style = OP_STYLES[record.op]
        table.add_row(str(record.epoch), record.op, _write_row(record.row), style=style)
    return table


def _describe_figures(follower: Follower, behind: int) -> Text:
    epochs = follower.epochs
    rate = epochs.measure_rows_per_second()
    return Text(
        f"epoch {epochs.number} · {rate:,.0f} rows/s · lag {behind:,} · "
        f"{epochs.groups} groups · {epochs.quarantined} in quarantine"
    )


def _write_row(row: object) -> str:
    assert isinstance(row, dict)
    return " ".join(f"{name}={value}" for name, value in row.items())
