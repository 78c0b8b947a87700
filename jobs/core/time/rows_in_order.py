"""The watermark between two rows of one epoch, for generators that must see every row.

    generator's state before the epoch ──► row ─► row ─► mark ─► row ──► its state after the epoch
                                            └──────┴──────┴───────┴──► the job's watermark before
                                                                       each row, so lateness by row

Elsewhere an epoch moves the watermark as a whole. Here the rows of a partition move it in the order
of their offsets. The other partitions stay where they were before the epoch, so the outcome does
not depend on the order in which tasks run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from jobs.core.time.watermark_generators import PartitionGenerator
from schemas.table.epoch import PartitionSnapshot

# Bounds of watermarks in milliseconds; in microseconds they still fit into 64 bits.
BEFORE_ALL, AFTER_ALL = -(1 << 50), 1 << 50


class PartitionStart(NamedTuple):
    """The time of a partition before an epoch; a value that can be sent to a task."""

    generator: PartitionSnapshot  # with the state of its generator
    others: int = AFTER_ALL  # the lowest watermark of the other partitions that count
    watermark: int | None = None  # the job's watermark


class RowsInOrder:
    """Gives the rows of a partition to its generator, one after the other."""

    def __init__(
        self, generator: PartitionGenerator, start: PartitionStart, now: int, *, each_row: bool
    ) -> None:
        """With `each_row` a periodic generator emits after every row."""
        generator.restore(start.generator)
        self.generator = generator
        self._others = start.others
        self._before = BEFORE_ALL if start.watermark is None else start.watermark
        self._now = now
        self._each_row = each_row

    @property
    def watermark(self) -> int:
        """The job's watermark before the next row; BEFORE_ALL if there is none."""
        own = self.generator.last
        return self._before if own is None else max(self._before, min(own, self._others))

    def take(
        self, time: int | None, row: Mapping[str, Any], mark: int | None, *, marked: bool
    ) -> None:
        """Take a row; `mark` is the time that it carries if it is a mark."""
        self.generator.on_event(time, row, self._now)
        if marked:
            self.generator.on_mark(mark, row, self._now)
        if self._each_row:
            self.generator.emit(self._now)
