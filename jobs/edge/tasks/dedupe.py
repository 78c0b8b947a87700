"""The dedupe task: turn the changes of keys into the changes that the query folds.

    images, by primary key ─┬─ bucket 3 ─► states at base ─► derived ─┬─► for each view: evaluated,
                            └─ bucket 7 ─► ...                        │   to its fold tasks
                                                                      └─► the part `rows`
    TRUNCATEs, to each bucket ─┘      all states, in parts ─┘
    reports of the ranges ──────────────────────────────────────────────► unchanged

The task runs between decoding and the fold, for jobs with `dedupe` only. Like the fold task it
reads its state at a base and writes only new files. It does not change the state: the next task
that needs a bucket applies the committed epochs. It forgets keys that were left long ago, by the
time of the source.

All views of a job share the images, which have the columns that any of them reads. A view gets no
change of an image that is the same in its columns, as in a job of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise, repeat
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from jobs.core.fold.state import Clock, Group, GroupTimer, Stamp
from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import Integers, WeightedRows
from jobs.core.rows.dedupe import (
    NO_TRUNCATIONS,
    DerivedChanges,
    Key,
    KeyChange,
    derive_changes,
    fingerprint_of,
    key_reader,
    truncate,
)
from jobs.core.rows.key_history import KeyState
from jobs.core.rows.truncations import Truncation, Truncations
from jobs.core.values.change import Row
from jobs.core.values.float_values import NAN
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.columns import to_arrow
from jobs.edge.rows.evaluated_rows import evaluate_rows
from jobs.edge.rows.image_rows import to_state, to_upserts
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import (
    CHANGE_PARTITION,
    CHANGE_TIME,
    POSITION,
    REPORT,
    ROW_BUCKET,
    WEIGHT,
    report_parcel,
    take_batches,
    unpack_parcels,
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
from jobs.edge.tasks.decode_views import ViewInputs
from jobs.table.parts import ROWS
from schemas.limits import (
    DOUBTFUL_KEYS_NAMED_MAX,
    HOT_STATE_CHUNK_RECORDS,
    LEFT_KEYS_FORGOTTEN_MAX,
    LEFT_KEYS_MAX,
    TASK_BYTES_MAX,
    TRUNCATED_KEYS_AT_ONCE,
)
from schemas.table.object_path import TablePath
from schemas.types.arrow_values import from_arrow, to_list

_decode_truncations = msgspec.json.Decoder(list[Truncation]).decode


class DedupeReport(msgspec.Struct, kw_only=True, tag="dedupe"):
    """The report of one dedupe task."""

    task: int
    taken: int = 0  # signed rows
    too_large: bool = False  # the input has more bytes than a task may hold; nothing was done
    duplicates: int = 0
    unknown_retractions: int = 0
    derived: list[int] = []  # emitted rows for each view
    rows_delta: int = 0  # change of the number of images
    keys_in_several_partitions: int = 0
    ambiguous_keys: int = 0
    doubtful_keys: list[str] = []  # some of both
    newest_ms: int | None = None  # the newest time of a change
    files: list[AddedFile] = []


@dataclass(frozen=True, slots=True)
class DedupeTask:
    """The function of the stage; a value, so that Spark can send it to the workers."""

    plan: Plan  # has the columns of all views
    root: TablePath
    cache: Path
    epoch: int
    uuid: str
    base: Stamp
    version: int  # of the table, at base
    recent_epochs: tuple[CommittedEpoch, ...]  # in order, base last
    views: tuple[ViewInputs, ...]
    truncations: Truncations = NO_TRUNCATIONS  # of earlier epochs
    durable: bool = False
    bytes_max: int = TASK_BYTES_MAX

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task_body():
            yield from self.dedupe_parcels(batches)

    def dedupe_parcels(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the parcels for the fold tasks, and the reports."""
        failpoint("dedupe_task")
        found = take_batches(batches, self.bytes_max)
        if found is None:
            yield report_parcel(msgspec.json.encode(DedupeReport(task=-1, too_large=True)))
        if not found:
            return
        table = pa.Table.from_batches(found)
        for payload in to_list(table[REPORT].drop_null()):
            yield report_parcel(payload)
        images = unpack_parcels(table)
        if not images.num_rows:
            return
        is_row = images[REPORT].is_null()
        sent = images.filter(pc.invert(is_row)).select([ROW_BUCKET, REPORT])
        run = _Dedupe(self, _find_truncations(sent))
        for changes in run.run(images.filter(is_row)):
            if changes.rows:
                yield from self._evaluate(changes, run.report)
        run.finish()
        yield report_parcel(msgspec.json.encode(run.report))

    def _evaluate(self, found: DerivedChanges, report: DedupeReport) -> Iterator[pa.RecordBatch]:
        """Yield derived rows as parcels for the fold tasks of each view."""
        columns = zip(*found.rows, strict=True) if self.plan.used else ()
        arrays = [
            to_arrow(values, column.type)
            for values, column in zip(columns, self.plan.used, strict=True)
        ]
        positions, weights = np.array(found.positions, np.int64), np.array(found.weights, np.int64)
        rows = RangeRows(arrays, weights)
        for view in self.views:
            own = rows.select(view.indexes)
            changed = _find_changed(own, positions)
            report.derived[view.number] += len(changed)
            weighted = WeightedRows(changed, positions[changed], weights[changed])
            evaluated = evaluate_rows(view.plan, own, weighted)
            evaluated.require_no_failures()
            yield from view.parcelling.parcels(evaluated.rows, evaluated.weighted)


class _Dedupe:
    """One run of a dedupe task over its buckets."""

    def __init__(self, task: DedupeTask, new: Mapping[int, Sequence[Truncation]]) -> None:
        plan = task.plan
        context = TaskContext.get()
        self.task = task
        self.new = new  # TRUNCATEs of the epoch, by bucket
        self.writer = f"d{context.taskAttemptId() if context else 0}"
        number = context.partitionId() if context else 0
        self.report = DedupeReport(task=number, derived=[0] * len(task.views))
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
        of_buckets: dict[int, Sequence[KeyChange]] = dict.fromkeys(self.new, ())
        edges = np.flatnonzero(np.diff(buckets)) + 1
        for start, end in pairwise([0, *edges.tolist(), len(changes)] if changes else ()):
            of_buckets[int(buckets[start])] = changes[start:end]
        for bucket in sorted(of_buckets):  # readers of a file expect the buckets in order
            yield from self._dedupe(bucket, of_buckets[bucket])

    def _read_images(self, rows: pa.Table) -> list[Row]:
        columns = [from_arrow(rows[column.name], column.type) for column in self.task.plan.image]
        return list(zip(*columns, strict=True))

    def _dedupe(self, bucket: int, changes: Sequence[KeyChange]) -> Iterator[DerivedChanges]:
        task = self.task
        truncations = task.truncations.add(self.new.get(bucket, ()))
        common = len(task.plan.used), fingerprint_of(task.plan), truncations
        state = self.states.catch_up(bucket)
        written: list[tuple[Key, KeyState | None]] = []
        with state.view(task.base) as view:
            parts: Iterable[DerivedChanges] = [
                derive_changes(changes, self._state_reader(view), *common)
            ]
            if truncations.new:
                others = self._walk(view, {change.key for change in changes})
                parts = chain(parts, (truncate(states, *common) for states in others))
            for found in parts:
                written += found.states
                self._report(found)
                yield found
            due = self._find_due(view, changes)
            written += self._forget(view, due)
            upserts = to_upserts(written)
            upserts.timers += [(timer, False) for timer in due]
            state.remember(task.epoch, task.uuid, upserts, view)
        self.states_written += written
        self.buckets += repeat(bucket, len(written))
        if len(self.states_written) >= HOT_STATE_CHUNK_RECORDS:
            self._write()

    def _walk(self, view: Snapshot, changed: Collection[Key]) -> Iterator[dict[Key, KeyState]]:
        """Yield the states of all other keys that have a row, in parts."""
        states = (self._to_state(group) for group in view.walk())
        keyed = ((self.key_of(each.image), each) for each in states if each and each.image)
        others = ((key, state) for key, state in keyed if key not in changed)
        while part := dict(islice(others, TRUNCATED_KEYS_AT_ONCE)):
            yield part

    def _report(self, found: DerivedChanges) -> None:
        report = self.report
        report.taken += found.taken
        report.duplicates += found.duplicates
        report.unknown_retractions += found.unknown_retractions
        report.rows_delta += found.rows_delta
        report.keys_in_several_partitions += found.moved_keys
        self._name_doubtful(found.ambiguous_keys, found.doubtful)

    def _name_doubtful(self, ambiguous: int, keys: Iterable[Key]) -> None:
        self.report.ambiguous_keys += ambiguous
        named = chain(self.report.doubtful_keys, map(repr, keys))
        self.report.doubtful_keys = list(islice(named, DOUBTFUL_KEYS_NAMED_MAX))

    def _find_due(self, view: Snapshot, changes: Sequence[KeyChange]) -> list[GroupTimer]:
        """Return timers of keys to forget, by the newest time among the changes.

        If the bucket remembers too many, the first to be forgotten are so at once.
        """
        now = max((change.time for change in changes if change.time is not None), default=None)
        if now is None:
            return []
        self.report.newest_ms = max(now, self.report.newest_ms or now)
        surplus = max(0, view.count_timers() - LEFT_KEYS_MAX)
        due = list(islice(view.timers(Clock.EVENT), surplus))
        if not due or due[-1].time <= now:
            due = view.due(Clock.EVENT, now)[: max(surplus, LEFT_KEYS_FORGOTTEN_MAX)]
        changed = {change.key for change in changes} if due else set()
        return [timer for timer in due if timer.key not in changed]

    def _forget(self, view: Snapshot, due: Sequence[GroupTimer]) -> list[tuple[Key, None]]:
        """Return the keys of due timers that still have no row; a timer may be an old one."""
        times = {timer.key: timer.time for timer in due}
        states = self._state_reader(view)(list(times))
        gone = [
            key
            for (key, time), state in zip(times.items(), states, strict=True)
            if state is not None and state.forget_at is not None and state.forget_at <= time
        ]
        early = [key for key in gone if times[key] > (self.report.newest_ms or 0)]
        self._name_doubtful(len(early), early)
        return [(key, None) for key in gone]

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

    def finish(self) -> None:
        """Write the last of the new states."""
        if self.states_written:
            self._write()

    def _write(self) -> None:
        """Write a file of the new states until now."""
        task, number = self.task, len(self.report.files)
        table = self.layout.images.table(task.epoch, self.buckets, self.states_written)
        writer = f"{self.writer}-{number}" if number else self.writer
        name = file_name(ROWS, task.epoch, task.uuid, writer)
        self.report.files.append(write_file(task.root, name, table, durable=task.durable))
        self.states_written, self.buckets = [], []


def _find_changed(rows: RangeRows, positions: Integers) -> Integers:
    """Return the derived rows that change something in these columns.

    The old and the new image of a key follow each other and have the position of one change."""
    numbers = rows.number()
    same = np.flatnonzero((positions[:-1] == ~positions[1:]) & (numbers[:-1] == numbers[1:]))
    return np.delete(np.arange(len(positions)), np.concatenate([same, same + 1]))


def _find_truncations(sent: pa.Table) -> dict[int, list[Truncation]]:
    """Return the TRUNCATEs that were sent to each bucket."""
    found: dict[int, list[Truncation]] = {}
    for bucket, payload in zip(*(to_list(column) for column in sent.columns), strict=True):
        found.setdefault(bucket, []).extend(_decode_truncations(payload))
    return found


def _to_canonical(value: Any) -> Any:
    return value if value == value else NAN
