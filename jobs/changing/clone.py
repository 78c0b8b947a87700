"""Clone: create a job with the state of another, at its newest epoch or at an earlier one.

    epoch N of the old job ──► epoch 0 of the new one   the same start, with the same first offsets
                          └──► epoch 1, kind "clone"    state and offsets of N, every result as +I

The new job's changelog is complete, and its audit starts at the same offsets as that of the old
job. It does not depend on the old job, which may run, change or be deleted. The clone is built
beside its table's path and moved there in one step, under the new job's writer lock. So a killed
clone has created no job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from uuid import uuid4

import msgspec
import pyarrow as pa

from jobs.changing.rewind import build_changelog, find_target
from jobs.changing.savepoint import create_savepoint
from jobs.changing.stopped_job import find_obstacle, unite_counters
from jobs.core.job.cloning import clone_problems
from jobs.core.job.views import JobInputs, fingerprints_of, reading_plan
from jobs.core.plan.tree import Plan
from jobs.edge.process.failpoints import failpoint
from jobs.edge.process.fence import WriterLock
from jobs.edge.rows.columns import conform
from jobs.edge.table import pins
from jobs.edge.table.compaction import current_rows
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import layout_of
from jobs.edge.table.file_writer import AddedFile, EpochAttempt, FileWriter, by_part
from jobs.edge.table.job_specs import write_specs
from jobs.edge.table.reading import TableReader, open_views
from jobs.edge.table.table_location import prepare_new_table
from jobs.reading.epoch_rows import counted_rows, describe_missing_start, sum_audited
from jobs.reading.files import LiveFile, files_of_view, own_files
from jobs.reading.parts import CHANGELOG, STATE
from jobs.reading.savepoints import RESTORED, Savepoint, write_savepoint
from jobs.running.job_table import list_layouts, make_start_row, unite_schemas
from schemas.directory.paths import JobDirectory
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import REFUSED_BEFORE, EpochRow
from schemas.table.object_path import ObjectPath, TablePath
from schemas.table.parquet_file import rows_in
from schemas.table.view_path import split_root, view_root
from schemas.types.moments import now_ms

_EPOCH = 1


class CannotClone(Exception):
    """The job cannot be cloned; nothing was created."""


def clone(
    paths: JobDirectory,
    new: JobDirectory,
    spec: JobSpec,
    to: str | None,
    tables: ObjectPath | None = None,
) -> EpochRow:
    """Create the job `new` from a job's newest epoch, or from a savepoint or epoch in `to`.

    Its table is below `tables`, or in the data directory.
    """
    with WriterLock(new.lock, new.name):
        if new.has_table:
            raise CannotClone(f"job {new.name!r} exists already; choose another name")
        with _pin_epoch(paths, to) as target:
            views = open_views(paths)
            _check(paths, target, spec, views)
            beside = None if tables is None else tables / new.name
            return _build_clone(views, target, new, spec, beside)


@contextmanager
def _pin_epoch(paths: JobDirectory, to: str | None) -> Iterator[Savepoint]:
    """Yield the epoch to clone; its files are pinned until the clone has read them."""
    pins.delete_dead_pins(paths.home)
    name = f"clone-{uuid4().hex[:12]}"
    with pins.hold_pin(paths.home, name):
        if to is None:
            target = create_savepoint(paths, name)
        else:
            found = find_target(paths, to)
            target = msgspec.structs.replace(found, name=name)
            write_savepoint(paths.home, target)
        failpoint("clone_pinned")
        yield target


def _check(
    paths: JobDirectory, target: Savepoint, spec: JobSpec, views: Mapping[str, TableReader]
) -> None:
    of = load_spec(paths.spec)
    wrong = clone_problems(spec, of)
    if wrong:
        raise CannotClone("; ".join(f"{key} {reason}" for key, reason in wrong.items()))
    if obstacle := find_obstacle(paths, target, fingerprints_of(of), views):
        raise CannotClone(obstacle)


def _build_clone(
    views: Mapping[str, TableReader],
    target: Savepoint,
    new: JobDirectory,
    spec: JobSpec,
    beside: ObjectPath | None,
) -> EpochRow:
    plans = {name: reader.plan for name, reader in views.items()}
    kept = {name: plan for name, plan in JobInputs.of(spec, plans).states.items() if name}
    layouts = list_layouts(spec, plans)
    of_job = next(iter(views.values()))
    first = of_job.start
    if first is None:
        raise CannotClone(describe_missing_start(of_job.paths.name))
    building = prepare_new_table(new, beside)
    table = EpochTable.create(building.table, layouts[0], unite_schemas(layouts))
    at = target.row
    start = make_start_row(spec, at.plan, at.plans, first.offsets, first.topics)
    table.commit_epoch(start, (), durable=spec.durable)
    row = _commit_copy(views, kept, target, table, start, durable=spec.durable)
    write_specs(spec, new, building.table)
    failpoint("before_clone")
    building.activate()
    return row


def _commit_copy(
    views: Mapping[str, TableReader],
    kept: Mapping[str, Plan],  # the state that belongs to no view
    target: Savepoint,
    table: EpochTable,
    start: EpochRow,
    *,
    durable: bool,
) -> EpochRow:
    """Commit epoch 1 with state, results and offsets of the target, for all views."""
    attempt = EpochAttempt(_EPOCH, uuid4().hex, durable)
    plans = {name: reader.plan for name, reader in views.items()}
    # The files that belong to no view have the columns of all of them.
    stored = {**plans, "": reading_plan(plans), **kept}
    of_job = next(iter(views.values()))
    files = copy_files(stored, target.files, split_root(of_job.root)[0], table.root, attempt)
    counted = counted_rows(of_job.root, of_job.files)
    until = [row for row in counted if row.epoch <= target.row.epoch]
    counters = {}
    for name, reader in views.items():
        root = view_root(table.root, name)
        counters[name], changelog = _write_results(reader, name, target, until, root, attempt)
        files += changelog
    for name, count in _sum_refused(until).items():
        if name in counters:
            counters[name][REFUSED_BEFORE] = count
    row = EpochRow(
        epoch=_EPOCH,
        uuid=attempt.uuid,
        generation=start.generation,
        kind="clone",
        committed_at=now_ms() * 1_000,
        plan=target.row.plan,
        offsets=target.row.offsets,
        topics={
            name: target.row.topics[name]
            for name in target.row.offsets
            if name in target.row.topics
        },
        watermarks=target.row.watermarks,
        counters={
            **unite_counters(target.row, counters),
            "cloned": target.row.epoch,
            **target.row.state_counters,
            **({} if target.row.moved is None else {"moved": _EPOCH}),
        },
        files=by_part(files),
    )
    table.commit_epoch(row, files, durable=durable)
    return row


def _sum_refused(rows: Iterable[EpochRow]) -> Counter[str]:
    """Return how many messages each view has refused."""
    total = Counter[str]()
    for row in rows:
        total.update(row.refused)
    return total


def _write_results(
    reader: TableReader,
    view: str,
    target: Savepoint,
    until: Sequence[EpochRow],
    root: TablePath,
    attempt: EpochAttempt,
) -> tuple[dict[str, int], list[AddedFile]]:
    """Write all results of a view as +I; return its counters, and the file of the changelog.

    `until` has the rows of the job up to the target.
    """
    results = reader.results_in(files_of_view(target.files, view))
    changelog, seqs = build_changelog(reader.plan, reader.spec.state.buckets, {}, results)
    if target.sums is None:
        sums = sum_audited([row.of_view(view) for row in until])
    else:  # retention has added those of later epochs to the start row
        sums = target.sums.get(view, {})
    counters = {
        "groups": len(results),
        "changelog_rows": len(changelog),
        **target.row.view_counters(view),
        **sums,
    }
    if not changelog:
        return counters, []
    rows = reader.layout.changelog_table(_EPOCH, seqs, changelog)
    return counters, [attempt.write(root, CHANGELOG, "clone", rows).of_view(view)]


def copy_files(
    plans: Mapping[str, Plan],
    files: Sequence[LiveFile],
    origin: TablePath,
    table: TablePath,
    attempt: EpochAttempt,
) -> list[AddedFile]:
    """Write the rows of a table's files to another table, as those of one epoch.

    `plans` are of the views and of what is kept beside them; "" has what belongs to none.
    """
    added: list[AddedFile] = []
    for view, plan in plans.items():
        own, layout = own_files(files, view), layout_of(plan)
        for part in RESTORED:
            mine = [file for file in own if file.part == part]
            rows = read_part(plan, view_root(origin, view), part, mine)
            root, schema = view_root(table, view), layout.schema(part)
            written = write_part(attempt, root, part, "clone", schema, rows)
            added += [file.of_view(view) for file in written]
    return added


def read_part(
    plan: Plan, root: TablePath, part: str, files: Sequence[LiveFile]
) -> Iterable[pa.Table]:
    """Return the rows of files of a part; of a state part the newest row of each key."""
    if not files:
        return ()
    if part in STATE:
        return current_rows(plan, root, part, files)
    return (rows_in(root / file.path) for file in files)


def write_part(
    attempt: EpochAttempt,
    root: TablePath,
    part: str,
    writer: str,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
) -> list[AddedFile]:
    """Write the rows as rows of one epoch to a file; return it, or nothing for no rows."""
    file: FileWriter | None = None
    at = schema.get_field_index("epoch")
    with ExitStack() as opened:
        for table in tables:
            if not table.num_rows:
                continue
            if file is None:
                file = opened.enter_context(attempt.open(root, part, writer, schema))
            epochs = pa.repeat(pa.scalar(attempt.epoch, pa.int64()), table.num_rows)
            file.write(conform(table.set_column(at, schema.field(at), epochs), schema))
    return [] if file is None else [file.added]
