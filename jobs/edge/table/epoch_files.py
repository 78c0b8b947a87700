"""Write and read the Parquet files of each part of a job's table.

    changelog     op, epoch, seq, group columns, result columns
    accumulators  bucket, epoch, group columns, row_count, cells, result columns, tombstone,
                  withheld, window_closed, written_ms, timer_ms
    multisets     bucket, epoch, argument, group columns, value_<argument>, multiplicity
    timers        bucket, epoch, timer_clock, timer_namespace, timer_ms, group columns, tombstone
    rows          bucket, epoch, tombstone, image_<column>, key_<..>: the last image of each row
    late          epoch, group columns, topic, partition, offset, late_weight, late_time_ms,
                  watermark_ms, late_row, late_became
    quarantine    epoch, topic, partition, offset, time, reason, path, raw, raw_bytes, ..._code,
                  ..._source
    epochs        epoch, uuid, generation, kind, committed_at, plan, ... (see schemas.table.epoch)

State rows are upserts: the row with the newest epoch of a key counts. A tombstone deletes the key;
in multisets, multiplicity 0 does. A group whose result is withheld and was never emitted has a
tombstone, because readers must not see it, and `withheld` marks it as state. The row of a window
that is `window_closed` stays, but it is no state.

A task writes its files itself and returns only their names, sizes and statistics. A later sweep
deletes files that were never committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, lru_cache
from itertools import chain, repeat
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from jobs.core.fold.fold import ChangelogRow
from jobs.core.fold.program import Program
from jobs.core.fold.state import Counts, Group, GroupTimer, Key, Upserts, gather_multisets
from jobs.core.plan.tree import Plan
from jobs.core.values.change import RejectCode
from jobs.edge.rows.columns import cell_type, cells_from_arrow, cells_to_arrow
from jobs.edge.rows.image_rows import Images
from jobs.edge.rows.late_rows import LateRow
from jobs.edge.rows.time_columns import (
    OF_GROUPS,
    read_groups,
    read_timers,
    time_columns,
    timer_columns,
)
from jobs.reading.parts import (
    ACCUMULATORS,
    CHANGELOG,
    EPOCHS,
    GROUP_STATE,
    LATE,
    MULTISETS,
    PARTS,
    QUARANTINE,
    ROWS,
    TIMERS,
)
from schemas.limits import VIEWS_MAX
from schemas.table.epoch import JSON_FIELDS, EpochRow
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, rows_to_arrow, to_arrow, to_list, to_tuples

SEQ_BUCKET_BITS = 32

_UTC = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Reject:
    """A rejected message, as quarantine stores it: the part's columns after the epoch."""

    topic: str
    partition: int
    offset: int
    time_us: int | None
    reason: str
    path: str
    raw: bytes | None
    raw_bytes: int
    code: RejectCode = RejectCode.MESSAGE
    source: str | None = None  # its name, if the job has several


class TableLayout:
    """The columns of a plan's table, part by part."""

    def __init__(self, program: Program) -> None:
        plan: Plan = program.plan
        self.program = program
        self.group = plan.key
        self.results = list(plan.results)
        self.kept = list(plan.kept_results)  # also results that only HAVING or other columns need
        self.values = [
            (f"value_{plan.arguments[index].name}", plan.arguments[index].type)
            for index in program.stored
        ]
        self.images = Images(plan)
        self._check_names()

    def _check_names(self) -> None:
        own = [name for part in PARTS if part != ROWS for name in self._own_columns(part)]
        own += [cell.name for cell in self.program.cells] + [name for name, _ in self.values]
        own += self.images.names
        taken = {name.lower() for name in [*own, "part"]}
        for name, _ in [*self.group, *self.kept]:
            if name.lower() in taken:
                raise ValueError(
                    f"column {name!r} has the name of a column of the job's table; "
                    "give it another name with AS"
                )

    @staticmethod
    def _own_columns(part: str) -> dict[str, pa.DataType]:
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
                "quarantine_code": pa.string(),
                "quarantine_source": pa.string(),
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
        """Return the columns of one part's files."""
        if part == ROWS:
            return self.images.schema
        columns = dict(self._own_columns(part))
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
        """The schema of the Delta table: the columns of all parts."""
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
                *rows_to_arrow([key for _, key, _ in rows], [kind for _, kind in self.group]),
                *rows_to_arrow([row for _, _, row in rows], [kind for _, kind in self.results]),
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
                *rows_to_arrow([key for key, _ in upserts], [kind for _, kind in self.group]),
                *rows_to_arrow(results, [kind for _, kind in self.kept]),
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
        """Return one row per entry; columns that a multiset's entries share are built once."""
        names = [argument.name for argument in self.program.plan.arguments]
        sizes = [len(counts) for _, _, counts in multisets]
        of_entry = pa.array(np.repeat(np.arange(len(sizes)), sizes))
        common = [
            pa.array(buckets, pa.int32()),
            pa.array([names[argument] for argument, _, _ in multisets], pa.string()),
            *rows_to_arrow([key for _, key, _ in multisets], [kind for _, kind in self.group]),
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
                    to_arrow(_entry_values(argument, multisets), kind)
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
                *rows_to_arrow(
                    [timer.key for timer, _ in timers], [kind for _, kind in self.group]
                ),
            ],
            schema=self.schema(TIMERS),
        )

    def late_table(
        self, epoch: int, watermark: int, late: Sequence[LateRow], keys: Sequence[Key]
    ) -> pa.Table:
        """Return the rows that were too late for a window, with the groups they belong to."""
        schema = self.schema(LATE)
        values = [
            (
                epoch,
                row.topic,
                row.partition,
                row.offset,
                row.weight,
                row.time_ms,
                watermark if row.watermark is None else row.watermark,
                row.row,
                row.became,
            )
            for row in late
        ]
        own = list(schema)[: len(schema) - len(self.group)]
        groups = rows_to_arrow(keys, [kind for _, kind in self.group])
        return pa.table([*_by_column(values, own), *groups], schema=schema)

    def quarantine_table(self, epoch: int, rejects: Sequence[Reject]) -> pa.Table:
        schema = self.schema(QUARANTINE)
        rows = [(epoch, *astuple(reject)) for reject in rejects]
        return pa.table(_by_column(rows, schema), schema=schema)

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
    ) -> Upserts:
        """Return state rows as upserts, in the order of the rows."""
        changed: list[tuple[int, Key, Counts]] = []
        if multisets is not None and multisets.num_rows:
            changed = gather_multisets(self.entries(multisets))
        return Upserts(
            [] if accumulators is None else self._groups(accumulators),
            changed,
            [] if timers is None else read_timers(timers, self.keys(timers)),
        )

    def _groups(self, accumulators: pa.Table) -> list[tuple[Key, Group | None]]:
        if not accumulators.num_rows:
            return []
        results = to_tuples(accumulators, self.kept)
        cells = zip(
            *(cells_from_arrow(accumulators[c.name], c) for c in self.program.cells), strict=True
        )
        groups = read_groups(accumulators, cells, results)
        return list(zip(self.keys(accumulators), groups, strict=True))

    def keys(self, table: pa.Table) -> list[Key]:
        return to_tuples(table, self.group)

    def entries(self, table: pa.Table) -> Iterator[tuple[int, Key, Any, int]]:
        """Yield (argument, group, value, multiplicity) of each row of the part multisets."""
        arguments = self.program.plan.arguments
        index_of = {arguments[index].name: index for index in self.program.stored}
        slot_of = {index: slot for slot, index in enumerate(self.program.stored)}
        columns = [from_arrow(table[name], kind) for name, kind in self.values]
        rows = zip(
            to_list(table["argument"]),
            self.keys(table),
            table["multiplicity"].to_numpy().tolist(),
            strict=True,
        )
        for position, (name, key, multiplicity) in enumerate(rows):
            argument = index_of[name]
            yield argument, key, columns[slot_of[argument]][position], multiplicity


@lru_cache(maxsize=2 * VIEWS_MAX)
def layout_of(plan: Plan) -> TableLayout:
    """Return the layout of a plan, built once per worker."""
    return TableLayout(Program(plan))


def _entry_values(argument: int, multisets: Sequence[tuple[int, Key, Counts]]) -> list[Any]:
    """Return one value per entry: the value of this argument, NULL for other arguments."""
    return list(
        chain.from_iterable(
            counts if of == argument else repeat(None, len(counts)) for of, _, counts in multisets
        )
    )


def _by_column(rows: Sequence[tuple[Any, ...]], fields: Iterable[pa.Field]) -> list[pa.Array]:
    types = [field.type for field in fields]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(types)
    return [pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)]
