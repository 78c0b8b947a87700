"""Compact the table: merge many small files of a part into a file of the next tier.

    tier 0   the files of epochs       32 files ─► one file of tier 1
    tier 1   32 files of tier 0 each   32 files ─► one file of tier 2, and so on
    base     state only: all files of tier 2 and above, once they outweigh it

State rows are upserts, so a merge keeps the row of each key with the newest epoch. Tombstones stay
until a merge into the base, because only then no older row is left for them to delete. Rows keep
their epochs. State files are sorted by bucket, in row groups of whole buckets:

    32 files ─► the same buckets of each, some rows at a time ─► newest rows ─► row groups

so a merge never holds large files in memory, and a reader of one bucket skips the others. A merge
runs in a separate process. The driver commits its files between two epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.plan.tree import Plan
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.columns import conform
from jobs.edge.rows.image_rows import CHANGES
from jobs.edge.rows.long_texts import narrow_rows, widen
from jobs.edge.table.epoch_files import TableLayout, layout_of
from jobs.edge.table.file_writer import AddedFile, FileWriter, file_name
from jobs.reading.files import LiveFile, writer_of_tier
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, MULTISETS, PARTS, ROWS, STATE, TIMERS
from schemas import limits
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import naming, table_file
from schemas.types.arrow_values import one_chunk

BASE_TIER = 9
TOP_TIER = 8
_INTO_BASE_FROM = 2


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge of files of one part into a tier."""

    part: str
    tier: int
    files: tuple[LiveFile, ...]


# --- due merges -------------------------------------------------------------------------------


def is_crowded(files: Sequence[LiveFile]) -> bool:
    """Return whether a table is so full that smaller merges than usual keep commits fast."""
    return len(files) > limits.LIVE_FILES_MAX * 3 // 4


def due_merge(
    files: Sequence[LiveFile], epoch_max: int, *, crowded: bool | None = None
) -> Merge | None:
    """Return the most overdue merge of files that end at or before `epoch_max`, or None.

    A waiting merge grows more overdue, whatever its part, so no merge waits forever.
    """
    if crowded is None:
        crowded = is_crowded(files)
    enough = limits.COMPACTION_FAN_IN // 2 if crowded else limits.COMPACTION_FAN_IN
    due: list[tuple[float, Merge]] = []
    for part in PARTS:
        own = [file for file in files if file.part == part and file.epoch_max <= epoch_max]
        if part == MULTISETS:
            own = _without_explained(own)
        tiers: dict[int, list[LiveFile]] = {}
        for file in own:
            tiers.setdefault(file.tier, []).append(file)
        for tier, all_of_tier in tiers.items():
            level = [file for file in all_of_tier if part in STATE or not _is_large(file)]
            if tier < TOP_TIER and len(level) >= enough:
                merge = Merge(part, tier + 1, tuple(_oldest_first(level)[: limits.MERGE_FILES_MAX]))
                due.append((len(level) / enough, merge))
        if part in STATE:
            due += _due_into_base(part, tiers)
    return max(due, key=lambda each: each[0])[1] if due else None


def _without_explained(files: Sequence[LiveFile]) -> list[LiveFile]:
    """Leave merged files of the newest epochs as they are: explanations tell these epochs apart.

    The base takes part always, because a tombstone may go only where no older row is left.
    """
    newest = max((file.epoch_max for file in files), default=0)

    def takes_part(file: LiveFile) -> bool:
        tier = file.tier
        kept = (
            limits.EXPLAINED_EPOCHS_MIN if tier < _INTO_BASE_FROM else limits.EXPLAINED_EPOCHS_MAX
        )
        return tier in (0, BASE_TIER) or file.epoch_max <= newest - kept

    return [file for file in files if takes_part(file)]


def _due_into_base(part: str, tiers: dict[int, list[LiveFile]]) -> Iterator[tuple[float, Merge]]:
    base = tiers.get(BASE_TIER, [])
    top = [f for tier in range(_INTO_BASE_FROM, BASE_TIER) for f in tiers.get(tier, ())]
    size = sum(file.size for file in base)
    overdue = sum(file.size for file in top) / size if size else len(top) / 2
    if overdue >= 1:
        yield overdue, Merge(part, BASE_TIER, tuple(_oldest_first((*base, *top))))


def _is_large(file: LiveFile) -> bool:
    return (
        file.size >= limits.COMPACTED_BYTES_MAX // 2 or file.rows >= limits.COMPACTED_ROWS_MAX // 2
    )


def _oldest_first(files: Iterable[LiveFile]) -> list[LiveFile]:
    return sorted(files, key=lambda file: (file.epoch_min, file.epoch_max, file.path))


# --- merging ----------------------------------------------------------------------------------


def merge_files(
    plan: Plan, root: TablePath, merge: Merge, uuid: str, *, durable: bool = False
) -> list[AddedFile]:
    """Write the merged files and describe them; the compaction process runs this function."""
    failpoint("compaction")
    layout = layout_of(plan)
    schema = layout.images.schema if merge.part == ROWS else None
    inputs = [_Input(root / file.path, file, schema) for file in _oldest_first(merge.files)]
    output = _Output(root, merge, uuid, layout.schema(merge.part), durable=durable)
    if merge.part in STATE:
        newest = (_keep_newest(layout, merge, rows) for rows in _whole_buckets(inputs))
        for piece in _row_groups(newest):
            output.write(piece)
    else:
        for rows in _by_epoch(inputs, sort=merge.part == CHANGELOG):
            output.add(rows)
    return output.end()


def current_rows(
    plan: Plan, root: TablePath, part: str, files: Sequence[LiveFile]
) -> Iterator[pa.Table]:
    """Yield the current rows in some files of a state part, in row groups, as in a base file."""
    merge = Merge(part, BASE_TIER, tuple(files))
    layout = layout_of(plan)
    schema = layout.images.schema if part == ROWS else None
    inputs = [_Input(root / file.path, file, schema) for file in _oldest_first(files)]
    yield from _row_groups(_keep_newest(layout, merge, rows) for rows in _whole_buckets(inputs))


class _Input:
    """Reads a file of a merge some rows at a time, whatever its row groups are."""

    def __init__(self, path: TablePath, file: LiveFile, schema: pa.Schema | None) -> None:
        """Open a file; files of older versions get the columns of `schema`, if it is given."""
        self.path = path
        self.file = file
        self._schema = schema
        self._rows: list[pa.Table] = []
        self._reader = table_file(path)
        self._batches = self._read_batches()
        self.ended = False

    @property
    def last_bucket(self) -> int:
        """The last bucket read so far; the rows that follow are of this bucket or a later one."""
        return int(self._rows[-1]["bucket"][-1].as_py()) if self._rows else -1

    def read_more(self) -> None:
        """Read the next rows, or set `ended`."""
        with naming(self.path):
            batch = next(self._batches, None)
        if batch is None:
            self.ended = True
            self._reader.close()
        elif batch.num_rows:
            rows = pa.Table.from_batches([batch])
            self._rows.append(rows if self._schema is None else conform(rows, self._schema))

    def _read_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches within one row group each, because row groups of long rows are short."""
        for group in range(self._reader.num_row_groups):
            yield from self._reader.iter_batches(
                limits.MERGE_BATCH_ROWS, row_groups=[group], use_threads=False
            )

    def take_below(self, bucket: int | None) -> list[pa.Table]:
        """Remove and return the rows of buckets before `bucket`; all rows if it is None."""
        if bucket is None:
            taken, self._rows = self._rows, []
            return taken
        taken, left = [], []
        for table in self._rows:
            end = int(np.searchsorted(table["bucket"].to_numpy(), bucket))
            taken.append(table.slice(0, end))
            if end < table.num_rows:
                left.append(table.slice(end))
        self._rows = left
        return taken

    def read_all(self) -> Iterator[pa.Table]:
        """Yield all rows."""
        while not self.ended:
            self.read_more()
            yield from self.take_below(None)


def _whole_buckets(inputs: Sequence[_Input]) -> Iterator[pa.Table]:
    """Yield the rows of all files, some whole buckets at a time, rows of older files first."""
    for each in inputs:
        each.read_more()
    while True:
        open_ends = [each.last_bucket for each in inputs if not each.ended]
        end = min(open_ends, default=None)
        rows = pa.concat_tables([table for each in inputs for table in each.take_below(end)])
        if rows.num_rows:
            yield rows
        if end is None:
            return
        for each in inputs:
            if not each.ended and each.last_bucket <= end:
                each.read_more()


def _keep_newest(layout: TableLayout, merge: Merge, rows: pa.Table) -> pa.Table:
    """Keep the row of each key with the newest epoch, and sort the rows by bucket."""
    names = [name for name, _ in layout.group]
    if merge.part == ROWS:
        names = layout.images.key_names
    if merge.part == MULTISETS:  # the value columns identify the argument: each has its own
        names += [name for name, _ in layout.values]
    if merge.part == TIMERS:
        names += ["timer_clock", "timer_namespace", "timer_ms"]
    schema, rows = rows.schema, widen(rows)
    keys, buckets = _number_keys(rows, names), rows["bucket"].to_numpy()
    order = np.lexsort((rows["epoch"].to_numpy(), keys))
    ordered = keys[order]
    newest = order[np.append(ordered[1:] != ordered[:-1], True)]
    # Within a bucket older rows stay first: rows of one epoch compress well together.
    rows = rows.take(pa.array(newest[np.lexsort((newest, buckets[newest]))]))
    if merge.tier == BASE_TIER:
        rows = rows.filter(_select_live(rows, merge.part))
    return narrow_rows(rows, schema)


def _number_keys(rows: pa.Table, names: Sequence[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a number for each row, equal for equal keys.

    Arrow finds the distinct values of each column, so no key becomes a Python object.
    """
    numbers = np.zeros(rows.num_rows, np.int64)
    count = 1
    for column in (part for name in names for part in _plain_parts(rows[name])):
        if pa.types.is_floating(column.type):
            column = pc.add(column, 0.0)  # -0.0 is 0.0
        encoded = one_chunk(column.dictionary_encode(null_encoding="encode"))
        width = max(1, len(encoded.dictionary))
        if count * width >= 1 << 62:  # renumber the keys that occur
            distinct, numbers = np.unique(numbers, return_inverse=True)
            count = len(distinct)
        numbers = numbers * width + encoded.indices.to_numpy()
        count *= width
    return numbers


def _plain_parts(column: pa.ChunkedArray) -> list[pa.ChunkedArray]:
    """Split a ROW column into columns that Arrow can dictionary-encode, and its validity."""
    if not pa.types.is_struct(column.type):
        return [column]
    parts = [part for each in column.flatten() for part in _plain_parts(each)]
    return [column.is_valid(), *parts]


def _select_live(rows: pa.Table, part: str) -> pa.Array:
    """Return a mask of the rows that are state."""
    if part == ACCUMULATORS:  # a withheld group has a tombstone but is state
        return pc.or_(pc.invert(rows["tombstone"]), rows["withheld"].is_valid())
    if part == ROWS:  # of a key that was left something may be remembered
        return pc.or_(pc.invert(rows["tombstone"]), rows[CHANGES].is_valid())
    if part == TIMERS:
        return pc.invert(rows["tombstone"])
    return pc.not_equal(rows["multiplicity"], 0)


def _row_groups(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Regroup pieces of whole buckets into row groups of whole buckets."""
    pending: list[pa.Table] = []
    count = 0
    for rows in pieces:
        buckets = rows["bucket"].to_numpy()
        start = 0
        for edge in [*(np.flatnonzero(np.diff(buckets)) + 1).tolist(), rows.num_rows]:
            if count + edge - start >= limits.ROW_GROUP_ROWS_MIN:
                yield pa.concat_tables([*pending, rows.slice(start, edge - start)])
                pending, count, start = [], 0, edge
        if start < rows.num_rows:
            pending.append(rows.slice(start))
            count += rows.num_rows - start
    if pending:
        yield pa.concat_tables(pending)


def _by_epoch(inputs: Sequence[_Input], *, sort: bool) -> Iterator[pa.Table]:
    """Yield the rows of files in the order of epochs.

    With `sort`, also order the rows of files with the same epochs, which several tasks wrote.
    """
    at = 0
    while at < len(inputs):
        end, epoch = at + 1, inputs[at].file.epoch_max
        while end < len(inputs) and inputs[end].file.epoch_min <= epoch:
            epoch = max(epoch, inputs[end].file.epoch_max)
            end += 1
        same, at = inputs[at:end], end
        if sort and len(same) > 1:
            rows = pa.concat_tables([table for each in same for table in each.read_all()])
            yield rows.sort_by([("epoch", "ascending"), ("seq", "ascending")])
        else:
            for each in same:
                yield from each.read_all()


class _Output:
    """Writes the files of a merge; starts a new file once the last is large enough."""

    def __init__(
        self, root: TablePath, merge: Merge, uuid: str, schema: pa.Schema, *, durable: bool
    ) -> None:
        self.root = root
        self.merge = merge
        self.uuid = uuid
        self.schema = schema
        self.durable = durable
        self.last = max(file.epoch_max for file in merge.files)
        self.files: list[AddedFile] = []
        self._files_started = 0
        self._writer: FileWriter | None = None
        self._pending: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        """Collect rows and write them in row groups of a good size."""
        self._pending.append(conform(rows, self.schema))
        count = sum(table.num_rows for table in self._pending)
        if (
            count >= limits.ROW_GROUP_ROWS_MIN
            or sum(t.nbytes for t in self._pending) >= limits.ROW_GROUP_BYTES_MAX
        ):
            self._write_pending()

    def write(self, rows: pa.Table) -> None:
        """Write rows as one row group."""
        if not rows.num_rows:
            return
        if self._writer is None:
            writer = writer_of_tier(self.merge.tier, self._files_started)
            self._files_started += 1
            name = file_name(self.merge.part, self.last, self.uuid, writer)
            self._writer = FileWriter(self.root, name, self.schema, durable=self.durable)
        self._writer.write(rows)
        if (
            self._writer.rows >= limits.COMPACTED_ROWS_MAX
            or self._writer.bytes >= limits.COMPACTED_BYTES_MAX
        ):
            self._end_file()

    def end(self) -> list[AddedFile]:
        """Write what is left and return the descriptions of all files."""
        if self._pending:
            self._write_pending()
        self._end_file()
        return self.files

    def _write_pending(self) -> None:
        rows, self._pending = pa.concat_tables(self._pending), []
        for start in range(0, rows.num_rows, limits.ROW_GROUP_ROWS_MIN):
            self.write(rows.slice(start, limits.ROW_GROUP_ROWS_MIN))

    def _end_file(self) -> None:
        if self._writer is not None:
            with self._writer as closed:
                self._writer = None
            self.files.append(closed.added)
