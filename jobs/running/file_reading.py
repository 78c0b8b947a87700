"""Read source directories: the driver's main loop notices new files and runs their epochs.

    every `source.files.every`: list ─► log ─► epochs of at most minibatch.max_rows lines

Spark plans nothing here. The epoch row has what was read, and the log where it is; a stream of
Spark's file source would keep both a second time, in a checkpoint that a job does not have.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobs.edge.files.log import FileLog, FilesChanged, open_file_logs
from jobs.edge.kafka.offset_ranges import cut_ends
from jobs.running.pipeline import Pipeline
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets, TopicPartition


def notice_files(data: Path, spec: JobSpec, *, whole: bool) -> dict[str, FileLog]:
    """Return the logs of a job's directories, with all of their files if a start needs the ends.

    Else the first epoch need not wait until all lines of a large directory are counted."""
    whole = whole or any(each.source.start != "earliest" for each in spec.source_specs.values())
    logs = open_file_logs(data, spec)
    for log in logs.values():
        log.notice(None if whole else spec.minibatch.max_rows)
    return logs


def require_same_lines(logs: Mapping[str, FileLog], newest: EpochRow) -> None:
    """Raise FilesChanged if the offsets of an epoch are other lines, as in an older log."""
    for path, last in newest.counts.files.items():
        if path in logs and logs[path].locate(newest.offsets[path]["0"]) != last:
            raise FilesChanged(
                f"epoch {newest.epoch} has read {path} to {last}, which is another line in "
                f"{logs[path].place}; restore the newest copy of this log, or start a new job"
            )


@dataclass(slots=True)
class FileReading:
    """The directories of a running job, by path; only the main thread uses it."""

    pipeline: Pipeline
    logs: Mapping[str, FileLog]
    _due: dict[str, float] = field(default_factory=dict)  # when each is listed again

    def work(self) -> None:
        """List the directories that are due, and run one epoch if some lines are unread."""
        now = time.monotonic()
        due = [log for path, log in self.logs.items() if now >= self._due.get(path, now)]
        if not due and not self._find_ends():
            return
        records = self.pipeline.spec.minibatch.max_rows
        assert records is not None
        with self.pipeline.between_epochs():
            for log in due:
                complete = log.notice(records)
                self._due[log.files.path] = now + log.files.every_ms / 1_000 if complete else now
            if ends := self._find_ends():
                self.pipeline.run_epoch(cut_ends(self.pipeline.newest.offsets, ends, records))

    def _find_ends(self) -> Offsets:
        """Return the ends of the logs that have unread lines and are not paused."""
        read, paused = self.pipeline.newest.offsets, self.pipeline.clock.paused
        return {
            path: {"0": log.end}
            for path, log in self.logs.items()
            if log.end > read[path]["0"] and TopicPartition(path, 0) not in paused
        }
