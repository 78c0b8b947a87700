"""Outcome: what the tasks of one epoch report, and what has to hold of it before a commit.

range reports, dedupe reports, fold reports ──► laws hold? ──► files and counters of the epoch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from jobs.core.fold.laws import BrokenLaw
from jobs.edge.kafka.ranges import OffsetRange
from jobs.edge.table.epoch_files import AddedFile
from jobs.edge.tasks.dedupe import DedupeReport
from jobs.edge.tasks.fold import FoldReport
from jobs.edge.tasks.range_reading import RangeReport

_decode_report = msgspec.json.Decoder(RangeReport | DedupeReport).decode


class InputRefused(Exception):
    """The source gave what the job is told to stop at; nothing of the epoch is committed."""


class EpochTooLarge(InputRefused):
    """Some task got more bytes of rows than it may hold; the epoch has to be read in parts."""


@dataclass(slots=True)
class Outcome:
    """An epoch's reports, before they are judged."""

    ranges: list[RangeReport] = field(default_factory=list)
    dedupes: list[DedupeReport] = field(default_factory=list)
    folds: list[FoldReport] = field(default_factory=list)

    def take(self, payload: bytes) -> None:
        """Take a report that came with the rows."""
        report = _decode_report(payload)
        if isinstance(report, DedupeReport):
            self.dedupes.append(report)
        else:
            self.ranges.append(report)

    @property
    def too_large(self) -> bool:
        """Whether some task did not take its rows, because they have too many bytes."""
        tasks: list[RangeReport | DedupeReport | FoldReport]
        tasks = [*self.ranges, *self.dedupes, *self.folds]
        return any(task.too_large for task in tasks)

    @property
    def failing(self) -> list[tuple[int, str]]:
        return [position for fold in self.folds for position in fold.failing]

    @property
    def files(self) -> list[AddedFile]:
        written = [file for fold in self.folds for file in fold.files]
        written += [file for dedupe in self.dedupes for file in dedupe.files]
        return written + [file for report in self.ranges for file in report.quarantine]

    @property
    def latest_ms(self) -> int | None:
        """The greatest time of a row."""
        times = (report.event_time_max for report in self.ranges)
        return max((time for time in times if time is not None), default=None)

    def dedupe_counters(self, rows: int) -> dict[str, int]:
        """Return them, once every decoded row was taken by its image or was a duplicate."""
        names = ("taken", "duplicates", "unknown_retractions", "derived")
        counts = {name: sum(getattr(done, name) for done in self.dedupes) for name in names}
        if counts.pop("taken") != rows:
            raise BrokenLaw(f"{rows} rows were decoded, and not as many came to their images")
        return counts | {"shipped": counts.pop("derived")}

    def require_none_failing(self) -> None:
        """A task with a failing row folds nothing, so a commit now would lose its other rows."""
        if self.failing:
            raise BrokenLaw(
                f"{len(self.failing)} rows still fail with their messages in quarantine; "
                f"the first: {self.failing[0][1]}"
            )

    def require_one_report_each(self, ranges: Sequence[OffsetRange]) -> None:
        """Exactly one report from each planned range, whatever Spark tried again on the way."""
        tasks = [report.task for report in self.ranges]
        if sorted(tasks) != list(range(len(ranges))):
            raise BrokenLaw(
                f"{len(ranges)} ranges were planned, but tasks {sorted(tasks)} reported"
            )
        planned = {(each.topic, each.partition, each.start) for each in ranges}
        seen = [(r.topic, r.partition, r.start) for r in self.ranges if r.topic is not None]
        if len(set(seen)) != len(seen) or not planned.issuperset(seen):
            raise BrokenLaw(f"reports of {seen} do not match the planned ranges {sorted(planned)}")
