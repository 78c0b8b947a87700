"""Remove history that is older than the job's retention; state always stays.

    changelog, late, quarantine, epochs   remove files whose newest epoch is old and published
    start row                             keep; add the counters of the removed epochs to it

So `audit` still knows the first offsets and the totals since then. A later sweep deletes the
removed files, unless a savepoint needs them. A savepoint gets the sums up to its epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from jobs.edge.table.compaction import TOP_TIER
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.file_writer import AddedFile, file_name, write_file
from jobs.reading.epoch_rows import read_epoch_rows, sum_audited
from jobs.reading.files import LiveFile, writer_of_tier
from jobs.reading.parts import CHANGELOG, EPOCHS, LATE, QUARANTINE
from schemas.table.epoch import VIEWS, EpochRow
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import rows_in
from schemas.table.view_path import split_part
from schemas.types.arrow_values import to_list

HISTORY = (CHANGELOG, EPOCHS, LATE, QUARANTINE)
# Counters that describe a state or one epoch; their sum has no meaning.
_OF_ONE_EPOCH = frozenset(
    {
        "groups",
        "groups_below_zero",
        "failing_rows",
        "images",
        "begins",
        "moved",
        "published",
        "appended_ms",
    }
)
_START_WRITER = writer_of_tier(TOP_TIER, 0)  # the highest tier, which compaction does not merge


@dataclass(frozen=True, slots=True)
class ExpiredHistory:
    """The files that a commit removes, and the files that replace them."""

    epoch_max: int
    removed: tuple[LiveFile, ...]
    added: tuple[AddedFile, ...]
    rows: tuple[EpochRow, ...]  # of the removed epochs, after the start row


def expire_history(
    table: EpochTable, before_us: int, published: int, uuid: str, *, durable: bool = False
) -> ExpiredHistory | None:
    """Return the files of published epochs committed before `before_us`; None if there are none.

    Only whole files expire, and never the newest epoch.
    """
    files = table.live_files()
    epochs = [file for file in files if file.part == EPOCHS]
    newest = max(file.epoch_max for file in epochs)
    last = min(_last_epoch_before(table.root, epochs, before_us), published, newest - 1)
    old = [f for f in files if split_part(f.part)[1] in HISTORY and f.epoch_max <= last]
    rows = [
        row
        for file in old
        if file.part == EPOCHS
        for row in read_epoch_rows(table.root / file.path)
    ]
    if len(rows) == 1 and rows[0].kind == "start":  # only the start row is left
        old = [file for file in old if file.part != EPOCHS]
        rows = []
    if not old:
        return None
    added: list[AddedFile] = []
    if rows and rows[0].kind == "start":
        name = file_name(EPOCHS, rows[0].epoch, uuid, _START_WRITER)
        rewinds = _read_rewinds(table.root, [file for file in epochs if file.epoch_max > last])
        start = table.layout.epochs_table(_sum_counters(rows, rewinds))
        added.append(write_file(table.root, name, start, durable=durable))
    return ExpiredHistory(last, tuple(old), tuple(added), tuple(rows))


def _last_epoch_before(root: TablePath, epochs: Sequence[LiveFile], time_us: int) -> int:
    """Return the epoch before the first epoch committed at `time_us` or later; -1 if none."""
    last = -1
    for file in epochs:  # oldest first
        table = rows_in(root / file.path, ["epoch", "committed_at"])
        stamps = table["committed_at"].cast(pa.int64()).to_pylist()
        for epoch, stamp in sorted(zip(to_list(table["epoch"]), stamps, strict=True)):
            if stamp >= time_us:
                return last
            last = epoch
    return last


def _read_rewinds(root: TablePath, files: Sequence[LiveFile]) -> list[EpochRow]:
    """Return the rows of the rewinds in these files, in order."""
    rewound = [f for f in files if "rewind" in to_list(rows_in(root / f.path, ["kind"])["kind"])]
    rows = [row for file in rewound for row in read_epoch_rows(root / file.path)]
    return sorted((row for row in rows if row.kind == "rewind"), key=lambda row: row.epoch)


def _sum_counters(rows: Sequence[EpochRow], rewinds: Sequence[EpochRow]) -> EpochRow:
    """Return the start row with the summed counters of all rows, and of each view.

    Epochs that were undone, also by one of the later `rewinds`, do not count for an audit.
    """
    known = [*rows, *rewinds]
    counters: dict[str, Any] = _leave_out_undone(_add_up(row.counters for row in rows), known)
    if any(row.shares for row in rows):
        counted = [row.all_shares for row in rows]
        first = {view: share for shares in reversed(counted) for view, share in shares.items()}
        counters[VIEWS] = {  # also of views that came later
            view: {
                "plan": share.plan,
                "counters": _leave_out_undone(
                    _add_up(each[view].counters for each in counted if view in each),
                    [row.of_view(view) for row in known],
                ),
            }
            for view, share in first.items()
        }
    return msgspec.structs.replace(rows[0], counters=counters, files={})


def _leave_out_undone(counters: dict[str, int], rows: Sequence[EpochRow]) -> dict[str, int]:
    """Return sums over the rows of a view, those that audits need without undone epochs."""
    sums = sum_audited(rows)
    return counters | {name: count for name, count in sums.items() if name in counters}


def _add_up(counted: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    totals: dict[str, int] = {"groups": 0}
    for counters in counted:
        for name, count in counters.items():
            if isinstance(count, int) and name not in _OF_ONE_EPOCH:
                totals[name] = totals.get(name, 0) + count
    return totals
