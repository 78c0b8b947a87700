"""The dedupe task: turn the changes of keys into the changes that the query folds.

    images, by primary key ─┬─ bucket 3 ─► states at base ─► derived ─┬─► rows to be projected
                            └─ bucket 7 ─► ...                        └─► the part `rows`
    reports of the ranges ──────────────────────────────────────────────► unchanged

The task runs inside mapInArrow, between decoding and the projection, for jobs with `dedupe` only.
Like the fold task it reads its state at a base and writes only new files. It does not change the
state: the next task that needs a bucket applies the committed epochs. It forgets keys that were
left long ago, by the time of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from jobs.core.fold.state import Group, GroupTimer, Stamp
from jobs.core.fold.timers import Clock
from jobs.core.plan.tree import Plan
from jobs.core.rows.dedupe import (
    DerivedChanges,
    Key,
    KeyChange,
    derive_changes,
    fingerprint_of,
    key_reader,
)
from jobs.core.rows.key_history import KeyState
from jobs.core.values.change import Row
from jobs.core.values.float_values import NAN
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.columns import to_arrow
from jobs.edge.rows.image_rows import to_state, to_upserts
from jobs.edge.rows.weighted_rows import (
    CHANGE_PARTITION,
    CHANGE_TIME,
    POSITION,
    REPORT,
    WEIGHT,
    rows_schema,
    take_batches,
)
from jobs.edge.state.bucket_states import BucketStates, CommittedEpoch
from jobs.edge.state.hot_records import Layout, Snapshot
from jobs.edge.table.epoch_files import layout_of
from jobs.edge.table.file_writer import (
    AddedFile,
    file_name,
    write_file,
)
from jobs.edge.tasks.body import task_body
from jobs.table.parts import ROWS
from schemas.limits import DOUBTFUL_KEYS_NAMED_MAX, LEFT_KEYS_FORGOTTEN_MAX, TASK_BYTES_MAX
from schemas.table.object_path import TablePath
from schemas.types.arrow_values import from_arrow, to_list

ROW_BUCKET = "__row_bucket"


class DedupeReport(msgspec.Struct, kw_only=True, tag="dedupe"):
    """The report of one dedupe task."""

    task: int
    taken: int = 0  # signed rows
    too_large: bool = False  # the input has more bytes than a task may hold; nothing was done
    duplicates: int = 0
    unknown_retractions: int = 0
    derived: int = 0  # emitted rows
    rows_delta: int = 0  # change of the number of images
    keys_in_several_partitions: int = 0
    ambiguous_keys: int = 0
    doubtful_keys: list[str] = []  # some of both
    files: list[AddedFile] = []


@dataclass(frozen=True, slots=True)
class DedupeTask:
    """The function of the stage; a value, so that Spark can send it to the workers."""

    plan: Plan
    root: TablePath
    cache: Path
    epoch: int
    uuid: str
    base: Stamp
    version: int  # of the table, at base
    recent_epochs: tuple[CommittedEpoch, ...]  # in order, base last
    durable: bool = False
    bytes_max: int = TASK_BYTES_MAX

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_body():
            yield from self._dedupe_batches(batches)

    def _dedupe_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        failpoint("dedupe_task")
        found = take_batches(batches, self.bytes_max)
        if found is None:
            yield self._report_batch(msgspec.json.encode(DedupeReport(task=-1, too_large=True)))
        if not found:
            return
        table = pa.Table.from_batches(found)
        for payload in table.filter(table[REPORT].is_valid())[REPORT].to_pylist():
            yield self._report_batch(payload)
        rows = table.filter(table[REPORT].is_null())
        if rows.num_rows:
            run = _Dedupe(self)
            for changes in run.run(rows):
                if changes.rows:
                    yield self._row_batch(changes)
            run.write()
            yield self._report_batch(msgspec.json.encode(run.report))

    def _row_batch(self, found: DerivedChanges) -> pa.RecordBatch:
        columns = zip(*found.rows, strict=True) if self.plan.used else ()
        return pa.RecordBatch.from_arrays(
            [
                *(
                    to_arrow(values, column.type)
                    for values, column in zip(columns, self.plan.used, strict=True)
                ),
                pa.array(found.positions, pa.int64()),
                pa.array(found.weights, pa.int64()),
                pa.nulls(len(found.rows), pa.binary()),
            ],
            schema=rows_schema(self.plan.used),
        )

    def _report_batch(self, payload: bytes) -> pa.RecordBatch:
        schema = rows_schema(self.plan.used)
        arrays = [pa.nulls(1, column.type) for column in schema]
        arrays[-1] = pa.array([payload], pa.binary())
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Dedupe:
    """One run of a dedupe task over its buckets."""

    def __init__(self, task: DedupeTask) -> None:
        plan = task.plan
        context = TaskContext.get()
        self.task = task
        self.writer = f"d{context.taskAttemptId() if context else 0}"
        self.report = DedupeReport(task=context.partitionId() if context else 0)
        self.layout = layout_of(plan)
        hot_layout = Layout(
            plan=f"rows of {plan.fingerprint}",
            group_types=tuple(column.type for column in plan.primary_key),
            argument_types=(),
        )
        self.states = BucketStates(task, self.layout, hot_layout, (ROWS,), "rows")
        self.key_of = key_reader(plan)
        self.floats = any(column.type.floating for column in plan.image)
        self.states_written: list[tuple[Key, KeyState | None]] = []
        self.buckets: list[int] = []

    def run(self, rows: pa.Table) -> Iterator[DerivedChanges]:
        """Yield the changes of each bucket."""
        buckets = rows[ROW_BUCKET].to_numpy()
        order = np.argsort(buckets, kind="stable")
        rows, buckets = rows.take(pa.array(order)), buckets[order]
        images = self._read_images(rows)
        own = (to_list(rows[n]) for n in (POSITION, WEIGHT, CHANGE_TIME, CHANGE_PARTITION))
        key_of = self.key_of
        changes = [
            KeyChange(key_of(image), image, *facts)
            for image, *facts in zip(images, *own, strict=True)
        ]
        edges = np.flatnonzero(np.diff(buckets)) + 1
        for start, end in pairwise([0, *edges.tolist(), len(changes)]):
            yield self._dedupe(int(buckets[start]), changes[start:end])

    def _read_images(self, rows: pa.Table) -> list[Row]:
        columns = [from_arrow(rows[column.name], column.type) for column in self.task.plan.image]
        return list(zip(*columns, strict=True))

    def _dedupe(self, bucket: int, changes: Sequence[KeyChange]) -> DerivedChanges:
        task = self.task
        state = self.states.catch_up(bucket)
        with state.view(task.base) as view:
            found = derive_changes(
                changes, self._state_reader(view), len(task.plan.used), fingerprint_of(task.plan)
            )
            due = self._find_due(view, changes)
            written = found.states + self._forget(view, due)
            upserts = to_upserts(written)
            upserts.timers += [(timer, False) for timer in due]
            state.remember(task.epoch, task.uuid, upserts, view)
        self.states_written += written
        self.buckets += repeat(bucket, len(written))
        self._report(found)
        return found

    def _report(self, found: DerivedChanges) -> None:
        report = self.report
        report.taken += found.taken
        report.duplicates += found.duplicates
        report.unknown_retractions += found.unknown_retractions
        report.derived += len(found.rows)
        report.rows_delta += found.rows_delta
        report.keys_in_several_partitions += found.moved_keys
        report.ambiguous_keys += found.ambiguous_keys
        named = [*report.doubtful_keys, *map(repr, found.doubtful)]
        report.doubtful_keys = named[:DOUBTFUL_KEYS_NAMED_MAX]

    def _find_due(self, view: Snapshot, changes: Sequence[KeyChange]) -> list[GroupTimer]:
        """Return timers of keys to forget, by the newest time among the changes."""
        now = max((change.time for change in changes if change.time is not None), default=None)
        if now is None:
            return []
        due = view.due(Clock.EVENT, now)[:LEFT_KEYS_FORGOTTEN_MAX]
        changed = {change.key for change in changes} if due else set()
        return [timer for timer in due if timer.key not in changed]

    def _forget(self, view: Snapshot, due: Sequence[GroupTimer]) -> list[tuple[Key, None]]:
        """Return the keys of due timers that still have no row; a timer may be an old one."""
        times = {timer.key: timer.time for timer in due}
        states = self._state_reader(view)(list(times))
        return [
            (key, None)
            for (key, time), state in zip(times.items(), states, strict=True)
            if state is not None and state.forget_at is not None and state.forget_at <= time
        ]

    def _state_reader(self, view: Snapshot) -> Callable[[Sequence[Key]], list[KeyState | None]]:
        def read_states(keys: Sequence[Key]) -> list[KeyState | None]:
            return [self._to_state(group) for group in view.groups(keys)]

        return read_states

    def _to_state(self, group: Group | None) -> KeyState | None:
        if group is None:
            return None
        if self.floats:  # use the canonical NaN, because another NaN would be another image
            group = msgspec.structs.replace(group, result=tuple(map(_to_canonical, group.result)))
        return to_state(group)

    def write(self) -> None:
        """Write the file of the new states."""
        task = self.task
        if self.states_written:
            table = self.layout.images.table(task.epoch, self.buckets, self.states_written)
            name = file_name(ROWS, task.epoch, task.uuid, self.writer)
            self.report.files.append(write_file(task.root, name, table, durable=task.durable))


def _to_canonical(value: Any) -> Any:
    return value if value == value else NAN
