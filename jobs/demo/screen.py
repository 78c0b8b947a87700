"""The demo's screen: what a consumer of the changelog has; without a terminal, lines.

items-changes (read_committed) ──► fold ──► results, newest changelog rows
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafka import KafkaConsumer, TopicPartition
from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jobs.demo.serving import DemoFailed
from jobs.demo.specs import PARTITIONS
from schemas.table.changelog import ChangelogRecord, JsonValue

LATEST_ROWS = 40
LINE_SECONDS = 1.0
_LATEST_ROWS_MIN = 6
_WIDTH_SIDE_BY_SIDE = 110
_RESULT_COLUMNS = ("name", "sum_cnt", "top", "n")


@dataclass(slots=True)
class Fold:
    """Folds the changelog by key; raises if a row does not fit the rows before it."""

    results: dict[str, dict[str, JsonValue]] = field(default_factory=dict)
    latest: deque[ChangelogRecord] = field(default_factory=lambda: deque(maxlen=LATEST_ROWS))
    epoch: int = 0  # of the newest row
    rows: int = 0

    def read(self, consumer: KafkaConsumer, seconds: float) -> None:
        """Apply the new records of a topic; wait at most so long for the first."""
        for batch in consumer.poll(timeout_ms=int(seconds * 1_000)).values():
            for record in batch:
                self.apply(record.key.decode(), ChangelogRecord.decode(record.value))

    def apply(self, key: str, record: ChangelogRecord) -> None:
        before = self.results.get(key)
        retracts = record.op in ("-U", "-D")
        if retracts and before != record.row:
            raise DemoFailed(f"{record.op} of {key} retracts {record.row}, not {before}")
        if record.op == "+I" and before is not None:
            raise DemoFailed(f"+I of {key}, which already has {before}")
        if retracts:
            del self.results[key]
        else:
            self.results[key] = record.row
        self.latest.append(record)
        self.epoch = record.epoch
        self.rows += 1


def open_topic(brokers: str, name: str) -> KafkaConsumer:
    """Read all partitions of a topic from the beginning, committed records only."""
    consumer = KafkaConsumer(
        bootstrap_servers=brokers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    consumer.assign([TopicPartition(name, number) for number in range(PARTITIONS)])
    return consumer


def is_at_end(consumer: KafkaConsumer) -> bool:
    ends = consumer.end_offsets(consumer.assignment())
    return all(consumer.position(each) >= end for each, end in ends.items())


@contextmanager
def open_display(console: Console, hints: Sequence[str]) -> Iterator[Callable[[Fold, str], None]]:
    """Yield a function that shows the changelog so far, and a line of figures."""
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
    for _, row in sorted(fold.results.items()):
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
