"""The demo's display: results, newest changelog rows and figures; without a terminal, lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jobs.demo.follower import Fold

LINE_SECONDS = 1.0
_LATEST_ROWS_MIN = 6
_WIDTH_SIDE_BY_SIDE = 110
_RESULT_COLUMNS = ("name", "sum_cnt", "top", "n")

Show = Callable[[Fold, str], None]  # of the changelog so far, and a line of figures


@contextmanager
def open_display(console: Console, hints: Sequence[str]) -> Iterator[Show]:
    """Yield a function that shows how far the demo is."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=5) as live:
            yield lambda fold, figures: live.update(_draw(fold, figures, hints, console.width))
        return
    shown = 0.0

    def show(fold: Fold, figures: str) -> None:
        nonlocal shown
        if time.monotonic() - shown >= LINE_SECONDS:
            shown = time.monotonic()
            newest = [f"   {each.op} {_write_row(each.row)}" for each in list(fold.latest)[-1:]]
            console.print("".join([figures, *newest]), soft_wrap=True)

    console.print("\n".join(hints), soft_wrap=True)
    yield show


def _draw(fold: Fold, figures: str, hints: Sequence[str], width: int) -> Group:
    """Return the tables, side by side if there is room, and the lines below them."""
    wide = width >= _WIDTH_SIDE_BY_SIDE
    results = Table(title=f"results at epoch {fold.epoch}", title_justify="left")
    for name in _RESULT_COLUMNS:
        results.add_column(name, justify="left" if name == "name" else "right", min_width=7)
    for row in sorted(fold.results.values(), key=lambda row: str(row["name"])):
        results.add_row(*(str(row[name]) for name in _RESULT_COLUMNS))
    latest = Table(title="newest changelog rows, as consumed", title_justify="left")
    latest.add_column("epoch", justify="right")
    latest.add_column("op")
    latest.add_column("row", min_width=46, no_wrap=True)
    rows = max(len(fold.results), _LATEST_ROWS_MIN) if wide else _LATEST_ROWS_MIN
    for record in list(fold.latest)[-rows:]:
        latest.add_row(str(record.epoch), record.op, _write_row(record.row))
    tables = [Columns([results, latest], padding=(0, 3))] if wide else [results, latest]
    return Group(*tables, Text(figures), Text("\n".join(["", *hints]), style="dim"))


def _write_row(row: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in row.items())
