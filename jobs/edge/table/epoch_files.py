"""Epoch files: the Parquet files of each part of a job's table, written and read back.

    changelog     op, epoch, seq, group columns, result columns
    accumulators  bucket, epoch, group columns, row_count, cells, result columns, tombstone,
                  withheld, window_closed, written_ms, timer_ms
    multisets     bucket, epoch, argument, group columns, value_<argument>, multiplicity
    timers        bucket, epoch, timer_clock, timer_namespace, timer_ms, group columns, tombstone
    rows          bucket, epoch, image_<column>, tombstone: the last image of each row, with dedupe
    late          epoch, group columns, topic, partition, offset, late_weight, late_time_ms,
                  watermark_ms, late_row, late_became
    quarantine    epoch, topic, partition, offset, time, reason, path, raw, raw_bytes
    epochs        epoch, uuid, generation, kind, committed_at, plan, ... (see schemas.table.epoch)

State rows are upserts: of a key the row with the newest epoch counts, and a tombstone (of a
multiset: multiplicity 0) deletes it. A group whose result is withheld and was never emitted has a
tombstone too, for a reader has nothing to see of it, but it is `withheld`; that of a window which
is `window_closed` stays, and is no state.

A task writes its files itself and returns only their names, sizes and statistics; what is never
committed is swept later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.core.fold.fold import ChangelogRow
from jobs.core.fold.program import Program
from jobs.core.fold.state import Counts, Group, GroupTimer, Key, Upserts, gathered
from jobs.core.plan.tree import Plan
from jobs.edge.rows.columns import cell_type, cells_from_arrow, cells_to_arrow, to_arrow
from jobs.edge.rows.file_statistics import Extremes, extremes_of, stats_text
from jobs.edge.rows.image_rows import Images
from jobs.edge.rows.late_rows import LateRow
from jobs.edge.rows.time_columns import OF_GROUPS, groups_of, time_columns, timer_columns, timers_of
from schemas.table.epoch import JSON_FIELDS, EpochRow
from schemas.table.object_path import TablePath, sink
from schemas.table.parquet_file import WRITTEN
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, listed, tuples
from schemas.types.sql_types import SqlType

CHANGELOG, ACCUMULATORS, MULTISETS = "changelog", "accumulators", "multisets"
TIMERS, ROWS, LATE, QUARANTINE, EPOCHS = "timers", "rows", "late", "quarantine", "epochs"
GROUP_STATE = (ACCUMULATORS, MULTISETS, TIMERS)
STATE = (*GROUP_STATE, ROWS)
PARTS = (EPOCHS, CHANGELOG, *STATE, LATE, QUARANTINE)
SEQ_BUCKET_BITS = 32

_UTC = pa.timestamp("us", "UTC")
_COMPRESSION = "zstd"


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that a commit is to add."""

    path: str  # relative to the table
    part: str
    rows: int
    size: int
    stats: str


@dataclass(frozen=True, slots=True)
class Reject:
    """A message that was not taken, as quarantine keeps it."""

    topic: str
    partition: int
    offset: int
    time_us: int | None
    reason: str
    path: str
    raw: bytes | None
    raw_bytes: int


class TableLayout:
    """The columns of a plan's table, part by part."""

    def __init__(self, program: Program) -> None:
        plan: Plan = program.plan
        self.program = program
        self.group = [(named.name, named.type) for named in plan.group]
        self.results = list(plan.results)
        self.kept = list(plan.kept)  # with what only HAVING and expressions over aggregates need
        self.values = [
            (f"value_{plan.arguments[index].name}", plan.arguments[index].type)
            for index in program.stored
        ]
        self.images = Images(plan)
        self._check_names()

    def _check_names(self) -> None:
        own = [name for part in PARTS if part != ROWS for name in self._own(part)]
        own += [cell.name for cell in self.program.cells] + [name for name, _ in self.values]
        own += self.images.names
        taken = {name.lower() for name in [*own, "part"]}
        for name, _ in [*self.group, *self.kept]:
            if name.lower() in taken:
                raise ValueError(
                    f"column {name!r} has the name of a column that the table keeps for itself; "
                    "give it another one with AS"
                )

    @staticmethod
    def _own(part: str) -> dict[str, pa.DataType]:
        columns: dict[str, dict[str, pa.DataType]] = {
            CHANGELOG: {"op": pa.string(), "epoch": pa.int64(), "seq": pa.int64()},
            ACCUMULATORS: {
                "epoch": pa.int64(),
                "bucket": pa.int32(),
                "tombstone": pa.bool_(),
                **OF_GROUPS,
            },
            TIMERS: {
                "epoch": pa.int64(),
                "bucket": pa.int32(),
                "tombstone": pa.bool_(),
                "timer_clock": pa.string(),
                "timer_namespace": pa.string(),
                "timer_ms": pa.int64(),
            },
            MULTISETS: {
                "epoch": pa.int64(),
                "bucket": pa.int32(),
                "argument": pa.string(),
                "multiplicity": pa.int64(),
            },
            LATE: {
                "epoch": pa.int64(),
                "topic": pa.string(),
                "partition": pa.int32(),
                "offset": pa.int64(),
                "late_weight": pa.int64(),
                "late_time_ms": pa.int64(),
                "watermark_ms": pa.int64(),
                "late_row": pa.string(),
                "late_became": pa.string(),
            },
            QUARANTINE: {
                "epoch": pa.int64(),
                "topic": pa.string(),
                "partition": pa.int32(),
                "offset": pa.int64(),
                "time": _UTC,
                "reason": pa.string(),
                "path": pa.string(),
                "raw": pa.binary(),
                "raw_bytes": pa.int64(),
            },
            EPOCHS: {
                "epoch": pa.int64(),
                "uuid": pa.string(),
                "generation": pa.int64(),
                "kind": pa.string(),
                "committed_at": _UTC,
                "plan": pa.string(),
                **{name: pa.string() for name in JSON_FIELDS},
            },
        }
        return columns[part]

    def schema(self, part: str) -> pa.Schema:
        """The columns of one part's files."""
        if part == ROWS:
            return self.images.schema
        columns = dict(self._own(part))
        if part in (CHANGELOG, *GROUP_STATE, LATE):
            columns.update({name: arrow_type(kind) for name, kind in self.group})
        if part == CHANGELOG:
            columns.update({name: arrow_type(kind) for name, kind in self.results})
        if part == ACCUMULATORS:
            columns.update({name: arrow_type(kind) for name, kind in self.kept})
        if part == ACCUMULATORS:
            columns.update({cell.name: cell_type(cell) for cell in self.program.cells})
        if part == MULTISETS:
            columns.update({name: arrow_type(kind) for name, kind in self.values})
        return pa.schema(list(columns.items()))

    @cached_property
    def table_schema(self) -> pa.Schema:
        """All parts side by side: the schema of the Delta table."""
        columns: dict[str, pa.DataType] = {"part": pa.string()}
        for part in PARTS:
            columns.update({field.name: field.type for field in self.schema(part)})
        return pa.schema(list(columns.items()))

    # --- rows to tables -----------------------------------------------------------------------

    def changelog_table(
        self, epoch: int, seqs: Sequence[int], rows: Sequence[ChangelogRow]
    ) -> pa.Table:
        count = len(rows)
        return pa.table(
            [
                pa.array([str(op) for op, _, _ in rows], pa.string()),
                pa.repeat(pa.scalar(epoch, pa.int64()), count),
                pa.array(seqs, pa.int64()),
                *_transposed([key for _, key, _ in rows], [kind for _, kind in self.group]),
                *_transposed([row for _, _, row in rows], [kind for _, kind in self.results]),
            ],
            schema=self.schema(CHANGELOG),
        )

    def accumulators_table(
        self, epoch: int, buckets: Sequence[int], upserts: Sequence[tuple[Key, Group | None]]
    ) -> pa.Table:
        count = len(upserts)
        groups = [group for _, group in upserts]
        no_cells = (0,) * len(self.program.cells)
        no_result = (None,) * len(self.kept)
        cells = [no_cells if group is None else group.cells for group in groups]
        results = [no_result if group is None else group.result for group in groups]
        columns = list(zip(*cells, strict=True)) if count else [()] * len(self.program.cells)
        return pa.table(
            [
                pa.repeat(pa.scalar(epoch, pa.int64()), count),
                pa.array(buckets, pa.int32()),
                *time_columns(groups),
                *_transposed([key for key, _ in upserts], [kind for _, kind in self.group]),
                *_transposed(results, [kind for _, kind in self.kept]),
                *(
                    cells_to_arrow(column, cell)
                    for column, cell in zip(columns, self.program.cells, strict=True)
                ),
            ],
            schema=self.schema(ACCUMULATORS),
        )

    def multisets_table(
        self, epoch: int, buckets: Sequence[int], multisets: Sequence[tuple[int, Key, Counts]]
    ) -> pa.Table:
        """A row an entry; what a multiset's entries have in common is built once for all."""
        names = [argument.name for argument in self.program.plan.arguments]
        sizes = [len(counts) for _, _, counts in multisets]
        of_entry = pa.array(np.repeat(np.arange(len(sizes)), sizes))
        common = [
            pa.array(buckets, pa.int32()),
            pa.array([names[argument] for argument, _, _ in multisets], pa.string()),
            *_transposed([key for _, key, _ in multisets], [kind for _, kind in self.group]),
        ]
        bucket, name, *group = (array.take(of_entry) for array in common)
        return pa.table(
            [
                pa.repeat(pa.scalar(epoch, pa.int64()), len(of_entry)),
                bucket,
                name,
                pa.array(
                    list(chain.from_iterable(counts.values() for _, _, counts in multisets)),
                    pa.int64(),
                ),
                *group,
                *(
                    to_arrow(_values_of(argument, multisets), kind)
                    for argument, (_, kind) in zip(self.program.stored, self.values, strict=True)
                ),
            ],
            schema=self.schema(MULTISETS),
        )

    def timers_table(
        self, epoch: int, buckets: Sequence[int], timers: Sequence[tuple[GroupTimer, bool]]
    ) -> pa.Table:
        return pa.table(
            [
                pa.repeat(pa.scalar(epoch, pa.int64()), len(timers)),
                pa.array(buckets, pa.int32()),
                *timer_columns(timers),
                *_transposed([timer.key for timer, _ in timers], [kind for _, kind in self.group]),
            ],
            schema=self.schema(TIMERS),
        )

    def late_table(
        self, epoch: int, watermark: int, late: Sequence[LateRow], keys: Sequence[Key]
    ) -> pa.Table:
        """Rows that came too late for a window, with the group that they would have changed."""
        schema = self.schema(LATE)
        told = [
            (
                epoch, row.topic, row.partition, row.offset, row.weight, row.time_ms,
                watermark, row.row, row.became,
            )
            for row in late
        ]  # fmt: skip
        fields = list(schema)[: len(schema) - len(self.group)]
        columns = list(zip(*told, strict=True)) if told else [()] * len(fields)
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, fields, strict=True)]
        groups = _transposed(keys, [kind for _, kind in self.group])
        return pa.table([*arrays, *groups], schema=schema)

    def quarantine_table(self, epoch: int, rejects: Sequence[Reject]) -> pa.Table:
        schema = self.schema(QUARANTINE)
        rows = [
            (epoch, r.topic, r.partition, r.offset, r.time_us, r.reason, r.path, r.raw, r.raw_bytes)
            for r in rejects
        ]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        return pa.table(
            [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
        )

    def epochs_table(self, row: EpochRow) -> pa.Table:
        values = {
            name: msgspec.json.encode(value).decode() if name in JSON_FIELDS else value
            for name, value in msgspec.structs.asdict(row).items()
        }
        schema = self.schema(EPOCHS)
        return pa.table(
            [pa.array([values[field.name]], field.type) for field in schema], schema=schema
        )

    # --- tables to rows -----------------------------------------------------------------------

    def read_upserts(
        self,
        accumulators: pa.Table | None = None,
        multisets: pa.Table | None = None,
        timers: pa.Table | None = None,
        rows: pa.Table | None = None,
    ) -> Upserts:
        """State rows as upserts, in the order of the rows."""
        if rows is not None:
            return Upserts(self.images.read(rows), [], [])
        changed: list[tuple[int, Key, Counts]] = []
        if multisets is not None and multisets.num_rows:
            changed = gathered(self.entries(multisets))
        return Upserts(
            [] if accumulators is None else self._groups(accumulators),
            changed,
            [] if timers is None else timers_of(timers, self.keys(timers)),
        )

    def _groups(self, accumulators: pa.Table) -> list[tuple[Key, Group | None]]:
        if not accumulators.num_rows:
            return []
        results = tuples(accumulators, self.kept)
        cells = zip(
            *(cells_from_arrow(accumulators[c.name], c) for c in self.program.cells), strict=True
        )
        groups = groups_of(accumulators, cells, results)
        return list(zip(self.keys(accumulators), groups, strict=True))

    def keys(self, table: pa.Table) -> list[Key]:
        return tuples(table, self.group)

    def result_rows(self, table: pa.Table) -> list[tuple[Any, ...]]:
        return tuples(table, self.results)

    def entries(self, table: pa.Table) -> Iterator[tuple[int, Key, Any, int]]:
        """The rows of the part multisets: argument, group, value, multiplicity."""
        arguments = self.program.plan.arguments
        index_of = {arguments[index].name: index for index in self.program.stored}
        slot_of = {index: slot for slot, index in enumerate(self.program.stored)}
        columns = [from_arrow(table[name], kind) for name, kind in self.values]
        rows = zip(
            listed(table["argument"]),
            self.keys(table),
            table["multiplicity"].to_numpy().tolist(),
            strict=True,
        )
        for position, (name, key, multiplicity) in enumerate(rows):
            argument = index_of[name]
            yield argument, key, columns[slot_of[argument]][position], multiplicity


@lru_cache(maxsize=8)
def layout_of(plan: Plan) -> TableLayout:
    """Program and layout of a plan, built once in a worker."""
    return TableLayout(Program(plan))


def _values_of(argument: int, multisets: Sequence[tuple[int, Key, Counts]]) -> list[Any]:
    """The values of one argument's entries; NULL in the place of another's."""
    return list(
        chain.from_iterable(
            counts if of == argument else repeat(None, len(counts)) for of, _, counts in multisets
        )
    )


def _transposed(rows: Sequence[tuple[Any, ...]], types: Sequence[SqlType]) -> list[pa.Array]:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(types)
    return [to_arrow(column, kind) for column, kind in zip(columns, types, strict=True)]


def by_part(files: Iterable[AddedFile]) -> dict[str, list[str]]:
    """The names of files, as an epoch row has them."""
    named: dict[str, list[str]] = {}
    for file in files:
        named.setdefault(file.part, []).append(file.path)
    return named


def file_name(part: str, epoch: int, uuid: str, writer: str) -> str:
    """Unique for each attempt, so that a zombie never writes over what was committed."""
    return f"part={part}/{epoch:010d}-{uuid}-{writer}.parquet"


def write_file(root: TablePath, name: str, table: pa.Table, *, durable: bool = False) -> AddedFile:
    """Write one file of the table and describe it for the commit."""
    with FileWriter(root, name, table.schema, durable=durable) as writer:
        writer.write(table)
    return writer.added


class FileWriter:
    """One file of the table, written row group by row group; `added` describes it at the end."""

    def __init__(
        self, root: TablePath, name: str, schema: pa.Schema, *, durable: bool = False
    ) -> None:
        self.path = root / name
        self.name = name
        self.rows = 0
        self._durable = durable and isinstance(root, Path)  # elsewhere, what is there is kept
        self._size = 0
        self._extremes: dict[str, Extremes] = {}
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sink = sink(self.path)  # closed by __exit__
        self._writer = pq.ParquetWriter(
            self._sink, schema, compression=_COMPRESSION, write_statistics=True, **WRITTEN
        )

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._writer.close()
            self._sink.flush()
            self._size = self._sink.tell()
            if self._durable and kind is None:
                os.fsync(self._sink.fileno())
        finally:
            self._sink.close()

    @property
    def bytes(self) -> int:
        return int(self._sink.tell())

    def write(self, table: pa.Table) -> None:
        """Add these rows as a row group of their own."""
        self._writer.write_table(table)
        self.rows += table.num_rows
        for name, extremes in extremes_of(table).items():
            known = self._extremes.get(name)
            self._extremes[name] = extremes if known is None else known.with_(extremes)

    @property
    def added(self) -> AddedFile:
        part = self.name.split("/", 1)[0].removeprefix("part=")
        stats = stats_text(self.rows, self._extremes)
        return AddedFile(self.name, part, self.rows, self._size, stats)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
