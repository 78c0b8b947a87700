"""Fold the rows of a task in arrays, for the queries that `why_not_columnar` allows.

rows ─► keys, words, order by bucket ─► per bucket: arrays at base ─► fold ─┐
                                                         records ◄──────────┤
+I -U +U -D, accumulators, multisets ◄─ results of all buckets together ◄───┘
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from jobs.core.fold.columnar.bucket_fold import BucketFold, Folded, load_fold
from jobs.core.fold.columnar.query import columnar_query, is_word
from jobs.core.fold.columnar.results import OPS, Changes, compute_results, find_changes
from jobs.core.kernels.fold_rows import OUT_GROUP, OUT_MULTISET, OUT_TIMES, OUT_VALUE, Rows
from jobs.core.kernels.group_table import GroupTable
from jobs.core.values.change import Op
from jobs.edge.machine.kernel_cache import use_kernel_cache
from jobs.edge.rows.time_columns import OF_GROUPS
from jobs.edge.rows.weighted_rows import BUCKET, WEIGHT
from jobs.edge.rows.word_columns import (
    PackedKeys,
    pack_keys,
    results_to_arrow,
    to_words,
    words_to_arrow,
    words_to_cells,
)
from jobs.edge.state.bucket_states import StateFiles, StateSource
from jobs.edge.state.columnar_records import read_part, records_of
from jobs.edge.state.columnar_state import ColumnarState, open_columns
from jobs.edge.table.epoch_files import SEQ_BUCKET_BITS, TableLayout
from jobs.edge.tasks.fold_inputs import FoldInputs, FoldReport
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, GROUP_STATE, MULTISETS
from schemas.limits import KEYS_BELOW_ZERO_NAMED_MAX, PAGE_READERS
from schemas.types.arrow_values import from_arrow, one_chunk

Array = np.ndarray[Any, Any]


def has_kernels() -> bool:
    """Return whether this host has the kernels of the fold."""
    use_kernel_cache()
    return load_fold()


class ColumnarFold:
    """One run of a fold task over its buckets."""

    def __init__(
        self, task: FoldInputs, layout: TableLayout, writer: str, report: FoldReport
    ) -> None:
        self.task = task
        self.layout = layout
        self.writer = writer
        self.report = report
        self.query = columnar_query(layout.program)
        self.plan = task.plan.fingerprint
        self.source = StateSource(task.committed, GROUP_STATE, "bucket")
        self.files = StateFiles(task.committed.root, layout, GROUP_STATE)
        # It has no thread before the first state that exceeds memory.
        self.page_readers = ThreadPoolExecutor(PAGE_READERS)

    def run(self, rows: pa.Table) -> None:
        """Fold the rows, bucket by bucket, and write one file per part."""
        groups = [
            (one_chunk(rows[f"g{index}"]), kind)
            for index, (_, kind) in enumerate(self.layout.group)
        ]
        keys = pack_keys(groups, rows.num_rows)
        weighted = self._rows(rows, keys)
        fold = BucketFold(self.query, keys.sort)
        of_rows = rows[BUCKET].to_numpy().astype(np.int64)
        order = np.argsort(of_rows, kind="stable")
        edges = np.flatnonzero(np.diff(of_rows[order])) + 1
        buckets, folded = [], []
        with self.page_readers:
            for start, end in pairwise([0, *edges.tolist(), len(order)]):
                bucket = int(of_rows[order[start]])
                found = self._fold_bucket(bucket, fold, weighted, order[start:end], keys)
                self._count(found, groups)
                buckets.append(bucket)
                folded.append(found)
        self._write(_Output(self, groups, buckets, folded))

    def _rows(self, rows: pa.Table, keys: PackedKeys) -> Rows:
        """Return the rows as the kernels take them; of other than words only NULLs count."""
        arguments = self.task.plan.arguments
        values = np.zeros((len(arguments), rows.num_rows), np.int64)
        valid = np.zeros((len(arguments), rows.num_rows), np.uint8)
        for index, argument in enumerate(arguments):
            column = one_chunk(rows[f"a{index}"])
            if is_word(argument.type):
                values[index], valid[index] = to_words(column, argument.type)
            else:
                valid[index] = column.is_valid().to_numpy(zero_copy_only=False)
        weights = rows[WEIGHT].to_numpy().astype(np.int64)
        return Rows(keys.data, keys.ends, values, valid, weights)

    def _fold_bucket(
        self, bucket: int, fold: BucketFold, rows: Rows, order: Array, keys: PackedKeys
    ) -> Folded:
        task = self.task
        state = self._catch_up(bucket)
        with state.view(task.committed.base) as table:
            if state.exceeds_memory:
                self._read_pages(table, fold, rows, order)
            folded = fold.fold(table, rows, order)
            state.remember(task.attempt.epoch, task.attempt.uuid, records_of(folded, keys))
        return folded

    def _read_pages(self, table: GroupTable, fold: BucketFold, rows: Rows, order: Array) -> None:
        """Read what the fold needs with many threads: each waits for one page at a time."""
        parts = np.array_split(order, PAGE_READERS)
        wait([self.page_readers.submit(fold.touch, table, rows, part) for part in parts])

    def _catch_up(self, bucket: int) -> ColumnarState:
        """Bring the state of a bucket to the task's base and return it."""
        state = open_columns(self.source.directory(bucket), self.query, self.plan)

        def read(named: Sequence[tuple[str, str]]) -> Any:
            for part, name in named:
                if part in GROUP_STATE:
                    rows = self.files.rows_of(bucket, name)
                    yield read_part(self.query, self.layout, part, rows)

        self.source.catch_up(state, read)
        return state

    def _count(self, folded: Folded, groups: Sequence[tuple[pa.Array, Any]]) -> None:
        totals = self.report.counters
        counted = {
            "groups_touched": folded.touched,
            "groups_in_arrays": folded.touched,
            "unmatched_retractions": folded.unmatched,
        }
        for name, count in counted.items():
            totals[name] = totals.get(name, 0) + count
        was_below = folded.lived & (folded.old[:, 0] <= 0)
        is_below = folded.lives & (folded.new[:, 0] <= 0)
        self.report.below_zero_delta += int(is_below.sum()) - int(was_below.sum())
        for row in folded.rows[is_below & ~was_below][:KEYS_BELOW_ZERO_NAMED_MAX].tolist():
            key = tuple(from_arrow(column.slice(row, 1), kind)[0] for column, kind in groups)
            self.report.keys_below_zero.append(repr(key))

    def _write(self, output: _Output) -> None:
        report = self.report
        ops = output.changes.ops
        for part, table in output.tables().items():
            if table.num_rows:
                root = self.task.committed.root
                report.files.append(self.task.attempt.write(root, part, self.writer, table))
        report.changelog_rows = len(ops)
        report.groups_delta = int((ops == _INSERT).sum()) - int((ops == _DELETE).sum())
        report.caught_up = self.files.rows_read
        report.counters["misfits"] = report.counters.get("misfits", 0) + output.misfits


_INSERT, _DELETE = OPS.index(Op.INSERT), OPS.index(Op.DELETE)


class _Output:
    """The rows of an epoch that a task writes, from the words of its changed groups."""

    def __init__(
        self,
        fold: ColumnarFold,
        groups: Sequence[tuple[pa.Array, Any]],
        buckets: Sequence[int],
        folded: Sequence[Folded],
    ) -> None:
        self.fold = fold
        self.groups = groups
        sizes = [len(each.rows) for each in folded]
        self.buckets = np.repeat(np.array(buckets, np.int64), sizes)
        self.rows = np.concatenate([each.rows for each in folded])
        self.new = np.concatenate([each.new for each in folded])
        old = np.concatenate([each.old for each in folded])
        always = bool(fold.task.plan.empty_keys)  # has its only group a row
        self.existed, self.exists = (old[:, 0] > 0) | always, (self.new[:, 0] > 0) | always
        self.lives = np.concatenate([each.lives for each in folded]) | always
        self.entries = np.concatenate([each.entries for each in folded])
        firsts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.entries[:, OUT_GROUP] += np.repeat(firsts, [len(each.entries) for each in folded])
        rules = fold.query.results
        self.before, self.after = compute_results(rules, old), compute_results(rules, self.new)
        self.changes: Changes = find_changes(self.before, self.after, self.existed, self.exists)

    @property
    def misfits(self) -> int:
        """How many results of groups are beyond their type."""
        return sum(int((each.misfits & self.lives).sum()) for each in self.after)

    def tables(self) -> dict[str, pa.Table]:
        """Return the rows of each part."""
        return {
            CHANGELOG: self._changelog(),
            ACCUMULATORS: self._accumulators(),
            MULTISETS: self._multisets(),
        }

    def _key_columns(self, of: Array) -> list[pa.Array]:
        taken = pa.array(self.rows[of])
        return [column.take(taken) for column, _ in self.groups]

    def _epoch(self, count: int) -> pa.Array:
        return pa.repeat(pa.scalar(self.fold.task.attempt.epoch, pa.int64()), count)

    def _changelog(self) -> pa.Table:
        changes = self.changes
        buckets = self.buckets[changes.groups]
        starts = np.flatnonzero(np.diff(buckets, prepend=-1))
        indexes = np.arange(len(buckets))
        indexes -= np.repeat(starts, np.diff(np.append(starts, len(buckets))))
        ops = pa.array([str(op) for op in OPS], pa.string()).take(pa.array(changes.ops))
        results = [
            results_to_arrow(before.choose(after, changes.new, changes.groups))
            for before, after in zip(self.before, self.after, strict=True)
        ]
        columns = [
            ops,
            self._epoch(len(buckets)),
            pa.array((buckets << SEQ_BUCKET_BITS) + indexes),
            *self._key_columns(changes.groups),
            *results,
        ]
        return pa.table(columns, schema=self.fold.layout.schema(CHANGELOG))

    def _accumulators(self) -> pa.Table:
        layout, query = self.fold.layout, self.fold.query
        schema, count = layout.schema(ACCUMULATORS), len(self.rows)
        cells = [
            words_to_cells(self.new, word, schema.field(cell.name).type)
            for cell, (_, word) in zip(layout.program.cells, query.cell_words, strict=True)
        ]
        results = [results_to_arrow(each.mask(self.lives)) for each in self.after]
        columns = [
            self._epoch(count),
            pa.array(self.buckets.astype(np.int32)),
            pa.array(~self.exists),
            *self._time_columns(count),
            *self._key_columns(np.arange(count)),
            *results,
            *cells,
        ]
        return pa.table(columns, schema=schema)

    def _time_columns(self, count: int) -> list[pa.Array]:
        """Return the columns OF_GROUPS; a group below zero is state though it has a tombstone."""
        columns = {name: pa.nulls(count, kind) for name, kind in OF_GROUPS.items()}
        below = self.lives & ~self.exists
        if below.any():
            columns["withheld"] = pa.array(np.zeros(count, bool), mask=~below)
            columns["window_closed"] = columns["withheld"]
        return list(columns.values())

    def _multisets(self) -> pa.Table:
        layout, program = self.fold.layout, self.fold.layout.program
        groups, multisets = self.entries[:, OUT_GROUP], self.entries[:, OUT_MULTISET]
        names = [program.plan.arguments[argument].name for argument in program.multisets]
        values = [
            words_to_arrow(kind, self.entries[:, OUT_VALUE], multisets == multiset)
            for multiset, (_, kind) in enumerate(layout.values)
        ]
        columns = [
            self._epoch(len(groups)),
            pa.array(self.buckets[groups].astype(np.int32)),
            pa.array(names, pa.string()).take(pa.array(multisets)),
            pa.array(self.entries[:, OUT_TIMES]),
            *self._key_columns(groups),
            *values,
        ]
        return pa.table(columns, schema=layout.schema(MULTISETS))
