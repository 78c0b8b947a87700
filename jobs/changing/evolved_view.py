"""The files of one view under another query: its state, and the changelog that leads there.

    old state, or the state of another view ──► KeptState ─────┐
    the shadow job's state ───────────────────► ReplayedState ─┴─► ViewWriter ──► files to commit

A view without results until now has no changelog before; all its results are +I. The files are
those of the view's root, so a job with one query is written alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import pyarrow as pa
from msgspec.structs import replace

from jobs.changing.clone import read_part, write_part
from jobs.changing.replayed_quarantine import SharedQuarantine, count_own, shared_tables
from jobs.changing.rewind import build_changelog
from jobs.core.aggregates import clock_of_timers
from jobs.core.fold.fold import ChangelogRow, FoldContext, fold
from jobs.core.fold.group_results import CLASS
from jobs.core.fold.program import Program
from jobs.core.fold.rules import Rules
from jobs.core.fold.state import Counts, Group, Key, MemoryState, Upserts
from jobs.core.job.evolution import GroupConverter, RowConverter
from jobs.core.job.window_rules import closing_of
from jobs.core.plan.tree import Plan
from jobs.core.time.due_work import DueWork
from jobs.core.values.change import Row
from jobs.core.values.order_key import encoder
from jobs.edge.process import aggregate_class  # noqa: F401 - that classes can be loaded
from jobs.edge.rows.columns import conform
from jobs.edge.state.bucket_states import StateFiles
from jobs.edge.table.epoch_files import TableLayout, layout_of
from jobs.edge.table.file_writer import AddedFile, EpochAttempt, FileWriter
from jobs.edge.table.reading import TableReader
from jobs.reading.epoch_rows import sum_audited
from jobs.reading.files import LiveFile, place_file
from jobs.reading.parts import (
    ACCUMULATORS,
    CHANGELOG,
    GROUP_STATE,
    LATE,
    MULTISETS,
    QUARANTINE,
    ROWS,
    TIMERS,
)
from jobs.reading.savepoints import RESTORED
from schemas.spec.job import JobSpec
from schemas.table.epoch import (
    REFUSED,
    REFUSED_BEFORE,
    DueWorkSnapshot,
    EpochRow,
    ViewShare,
    store_due_work,
)
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import naming, table_file
from schemas.table.view_path import SHARED

_WRITER = "evolve"  # in the names of files


@dataclass(frozen=True, slots=True)
class WrittenView:
    """The files that an evolve adds and removes for a view, and the view's entry in the row."""

    added: list[AddedFile]  # as files of the table, as are those below
    removed: list[LiveFile]
    changelog_rows: int
    share: ViewShare


class State(Protocol):
    """The state under the new query."""

    results: dict[Key, Row]  # of the new query; set by `write`
    parts: Collection[str]  # which it replaces
    at: EpochRow  # whose time it has
    refused: int  # messages in the shared quarantine on which its query fails; set by `write`
    carried: dict[str, int]  # counters of earlier epochs, for audits of a view without these
    below_zero: int  # groups in the state without a row; set by `write`

    def write(self, view: ViewWriter) -> list[AddedFile]: ...


class KeptState:
    """The state of a view of the job, converted to the new query bucket by bucket."""

    parts: Collection[str] = GROUP_STATE
    refused = 0

    def __init__(self, reader: TableReader, plan: Plan, sources: Sequence[int | None]) -> None:
        self.results: dict[Key, Row] = {}
        self.at = reader.newest
        self.below_zero = 0
        self.carried = sum_audited(reader.counted_epochs)
        self._reader = reader
        self._plan = plan
        self._sources = sources

    def write(self, view: ViewWriter) -> list[AddedFile]:
        reader, layout, epoch = self._reader, view.layout, view.attempt.epoch
        carried = GroupConverter(reader.layout.program, layout.program, self._sources)
        order = encoder(tuple(named.type for named in self._plan.group))
        work = self.at.time.due_work or DueWorkSnapshot()
        rules = Rules(drop_early=reader.spec.drops_early)
        context = FoldContext(order, rules, work.now, work.passed)
        state = StateFiles(reader.root, reader.layout, GROUP_STATE)
        named = [(file.part, file.path) for file in reader.files]
        with ExitStack() as open_files:
            writers = {part: open_files.enter_context(view.writer(part)) for part in GROUP_STATE}
            for bucket in range(reader.spec.state.buckets):
                upserts = state.of_bucket(bucket, named)
                groups, entries = _collapse(upserts)
                deltas = {
                    key: carried.delta(key, group, entries.get(key, {}))
                    for key, group in groups.items()
                }
                folded = fold(layout.program, MemoryState(), deltas, context)
                self.below_zero += folded.counters.below_zero_delta
                self.results.update((key, row) for _, key, row in folded.changelog)
                made = folded.upserts
                written = [
                    (key, group and _keep_times(group, groups[key])) for key, group in made.groups
                ]
                timers = [
                    each
                    for each in dict(upserts.timers).items()
                    if each[1] and each[0].namespace != CLASS
                ]
                timers += made.timers
                tables = {
                    ACCUMULATORS: layout.accumulators_table(
                        epoch, [bucket] * len(written), written
                    ),
                    MULTISETS: layout.multisets_table(
                        epoch, [bucket] * len(made.multisets), made.multisets
                    ),
                    TIMERS: layout.timers_table(epoch, [bucket] * len(timers), timers),
                }
                for part, table in tables.items():
                    if table.num_rows:
                        writers[part].write(table)
        return [writer.added for writer in writers.values() if writer.rows]


class ReplayedState:
    """The state of the shadow job, which has read the topic again.

    `shared` has what the views refused together; None: the shared quarantine is replaced.
    """

    parts: Collection[str] = RESTORED

    def __init__(self, shadow: TableReader, shared: SharedQuarantine | None = None) -> None:
        self.results: dict[Key, Row] = {}
        self.at = shadow.newest
        self.below_zero = shadow.newest.counts.groups_below_zero
        self.refused = 0
        self.carried = sum_audited(shadow.counted_epochs)
        self._shadow = shadow
        self._shared = shared

    def write(self, view: ViewWriter) -> list[AddedFile]:
        shadow = self._shadow
        self.results = shadow.results()
        name_of_view = shadow.paths.view
        self.refused = 0 if name_of_view else count_own(shadow)
        files: list[AddedFile] = []
        for part in RESTORED:
            mine = [file for file in shadow.files if file.part == part and not file.is_shared]
            if view.shares_parts and part in SHARED:
                mine = []
            tables = read_part(shadow.plan, shadow.root, part, mine)
            if part == QUARANTINE and self._shared is not None:
                tables = chain(tables, self._shared.list_new(name_of_view, shadow))
                if unknown := self._shared.count_unknown(shadow):
                    self.carried = {**self.carried, REFUSED_BEFORE: unknown}
            files += view.write_part(part, tables)
        return files


def write_shared(
    shadow: TableReader, plan: Plan, root: TablePath, attempt: EpochAttempt
) -> list[AddedFile]:
    """Write the quarantine and images that views of a shadow job share; `plan` is of all views."""
    images = read_part(plan, shadow.root, ROWS, shadow.of_part(ROWS))
    added: list[AddedFile] = []
    for part, tables in ((QUARANTINE, shared_tables(shadow)), (ROWS, images)):
        schema = layout_of(plan).schema(part)
        added += write_part(attempt, root, part, _WRITER, schema, tables)
    return added


def _collapse(upserts: Upserts) -> tuple[dict[Key, Group], dict[Key, dict[int, Any]]]:
    """Return the newest value of each group, and its present multiset entries."""
    groups = dict(upserts.groups)
    counts: dict[tuple[int, Key], Counts] = {}
    for argument, key, changed in upserts.multisets:
        counts.setdefault((argument, key), {}).update(changed)
    entries: dict[Key, dict[int, Any]] = {}
    for (argument, key), multiset in counts.items():
        present = [(value, count) for value, count in multiset.items() if count]
        entries.setdefault(key, {})[argument] = present
    return {key: group for key, group in groups.items() if group is not None}, entries


def _keep_times(group: Group, old: Group) -> Group:
    """Return the group with the write time and the timer of the old one's TTL."""
    if old.written is None:
        return group
    return replace(group, written=old.written, timer=old.timer)


class ViewWriter:
    """Writes a view under another query. With `begins`, its history starts with this epoch."""

    def __init__(
        self,
        root: TablePath,
        attempt: EpochAttempt,
        name: str,
        spec: JobSpec,
        plan: Plan,
        before: TableReader | None,  # None: the view has no results yet
        *,
        begins: bool,
        shares_parts: bool,
    ) -> None:
        """`shares_parts`: other views see the late rows and the quarantine of this one too."""
        self.attempt = attempt
        self._root = root
        self.layout = TableLayout(Program(plan))
        self.shares_parts = shares_parts
        self._name = name
        self._spec = spec
        self._plan = plan
        self._before = before
        self._begins = begins

    def write(self, state: State) -> WrittenView:
        """Write all files of the view; nothing of it is live before the commit."""
        before = self._before
        old = {} if before is None or self._begins else before.results()
        files = state.write(self)
        quarantined = state.refused
        if self._name:
            quarantined = sum(file.rows for file in files if file.part == QUARANTINE)
        # In a job with one query, all quarantined messages are counted already.
        counted_as = "quarantined" if self._name or self.shares_parts else REFUSED
        changelog, seqs = self._build_changelog(old, state.results)
        if changelog:
            rows = self.layout.changelog_table(self.attempt.epoch, seqs, changelog)
            files.append(self.attempt.write(self._root, CHANGELOG, _WRITER, rows))
        left = {*state.parts, CHANGELOG} if self._begins else set(state.parts)
        if self.shares_parts:
            left -= set(SHARED)
        known = [] if before is None else [file for file in before.files if not file.is_shared]
        removed = [file for file in known if file.part in left]
        older = {} if self._begins else self._rewrite_changelog(known)
        counters = {
            "groups": len(state.results),
            "changelog_rows": len(changelog),
            **({"begins": 1} if self._begins else {}),
            **({"groups_below_zero": state.below_zero} if state.below_zero else {}),
            **({counted_as: quarantined} if quarantined else {}),
            **(state.carried if before is None or LATE in state.parts else {}),
        }
        return WrittenView(
            [file.of_view(self._name) for file in (*files, *older.values())],
            [place_file(file, self._name) for file in (*removed, *older)],
            len(changelog),
            ViewShare(
                plan=self._plan.fingerprint,
                counters=counters,
                time=store_due_work(self._find_due_work(state.at)),
            ),
        )

    def _find_due_work(self, at: EpochRow) -> DueWorkSnapshot | None:
        """Return the due work of a state; a job without records has a state without any."""
        timers, before = clock_of_timers(self._plan), at.time.due_work
        if not at.fresh:  # the first timers of new classes are not known
            return replace(before, timers=None) if timers and before is not None else before
        closing, ttl_ms = closing_of(self._spec, self._plan), self._spec.state.ttl_ms
        batch = self._spec.minibatch
        return DueWork(batch, ttl_ms, None, fresh=True, closing=closing, timers=timers).snapshot()

    def writer(self, part: str) -> FileWriter:
        return self.attempt.open(self._root, part, _WRITER, self.layout.schema(part))

    def write_part(self, part: str, tables: Iterable[pa.Table]) -> list[AddedFile]:
        schema = self.layout.schema(part)
        return write_part(self.attempt, self._root, part, _WRITER, schema, tables)

    def _build_changelog(
        self, before: Mapping[Key, Row], after: Mapping[Key, Row]
    ) -> tuple[list[ChangelogRow], list[int]]:
        """Return the changelog rows from the old results to the new ones, with their seqs."""
        then: dict[Key, Row] = {}
        if self._before is not None:
            reshaped = RowConverter(self._before.plan, self._plan)
            then = {key: reshaped.row(row) for key, row in before.items()}
        return build_changelog(self._plan, self._spec.state.buckets, then, after)

    def _rewrite_changelog(self, known: Sequence[LiveFile]) -> dict[LiveFile, AddedFile]:
        """Rewrite older changelog files with the new columns; none if the columns are the same."""
        if self._before is None:
            return {}
        old, new = (layout.schema(CHANGELOG) for layout in (self._before.layout, self.layout))
        if old == new:
            return {}
        found: dict[LiveFile, AddedFile] = {}
        for number, file in enumerate(f for f in known if f.part == CHANGELOG):
            path = self._root / file.path
            rows = table_file(path)
            name = f"{_WRITER}-{number}"
            with self.attempt.open(self._root, CHANGELOG, name, new) as writer:
                for group in range(rows.num_row_groups):
                    with naming(path):
                        piece = rows.read_row_group(group)
                    writer.write(conform(piece, new))
            found[file] = writer.added
        return found
