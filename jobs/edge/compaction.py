"""Compaction: many small files of a part become one of the next tier.

    tier 0   the files of epochs           every 32 epochs ─► one file of tier 1
    tier 1   32 epochs each                every 32 files  ─► one file of tier 2
    tier 2   about 1,000 epochs each       once they outweigh it ─► the base

State rows are upserts, so a merge keeps of each key the row of the newest epoch; tombstones stay
until the base takes them in, for only then nothing older is left that they could delete. Rows
keep their epochs, and files stay sorted by bucket. Nothing here commits: the driver does, between
epochs, in its one way; the merge itself runs in a process of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.core.plan import Plan
from jobs.edge.decode_task import layout_of
from jobs.edge.delta_epochs import LiveFile
from jobs.edge.epoch_files import (
    ACCUMULATORS,
    CHANGELOG,
    MULTISETS,
    PARTS,
    AddedFile,
    file_name,
    write_file,
)
from jobs.edge.failpoints import failpoint
from schemas.limits import COMPACTED_ROWS_MAX, COMPACTION_FAN_IN

BASE_TIER = 3
_TIER = re.compile(r"-c(\d)(?:-\d+)?\.parquet$")


@dataclass(frozen=True, slots=True)
class Merge:
    """Files of one part to be merged into a tier."""

    part: str
    tier: int
    files: tuple[LiveFile, ...]


def tier_of(file: LiveFile) -> int:
    match = _TIER.search(file.path)
    return int(match[1]) if match else 0


def due_merge(files: Sequence[LiveFile], epoch_max: int) -> Merge | None:
    """The merge that is most due, of files that end at or before `epoch_max`."""
    for part in PARTS:
        own = [file for file in files if file.part == part and file.epoch_max <= epoch_max]
        for tier in range(BASE_TIER - 1):
            level = [file for file in own if tier_of(file) == tier]
            epochs = len({file.epoch_max for file in level})
            if epochs >= COMPACTION_FAN_IN:
                return Merge(part, tier + 1, tuple(level))
        if part in (ACCUMULATORS, MULTISETS):
            top = [file for file in own if tier_of(file) == BASE_TIER - 1]
            base = [file for file in own if tier_of(file) == BASE_TIER]
            if len(top) > 1 and sum(f.size for f in top) >= sum(f.size for f in base):
                return Merge(part, BASE_TIER, tuple([*base, *top]))
    return None


def merge_files(plan: Plan, root: Path, merge: Merge, uuid: str) -> list[AddedFile]:
    """Write the merged file or files; the function of the compaction process."""
    failpoint("compaction")
    layout = layout_of(plan)
    ordered = sorted(merge.files, key=lambda file: (file.epoch_min, file.epoch_max))
    tables = [pq.ParquetFile(root / file.path).read() for file in ordered]
    table = pa.concat_tables(tables)
    if merge.part in (ACCUMULATORS, MULTISETS):
        order = np.argsort(table["epoch"].to_numpy(), kind="stable")
        table = table.take(pa.array(order))
        keys = layout.keys(table)
        if merge.part == MULTISETS:
            names = table["argument"].to_pylist()
            values = [entry[2] for entry in layout.read_upserts(None, table).entries]
            keys = list(zip(names, keys, values, strict=True))  # type: ignore[arg-type]
        newest = {key: index for index, key in enumerate(keys)}
        table = table.take(pa.array(sorted(newest.values())))
        if merge.tier == BASE_TIER:
            table = table.filter(_alive(table, merge.part))
        order = np.argsort(table["bucket"].to_numpy(), kind="stable")
        table = table.take(pa.array(order))
    elif merge.part == CHANGELOG:
        table = table.sort_by([("epoch", "ascending"), ("seq", "ascending")])
    return _written(root, table, merge, uuid)


def _alive(table: pa.Table, part: str) -> pa.Array:
    if part == ACCUMULATORS:
        return pa.array(~table["tombstone"].to_numpy(zero_copy_only=False))
    return pa.array(table["multiplicity"].to_numpy() != 0)


def _written(root: Path, table: pa.Table, merge: Merge, uuid: str) -> list[AddedFile]:
    last = max(file.epoch_max for file in merge.files)
    pieces = range(0, max(table.num_rows, 1), COMPACTED_ROWS_MAX)
    return [
        write_file(
            root,
            file_name(merge.part, last, uuid, f"c{merge.tier}-{number}"),
            table.slice(start, COMPACTED_ROWS_MAX),
        )
        for number, start in enumerate(pieces)
        if table.num_rows
    ]
