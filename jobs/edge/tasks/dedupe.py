"""The dedupe task: turn the changes of keys into the changes that the query folds.

    images, by primary key ─┬─ bucket 3 ─► states ─┬─► derived ─┬─► for each view: evaluated,
                            └─ bucket 7 ─► states ─┘            │   to its fold tasks
                                                                └─► the part `rows`
    TRUNCATEs, to each bucket ─► all states, in parts ─┘
    reports of the ranges ────────────────────────────────────────► unchanged

The task runs between decoding and the fold, for jobs with `dedupe` only. Like the fold task it
reads its state at a base and writes only new files. It does not change the state: the next task
that needs a bucket applies the committed epochs. It forgets keys that were left long ago, by the
time of the source.

Changes of keys that are plain (`plain_keys`), which nearly all are, are derived by columns; those
of other keys one by one, by their history.

All views of a job share the images, which have the columns that any of them reads. A view gets no
change of an image that is the same in its columns, as in a job of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise

import lmdb
import msgspec
import numpy as np
import pyarrow as pa

from jobs.core.fold.state import Clock, GroupTimer
from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import Booleans, Integers, WeightedRows
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
from jobs.core.rows.plain_keys import ChangeArrays, KeySummaries, PlainKeys, derive_plain
from jobs.core.rows.truncations import Truncations
from jobs.edge.process.failpoints import failpoint
from jobs.edge.rows.evaluated_rows import evaluate_rows
from jobs.edge.rows.packed_rows import canonical
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.rows.weighted_rows import (
    CHANGE_PARTITION,
    CHANGE_TIME,
    POSITION,
    ROW_BUCKET,
    WEIGHT,
    Parcel,
    image_schema,
    report_parcel,
    take_parcels,
    unpack_parcels,
)
from jobs.edge.state.bucket_states import CommittedState
from jobs.edge.state.hot_records import Snapshot
from jobs.edge.state.hot_state import HotState
from jobs.edge.state.image_states import ImageStates, KnownImages
from jobs.edge.table.epoch_files import layout_of
from jobs.edge.table.file_writer import AddedFile, EpochAttempt
from jobs.edge.tasks.body import TaskReport, name_writer
from jobs.edge.tasks.decode_inputs import ViewInputs
from jobs.edge.tasks.deduped_rows import (
    Bucket,
    Derived,
    find_buckets,
    find_changed,
    find_truncations,
)
from jobs.reading.parts import ROWS
from schemas.limits import (
    DOUBTFUL_KEYS_NAMED_MAX,
    HOT_STATE_CHUNK_RECORDS,
    KEY_CHANGES_AT_ONCE,
    LEFT_KEYS_FORGOTTEN_MAX,
    LEFT_KEYS_MAX,
    TRUNCATED_KEYS_AT_ONCE,
)
from schemas.types.arrow_values import from_arrow, one_chunk, rows_to_arrow, to_list

Parcels = Iterator[Parcel]
Written = tuple[Key, KeyState | None]  # a new state
_FACTS = POSITION, WEIGHT, CHANGE_TIME, CHANGE_PARTITION  # of each change, beside its image
_NOWHERE = -1  # no number of a partition


class DedupeReport(TaskReport, msgspec.Struct, kw_only=True, tag="dedupe"):
    taken: int = 0  # signed rows
    duplicates: int = 0
    unknown_retractions: int = 0
    source: str = ""  # its name, if the job has several
    derived: dict[int, int] = {}  # emitted rows, by the number of who reads them
    rows_delta: int = 0  # change of the number of images
    keys_in_several_partitions: int = 0
    ambiguous_keys: int = 0
    doubtful_keys: list[str] = []  # some of both
    newest_ms: int | None = None  # the newest time of a change
    files: list[AddedFile] = []


@dataclass(frozen=True, slots=True)
class DedupeTask:
    """A task between decoding and the fold; a value, so that Spark can send it to the workers."""

    plan: Plan  # has the columns of all views
    committed: CommittedState
    attempt: EpochAttempt
    views: tuple[ViewInputs, ...]
    number: int  # of this task among the readers of parcels
    truncations: Truncations = NO_TRUNCATIONS  # of earlier epochs

    def run(self, given: Parcels) -> Parcels:
        """Yield the parcels for the fold tasks, and the reports."""
        failpoint("dedupe_task")
        parcels = take_parcels(given, self.attempt.bytes_max)
        if parcels is None:
            yield report_parcel(msgspec.json.encode(DedupeReport(too_large=True)))
            return
        own, truncations = (parcels.pop(key, ()) for key in (self.number, ~self.number))
        yield from chain.from_iterable(parcels.values())
        if not own and not truncations:
            return
        images = unpack_parcels(own) if own else image_schema(self.plan.image).empty_table()
        run = _Dedupe(self, images, truncations)
        yield from run.run()
        yield report_parcel(msgspec.json.encode(run.report))


class _Dedupe:
    """One run of a dedupe task over its buckets."""

    def __init__(self, task: DedupeTask, rows: pa.Table, sent: Iterable[Parcel]) -> None:
        plan = task.plan
        self.task = task
        self.writer = name_writer("d")
        derived = {view.number: 0 for view in task.views}
        self.report = DedupeReport(source=task.plan.source, derived=derived)
        self.layout = layout_of(plan)
        self.states = ImageStates(task.committed, plan, self.layout)
        truncated, new = find_truncations(sent)
        self.truncations = task.truncations.add(new)
        self.common = len(plan.used), fingerprint_of(plan), self.truncations
        rows = rows.take(pa.array(np.argsort(rows[ROW_BUCKET].to_numpy(), kind="stable")))
        self.images = [canonical(rows[column.name]) for column in plan.image]
        self.facts = [one_chunk(rows[name]) for name in _FACTS]
        self.buckets = find_buckets(rows[ROW_BUCKET].to_numpy(), truncated)
        self.tables: list[pa.Table] = []  # new states, by bucket

    def run(self) -> Parcels:
        """Yield the parcels of the rows that the changes derive, some buckets together."""
        together: list[Bucket] = []
        for bucket in self.buckets:  # readers of a file expect the buckets in order
            together.append(bucket)
            if bucket.end - together[0].start >= KEY_CHANGES_AT_ONCE:
                yield from _Keys(self, together).run()
                together = []
        if together:
            yield from _Keys(self, together).run()
        self.write()
        self.report.caught_up = self.states.files.rows_read

    def evaluate(self, derived: Derived) -> Parcels:
        """Yield derived rows as parcels for the fold tasks of each view."""
        at, report = derived.positions, self.report
        rows = RangeRows(derived.columns, derived.weights)
        for view in self.task.views if len(at) else ():
            own = rows.select(view.indexes)
            changed = find_changed(own, at)
            report.derived[view.number] += len(changed)
            weighted = WeightedRows(changed, at[changed], derived.weights[changed])
            evaluated = evaluate_rows(view.plan, own, weighted)
            evaluated.require_no_failures()
            yield from view.parcelling.parcels(evaluated.rows, evaluated.weighted)

    def take(self, found: DerivedChanges) -> Derived:
        """Count what was derived key by key, and return its rows."""
        report = self.report
        report.taken += found.taken
        report.duplicates += found.duplicates
        report.unknown_retractions += found.unknown_retractions
        report.rows_delta += found.rows_delta
        report.keys_in_several_partitions += found.moved_keys
        self.name_doubtful(found.ambiguous_keys, found.doubtful)
        columns = rows_to_arrow(found.rows, [column.type for column in self.task.plan.used])
        numbers = (np.array(each, np.int64) for each in (found.positions, found.weights))
        return Derived(columns, *numbers)

    def name_doubtful(self, ambiguous: int, keys: Iterable[Key]) -> None:
        self.report.ambiguous_keys += ambiguous
        named = chain(self.report.doubtful_keys, map(repr, keys))
        self.report.doubtful_keys = list(islice(named, DOUBTFUL_KEYS_NAMED_MAX))

    def find_due(self, view: Snapshot, now: int) -> list[GroupTimer]:
        """Return timers of keys to forget; `now` is the newest time among the bucket's changes.

        If the bucket remembers too many, the first to be forgotten are so at once.
        """
        self.report.newest_ms = max(now, self.report.newest_ms or now)
        surplus = max(0, view.count_timers() - LEFT_KEYS_MAX)
        due = list(islice(view.timers(Clock.EVENT), surplus))
        if not due or due[-1].time <= now:
            due = view.due(Clock.EVENT, now)[: max(surplus, LEFT_KEYS_FORGOTTEN_MAX)]
        return due

    def forget(self, view: Snapshot, due: Sequence[GroupTimer]) -> list[Written]:
        """Return the keys of due timers that still have no row; a timer may be an old one."""
        if not due:
            return []
        times = {timer.key: timer.time for timer in due}
        states = self.states.records.read_states(
            view.records(self.states.records.names_of_keys([*times]))
        )
        gone = [
            key
            for (key, time), state in zip(times.items(), states, strict=True)
            if state is not None and state.forget_at is not None and state.forget_at <= time
        ]
        early = [key for key in gone if times[key] > (self.report.newest_ms or 0)]
        self.name_doubtful(len(early), early)
        return [(key, None) for key in gone]

    def add(self, table: pa.Table) -> None:
        """Add new states to the next file, which is written when it has enough of them."""
        self.tables.append(table)
        if sum(each.num_rows for each in self.tables) >= HOT_STATE_CHUNK_RECORDS:
            self.write()

    def write(self) -> None:
        """Write a file of the new states until now."""
        task, number = self.task, len(self.report.files)
        if self.tables:
            writer = f"{self.writer}-{number}" if number else self.writer
            root, table = task.committed.root, pa.concat_tables(self.tables)
            self.report.files.append(task.attempt.write(root, ROWS, writer, table))
        self.tables = []


class _Keys:
    """The keys of some buckets, from their changes to their new states."""

    def __init__(self, run: _Dedupe, buckets: Sequence[Bucket]) -> None:
        start, end = buckets[0].start, buckets[-1].end
        self.of = run
        self.task = run.task
        self.buckets = buckets
        self.images = [column.slice(start, end - start) for column in run.images]
        self.facts = [column.slice(start, end - start) for column in run.facts]
        self.records = run.states.records
        names = self.records.names_of(self.images)
        numbered: dict[bytes, int] = {}
        numbers: list[int] = []  # of the key of each change
        self.edges = [0]  # between the numbers of the keys of each bucket
        for bucket in buckets:
            for name in names[bucket.start - start : bucket.end - start]:
                numbers.append(numbered.setdefault(name, len(numbered)))
            self.edges.append(len(numbered))
        self.names = list(numbered)  # of each key in the hot state
        positions, summaries, times, partitions = self.facts
        self.changes = ChangeArrays(
            np.array(numbers, np.int64),
            positions.to_numpy(),
            summaries.to_numpy(),
            times.is_valid().to_numpy(zero_copy_only=False),
            times.fill_null(0).to_numpy(),
            partitions.fill_null(_NOWHERE).to_numpy(),
        )
        self.stored: list[bytes | None] = []  # the record of each key
        self.states: list[HotState] = []
        # Of each bucket, but plain keys only in records.
        self.due: list[list[GroupTimer]] = []
        self.written: list[list[Written]] = []

    def run(self) -> Parcels:
        """Yield parcels of what follows from the changes; store the new states."""
        for bucket in self.buckets:
            yield from self._read(bucket)
        known = self._read_images()
        keys = KeySummaries.of(self.changes, self.of.truncations)
        after = self._states_after(keys, known)
        packed = self.records.pack(after)
        found = derive_plain(keys, *self._compare(keys, known, packed))
        derived = self._rows_of_plain(keys, known, found)
        if not found.plain.all():
            others = self._derive_others(found.plain, known)
            columns = map(pa.concat_arrays, zip(derived.columns, others.columns, strict=True))
            pairs = zip(derived[1:], others[1:], strict=True)
            derived = Derived(list(columns), *map(np.concatenate, pairs))
        yield from self.of.evaluate(derived)
        report = self.of.report
        report.taken += int(keys.rows[found.plain].sum())
        report.duplicates += found.duplicates
        report.unknown_retractions += found.unknown_retractions
        report.rows_delta += int(found.new.sum()) - int(found.old.sum())
        self._store(np.flatnonzero(found.changed), keys.removed, after, packed)

    def _read(self, bucket: Bucket) -> Parcels:
        """Read the states of a bucket's keys; yield what new TRUNCATEs change in other keys."""
        number = len(self.states)
        start = self.buckets[0].start
        rows = slice(bucket.start - start, bucket.end - start)
        state = self.of.states.catch_up(bucket.number)
        self.states.append(state)
        written: list[Written] = []
        due: list[GroupTimer] = []
        with state.view(self.task.committed.base) as view:
            self.stored += view.records(self.names[self.edges[number] : self.edges[number + 1]])
            if self.of.truncations.new:
                for others in self._walk(view, self._find_keys(rows)):
                    found = truncate(others, *self.of.common)
                    written += found.states
                    yield from self.of.evaluate(self.of.take(found))
            timed = self.changes.timed[rows]
            if timed.any():
                now = int(self.changes.times[rows][timed].max())
                due = self.of.find_due(view, now)
                changed = self._find_keys(rows) if due else ()
                due = [timer for timer in due if timer.key not in changed]
                written += self.of.forget(view, due)
        self.due.append(due)
        self.written.append(written)

    def _find_keys(self, rows: slice) -> Collection[Key]:
        """Return the keys of some changes."""
        return set(self.records.keys_of([column[rows] for column in self.images]))

    def _read_images(self) -> KnownImages:
        """Return what is known of the keys; delete a damaged state, and raise HotStateDamaged."""
        try:
            return self.records.read_images(self.stored)
        except lmdb.CorruptedError:
            for state, edges in zip(self.states, pairwise(self.edges), strict=True):
                with state.view():
                    self.records.read_images(self.stored[slice(*edges)])
            raise

    def _walk(self, view: Snapshot, changed: Collection[Key]) -> Iterator[dict[Key, KeyState]]:
        """Yield the states of all other keys that have a row, in parts."""
        records, key_of = view.walk(), key_reader(self.task.plan)
        while part := list(islice(records, TRUNCATED_KEYS_AT_ONCE)):
            states = self.records.read_states(part)
            keyed = ((key_of(each.image), each) for each in states if each and each.image)
            yield {key: state for key, state in keyed if key not in changed}

    def _states_after(self, keys: KeySummaries, known: KnownImages) -> list[pa.Array]:
        """Return time, partition and image of each key after its last change."""
        last = pa.array(keys.last)
        before = np.zeros(len(keys.last), np.int64)
        before[known.is_row] = known.times.fill_null(0).to_numpy()
        timed, times = self.changes.timed[keys.last], self.changes.times[keys.last]
        times = pa.array(np.where(timed, times, before))
        return [times, *(column.take(last) for column in (self.facts[-1], *self.images))]

    def _compare(
        self, keys: KeySummaries, known: KnownImages, packed: Sequence[bytes]
    ) -> tuple[Booleans, ...]:
        """Return what `derive_plain` asks of each key's state and its last change."""
        partitions = np.full(len(packed), _NOWHERE)
        partitions[known.is_row] = known.partitions.fill_null(_NOWHERE).to_numpy()
        same_partition = partitions == self.changes.partitions[keys.last]
        is_unknown = np.array([record is None for record in known.records], np.bool_)
        same_image = np.array(list(map(self.records.same_image, known.records, packed)), np.bool_)
        return known.is_row, is_unknown, same_partition, same_image

    def _rows_of_plain(self, keys: KeySummaries, known: KnownImages, found: PlainKeys) -> Derived:
        """Return the rows that plain keys retract and add, those of a key after each other."""
        last, of_known = keys.last, np.cumsum(known.is_row) - 1
        is_there = np.stack([found.old, found.new], axis=1).ravel()
        row = np.stack([of_known, len(known.times) + last], axis=1).ravel()[is_there]
        at = self.changes.positions[last]
        taken = pa.array(row)
        columns = [
            pa.concat_arrays([before, after]).take(taken)
            for before, after, _ in zip(
                known.images, self.images, self.task.plan.used, strict=False
            )
        ]
        positions = np.stack([~at, at], axis=1).ravel()[is_there]
        return Derived(columns, positions, np.tile([-1, 1], len(at))[is_there])

    def _derive_others(self, plain: Booleans, known: KnownImages) -> Derived:
        rows = np.flatnonzero(~plain[self.changes.keys])
        numbers = self.changes.keys[rows]
        taken = pa.array(rows)
        columns = [column.take(taken) for column in self.images]
        types = [column.type for column in self.task.plan.image]
        images = zip(*map(from_arrow, columns, types), strict=True)
        facts = (to_list(column.take(taken)) for column in self.facts)
        keys = self.records.keys_of(columns)
        changes = list(map(KeyChange, keys, images, *facts))
        number_of = dict(zip(keys, numbers.tolist(), strict=True))
        states = self.records.read_states([known.records[each] for each in number_of.values()])
        before = dict(zip(number_of, states, strict=True))
        found = derive_changes(
            changes, lambda wanted: [before[key] for key in wanted], *self.of.common
        )
        for key, state in found.states:
            bucket = bisect_right(self.edges, number_of[key]) - 1
            self.written[bucket].append((key, state))
        return self.of.take(found)

    def _store(
        self, plain: Integers, removed: Booleans, after: Sequence[pa.Array], packed: Sequence[bytes]
    ) -> None:
        """Remember the new states on this host, and add them to the file of the part."""
        attempt, layout = self.task.attempt, self.of.layout.images
        edges = np.searchsorted(plain, self.edges).tolist()
        sizes = [end - start for start, end in pairwise(edges)]
        for number, state in enumerate(self.states):
            records = self.records.encode(self.written[number], self.due[number])
            for at in plain[edges[number] : edges[number + 1]].tolist():
                records.groups[self.names[at]] = None if removed[at] else packed[at]
            state.remember(attempt.epoch, attempt.uuid, records)
        of_buckets = np.array([bucket.number for bucket in self.buckets])
        taken = pa.array(plain)
        table = layout.table_of_rows(
            attempt.epoch,
            np.repeat(of_buckets, sizes),
            removed[plain],
            [column.take(taken) for column in after],
        )
        others = list(chain.from_iterable(self.written))
        if others:
            buckets = np.repeat(of_buckets, list(map(len, self.written))).tolist()
            table = pa.concat_tables([table, layout.table(attempt.epoch, buckets, others)])
            table = table.take(pa.array(np.argsort(table["bucket"].to_numpy(), kind="stable")))
        if table.num_rows:
            self.of.add(table)
