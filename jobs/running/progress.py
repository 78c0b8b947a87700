"""The progress of a job, for displays, and the log line of each epoch."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.running.mirror import Mirrors
from schemas.table.epoch import EpochRow

log = logging.getLogger(__name__)


@dataclass(slots=True)
class JobProgress:
    """The progress of a job, for displays; the job writes it, any thread may read it."""

    newest: EpochRow | None = None
    read: int = 0  # messages since the start of this process
    quarantined: int = 0  # of these
    messages_one_by_one: int = 0  # of these
    lag: int | None = None  # records, a few seconds ago
    published: int | None = None
    mirrors: Mirrors | None = None
    # Of the messages read, those that one view refused; the others may have taken them.
    refused: Counter[str] = field(default_factory=Counter)
    snapshot: str | None = None  # while one is read

    def observe(self, row: EpochRow) -> None:
        """Count a committed epoch."""
        counts = row.counts
        self.newest = row
        self.read += counts.read
        self.quarantined += counts.quarantined
        refused = row.refused if row.shares else {}
        self.refused.update(refused)
        self.messages_one_by_one += counts.messages_one_by_one
        log.info(
            "epoch %d: %d messages%s, %d rows, %d changed groups' rows, %d groups, %.2f s",
            row.epoch,
            counts.read,
            _describe_refused(counts.quarantined, refused),
            counts.rows,
            counts.changelog_rows,
            row.groups,
            counts.compute_seconds or 0.0,
        )


def _describe_refused(quarantined: int, refused: Mapping[str, int]) -> str:
    parts = [f"{quarantined} of them in quarantine"] if quarantined else []
    for view, count in refused.items():
        parts.append(f"{count} refused by {f'view {view}' if view else 'the query'}")
    return f" ({', '.join(parts)})" if parts else ""
