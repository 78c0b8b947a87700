"""The fold task: turn the weighted rows of some buckets into the files of an epoch.

    rows of several buckets ─► per bucket: hot state at base ─► gather, fold ─► changelog,
                                                                                accumulators, ...
    all buckets, no rows ────► per bucket: hot state at base ─► due timers ─► the same files

The task writes one file per part, and returns their names, sizes and statistics. The table does not
have them before the driver commits. The task never writes its own epoch to the hot state: the next
task that needs the bucket applies the committed epochs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, repeat
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.fold.columnar.query import why_not_columnar
from jobs.core.fold.fold import ChangelogRow, Counters, FoldContext, FoldResult, open_groups
from jobs.core.fold.laws import well_formed
from jobs.core.fold.program import Delta
from jobs.core.fold.sessions import fold_bundle, fold_due
from jobs.core.fold.state import Clock, Key, State
from jobs.core.plan.bucket import bucket_of_group
from jobs.core.plan.tree import Plan, WindowBound
from jobs.core.rows.consolidate import Booleans, Integers
from jobs.core.values.order_key import encoder
from jobs.edge.process import aggregate_class  # noqa: F401 - that classes can be loaded
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.late_rows import LATE, read_late
from jobs.edge.rows.weighted_rows import BUCKET, POSITION, WEIGHT, Parcel, unpack_parcels
from jobs.edge.state.bucket_states import BucketStates
from jobs.edge.state.hot_records import Layout
from jobs.edge.table.due_changes import add_sort_columns
from jobs.edge.table.epoch_files import SEQ_BUCKET_BITS, TableLayout, layout_of
from jobs.edge.tasks.body import name_writer, task_body
from jobs.edge.tasks.fold_inputs import FoldInputs, FoldReport
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, MULTISETS, TIMERS
from jobs.reading.parts import LATE as LATE_PART
from schemas.types.arrow_values import from_arrow, to_list
from schemas.types.sql_types import SqlType

NOTHING_FIRED: Mapping[Clock, int | None] = {}


def _find_counted(plan: Plan, rows: pa.Table) -> Booleans:
    """Return which rows are counted; of CUMULATE only those in a window of the whole size.

    Each row is in one of these, but in fewer windows the later it is in the size."""
    window = plan.window
    if window is None or not plan.cumulates or not rows.num_rows:
        return np.full(rows.num_rows, True)
    expressions = [each.expression for each in plan.group]
    end = rows[f"g{expressions.index(WindowBound(window, True, window.bound_type))}"]
    ends = end.combine_chunks().view(pa.int64()).to_numpy() // window.unit
    counted: Booleans = window.find_ends(ends - 1)[1] == ends
    return counted


@dataclass(frozen=True, slots=True)
class FoldTask(FoldInputs):
    """What `ViewsFold` does for one view; a value, so that Spark can send it to the workers."""

    def fold_parcels(self, found: Sequence[Parcel]) -> bytes:
        """Fold the rows of these parcels, and return the report."""
        began = time.monotonic()
        rows = unpack_parcels(found)
        counted = int(_find_counted(self.plan, rows).sum())
        report = FoldReport(view=self.view, arrived=rows.num_rows, counted=counted)
        self._fold_rows(rows, name_writer("f"), report)
        report.seconds = round(time.monotonic() - began, 4)
        return msgspec.json.encode(report)

    def _fold_rows(self, rows: pa.Table, writer: str, report: FoldReport) -> None:
        layout = layout_of(self.plan)
        if why_not_columnar(self.plan, self.rules) is None:
            # It loads numba, which drivers and jobs of other queries do without.
            from jobs.edge.tasks.columnar_fold import ColumnarFold, has_kernels

            if has_kernels():
                ColumnarFold(self, layout, writer, report).run(rows)
                return
        run = _Fold(self, layout, writer, report)
        run.run(run.split_off_late(rows))
        run.write()


@dataclass(frozen=True, slots=True)
class TimeTask:
    """The function of an epoch without data; its input are the numbers of buckets."""

    fold: FoldTask
    # Emit withheld changes. Due timers follow from the fold's rules, now_ms and watermark.
    release: bool
    opens: bool = False  # emit the rows that groups have without input, and nothing else

    def __call__(self, buckets: Iterable[int]) -> Iterator[bytes]:
        with task_body():
            failpoint("fold_task")
            report = FoldReport(view=self.fold.view)
            run = _Fold(self.fold, layout_of(self.fold.plan), name_writer("f"), report)
            if self.opens:
                run.open_groups(buckets)
            else:
                run.pass_time(buckets, release=self.release)
            run.write()
            yield msgspec.json.encode(report)


class _Fold:
    """One run of a fold task over its buckets."""

    def __init__(
        self, task: FoldTask, layout: TableLayout, writer: str, report: FoldReport
    ) -> None:
        self.task = task
        self.layout = layout
        self.writer = writer
        self.report = report
        self.program = layout.program
        self.order = encoder(tuple(kind for _, kind in layout.group))
        self.context = FoldContext(self.order, task.rules, task.now_ms, task.watermark)
        self.states = BucketStates(task.committed, layout, Layout.of(task.plan))
        self.keys: list[Key] = []
        self.changelog: list[ChangelogRow] = []
        self.seqs: list[int] = []
        self.times: list[int] = []  # due times of changelog rows, if time made them due
        self.groups: list[Any] = []
        self.group_buckets: list[int] = []
        self.multisets: list[Any] = []
        self.multiset_buckets: list[int] = []
        self.timers: list[Any] = []
        self.timer_buckets: list[int] = []

    def run(self, rows: pa.Table) -> None:
        """Fold the rows, bucket by bucket."""
        numbers, self.keys = numbered_groups(rows, [kind for _, kind in self.layout.group])
        buckets = rows[BUCKET].to_numpy()
        order = np.lexsort((numbers, buckets))  # puts the rows of a group together
        rows = rows.take(pa.array(order))
        buckets = buckets[order]
        columns = [numbers[order].tolist(), *self._columns(rows)]
        edges = np.flatnonzero(np.diff(buckets)) + 1
        cuts = [0, *edges.tolist(), len(buckets)] if rows.num_rows else []
        for start, end in pairwise(cuts):
            self._fold_bucket(int(buckets[start]), [column[start:end] for column in columns])

    def split_off_late(self, rows: pa.Table) -> pa.Table:
        """Return the rows in time for their window; write the others to the part `late`.

        A row of a hopping window has a copy per window, and each copy is checked.
        """
        deadline = self.task.deadline
        if deadline is None:
            return rows
        late, taken = rows[LATE].is_valid(), pa.array(deadline.takes(rows))
        missed = rows.filter(pc.and_(late, pc.invert(taken)))
        if missed.num_rows:
            self._write_late(missed, deadline.watermark)
        return rows.filter(pc.and_(taken, pc.or_(pc.invert(late), deadline.keeps(rows))))

    def _write_late(self, missed: pa.Table, watermark: int) -> None:
        task = self.task
        late = [read_late(payload) for payload in to_list(missed[LATE])]
        numbers, keys = numbered_groups(missed, [kind for _, kind in self.layout.group])
        groups = [keys[number] for number in numbers.tolist()]
        table = self.layout.late_table(task.attempt.epoch, watermark, late, groups)
        root, writer = task.committed.root, self.writer
        self.report.files.append(task.attempt.write(root, LATE_PART, writer, table))
        self.report.counters["late_windows"] = len(late)
        whole = np.array([row.whole for row in late])
        self.report.counters["late_copies"] = int((whole & _find_counted(task.plan, missed)).sum())

    def _columns(self, rows: pa.Table) -> list[list[Any]]:
        """Return argument values, positions and weights as one list per column."""
        arguments = [
            from_arrow(rows[f"a{i}"], argument.type)
            for i, argument in enumerate(self.task.plan.arguments)
        ]
        weights = rows[WEIGHT].to_numpy().tolist()
        has_positions = POSITION in rows.column_names
        positions = rows[POSITION].to_numpy().tolist() if has_positions else [0] * len(weights)
        return [*arguments, positions, weights]

    def pass_time(self, buckets: Iterable[int], *, release: bool) -> None:
        """Fold the due timers of these buckets; with `release`, emit withheld changes."""
        task, clock = self.task, self.program.clock
        by_clock, by_watermark = clock is Clock.PROCESSING, clock is Clock.EVENT

        def fold(view: State) -> FoldResult:
            return fold_due(self.program, view, self.context, release=release)

        fired: dict[Clock, int | None] = {
            Clock.PROCESSING: task.now_ms if task.rules.ttl_ms or by_clock else None,
            Clock.EVENT: task.watermark if task.rules.closing or by_watermark else None,
        }
        for bucket in sorted(buckets):
            self._take(bucket, fold, fired)

    def open_groups(self, buckets: Iterable[int]) -> None:
        """Emit the rows that groups of these buckets have without input."""
        plan, by_bucket = self.task.plan, dict[int, list[Key]]()
        for key in plan.empty_keys:
            bucket = bucket_of_group(plan, key, self.task.buckets)
            by_bucket.setdefault(bucket, []).append(key)
        for bucket in sorted(by_bucket.keys() & set(buckets)):
            keys = by_bucket[bucket]
            fold = partial(open_groups, self.program, keys=keys, context=self.context)
            self._take(bucket, fold)

    def _fold_bucket(self, bucket: int, columns: Sequence[list[Any]]) -> None:
        gathered: dict[Any, Delta] = self.program.gather(*columns)
        deltas = {self.keys[number]: delta for number, delta in gathered.items()}

        self._take(bucket, lambda view: fold_bundle(self.program, view, deltas, self.context))

    def _take(
        self,
        bucket: int,
        fold_bucket: Callable[[State], FoldResult],
        fired: Mapping[Clock, int | None] = NOTHING_FIRED,
    ) -> None:
        """Fold one bucket on its state at base; `fired` has each clock's last fired time."""
        task = self.task
        state = self.states.catch_up(bucket)
        with state.view(task.committed.base) as view:
            folded = fold_bucket(view)
            state.remember(task.attempt.epoch, task.attempt.uuid, view.to_records(folded.upserts))
            for clock in Clock:
                self._see_timer(clock, view.next_timer(clock, fired.get(clock)))
        upserts = folded.upserts
        first = bucket << SEQ_BUCKET_BITS
        self.changelog += well_formed(folded.changelog)
        self.seqs += range(first, first + len(folded.changelog))
        self.times += folded.times
        self.groups += upserts.groups
        self.group_buckets += repeat(bucket, len(upserts.groups))
        self.multisets += upserts.multisets
        self.multiset_buckets += repeat(bucket, len(upserts.multisets))
        self.timers += upserts.timers
        self.timer_buckets += repeat(bucket, len(upserts.timers))
        for timer, is_set in upserts.timers:
            if is_set:
                self._see_timer(timer.clock, timer.time)
        self._count(folded.counters)

    def _see_timer(self, clock: Clock, time: int | None) -> None:
        if time is not None:
            known = self.report.timers.get(clock, time)
            self.report.timers[str(clock)] = min(time, known)

    def _count(self, counters: Counters) -> None:
        totals = self.report.counters
        for name in ("groups_touched", "unmatched_retractions", "misfits"):
            totals[name] = totals.get(name, 0) + getattr(counters, name)
        self.report.below_zero_delta += counters.below_zero_delta
        self.report.keys_below_zero += map(repr, counters.keys_below_zero)
        for name in ("dropped_retractions", "expired", "expired_silently", "closed"):
            if count := getattr(counters, name):
                totals[name] = totals.get(name, 0) + count
        self.report.dropped_keys += [(repr(key), n) for key, n in counters.dropped_keys]

    def write(self) -> None:
        """Write one file per part and complete the report."""
        task, layout, report = self.task, self.layout, self.report
        epoch = task.attempt.epoch
        tables = {
            CHANGELOG: layout.changelog_table(epoch, self.seqs, self.changelog),
            ACCUMULATORS: layout.accumulators_table(epoch, self.group_buckets, self.groups),
            MULTISETS: layout.multisets_table(epoch, self.multiset_buckets, self.multisets),
            TIMERS: layout.timers_table(epoch, self.timer_buckets, self.timers),
        }
        if self.times:
            keys = [self.order(key) for _, key, _ in self.changelog]
            tables[CHANGELOG] = add_sort_columns(tables[CHANGELOG], self.times, keys)
        for part, table in tables.items():
            if table.num_rows:
                files = report.due if part == CHANGELOG and self.times else report.files
                root = task.committed.root
                files.append(task.attempt.write(root, part, self.writer, table))
        report.caught_up = self.states.files.rows_read
        report.changelog_rows = len(self.changelog)
        ops = [op for op, _, _ in self.changelog]
        report.groups_delta = ops.count("+I") - ops.count("-D")  # type: ignore[arg-type]
        report.groups_delta -= report.counters.get("expired_silently", 0)


def numbered_groups(rows: pa.Table, types: Sequence[SqlType]) -> tuple[Integers, list[Key]]:
    """Return the number of each row's group, and the groups by number.

    Arrow finds the distinct values, so Python builds one key per group and not per row.
    """
    if not types:
        return np.zeros(rows.num_rows, np.int64), [()]
    if any(kind.floating for kind in types):  # equal floats may differ in their bits
        columns = [from_arrow(rows[f"g{i}"], kind) for i, kind in enumerate(types)]
        numbers: dict[Key, int] = {}
        of_rows = [numbers.setdefault(key, len(numbers)) for key in zip(*columns, strict=True)]
        return np.array(of_rows, np.int64), list(numbers)
    combined = np.zeros(rows.num_rows, np.int64)
    keys: list[Key] = [()]
    values: list[Any]
    for i, kind in enumerate(types):
        encoded = rows[f"g{i}"].combine_chunks().dictionary_encode(null_encoding="encode")
        values = from_arrow(encoded.dictionary, kind)
        combined = combined * len(values) + encoded.indices.to_numpy()
        # Renumber the groups that occur, so numbers stay small with any number of columns.
        distinct, combined = np.unique(combined, return_inverse=True)
        keys = [(*keys[n // len(values)], values[n % len(values)]) for n in distinct.tolist()]
    return combined, keys
