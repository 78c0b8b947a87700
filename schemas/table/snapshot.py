"""The snapshots of a job in its epoch rows: what is read of each, to continue with the rest."""

from __future__ import annotations

import msgspec

SNAPSHOT, SNAPSHOT_PART = "snapshot", "snapshot_part"  # counters of an epoch
PLAN_FORMAT = 1  # how files are divided into parts


class SnapshotPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a snapshot is divided, so that each start finds the same parts that are left."""

    parts: int
    place: str = ""  # of the rows, as the spec had it
    low: int = 0  # the least and the greatest key of a database's table
    high: int = 0
    page: int = 0  # rows of a part by a text key; its parts are estimated until the last one
    after: str = ""  # the text key at which the part before ended
    version: int | None = None  # of a Delta table
    pieces: int = 0  # of files, as Spark divides them
    piece_bytes: int = 0  # of files in a piece
    format: int = 0  # PLAN_FORMAT, if it has pieces
    digest: str = ""  # of these pieces and of the times of their files


class SnapshotProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The parts of a source's snapshot that are committed; without a plan none is."""

    part: int = 0
    rows: int = 0
    plan: SnapshotPlan | None = None

    @property
    def done(self) -> bool:
        return self.plan is not None and self.part >= self.plan.parts


class SnapshotPart(msgspec.Struct, frozen=True, kw_only=True):
    """The part that one epoch has read; the first is 1."""

    source: str
    part: int
    parts: int
    rows: int

    def __str__(self) -> str:
        of = f" of {self.source}" if self.source else ""
        return f"snapshot{of}, part {self.part} of {self.parts}"
