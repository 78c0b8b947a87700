"""Retention: history that is older than a job keeps leaves the table; state never does.

    changelog, late, quarantine, epochs    files whose newest epoch is old enough, and published
    the start                         its row stays, with the counters of the removed rows in it

So `audit` still knows where the job began, and what odd things its source did since. What has
left the table is swept later, unless a savepoint needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from jobs.edge.table.compaction import TOP_TIER
from jobs.edge.table.delta_epochs import EpochTable, LiveFile, rows_of
from jobs.edge.table.epoch_files import (
    CHANGELOG,
    EPOCHS,
    LATE,
    QUARANTINE,
    AddedFile,
    file_name,
    write_file,
)
from schemas.table.epoch import EpochRow
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import rows_in
from schemas.types.arrow_values import listed

HISTORY = (CHANGELOG, EPOCHS, LATE, QUARANTINE)
# What says how things are, or what an epoch is: a sum of it would say nothing.
_OF_ONE_EPOCH = frozenset({"groups", "images", "begins", "moved", "published"})
_START_WRITER = f"c{TOP_TIER}-0"  # of the highest tier, so that compaction leaves it alone


@dataclass(frozen=True, slots=True)
class Expired:
    """What a commit is to remove, and what to put in its place."""

    epoch_max: int
    removed: tuple[LiveFile, ...]
    added: tuple[AddedFile, ...]


def expired(
    table: EpochTable, before_us: int, published: int, uuid: str, *, durable: bool = False
) -> Expired | None:
    """The history up to the last epoch that was committed before then; None if there is none.

    Of whole files only, and never the newest epoch.
    """
    files = table.live_files()
    epochs = [file for file in files if file.part == EPOCHS]
    newest = max(file.epoch_max for file in epochs)
    last = min(_committed_before(table.root, epochs, before_us), published, newest - 1)
    gone = [file for file in files if file.part in HISTORY and file.epoch_max <= last]
    rows = [row for file in gone if file.part == EPOCHS for row in rows_of(table.root / file.path)]
    if len(rows) == 1 and rows[0].kind == "start":  # nothing but what the last time left
        gone = [file for file in gone if file.part != EPOCHS]
        rows = []
    if not gone:
        return None
    added: list[AddedFile] = []
    if rows and rows[0].kind == "start":
        name = file_name(EPOCHS, rows[0].epoch, uuid, _START_WRITER)
        start = table.layout.epochs_table(_summary(rows))
        added.append(write_file(table.root, name, start, durable=durable))
    return Expired(last, tuple(gone), tuple(added))


def _committed_before(root: TablePath, epochs: Sequence[LiveFile], time_us: int) -> int:
    """The last epoch before the first one that was committed at that time or later."""
    last = -1
    for file in epochs:  # oldest first
        table = rows_in(root / file.path, ["epoch", "committed_at"])
        stamps = table["committed_at"].cast(pa.int64()).to_pylist()
        for epoch, stamp in sorted(zip(listed(table["epoch"]), stamps, strict=True)):
            if stamp >= time_us:
                return last
            last = epoch
    return last


def _summary(rows: Sequence[EpochRow]) -> EpochRow:
    """The start with the counters of all rows added up."""
    totals: dict[str, int] = {"groups": 0}
    for row in rows:
        for name, count in row.counters.items():
            if isinstance(count, int) and name not in _OF_ONE_EPOCH:
                totals[name] = totals.get(name, 0) + count
    return msgspec.structs.replace(rows[0], counters=totals, files={})
