"""Clone: create a job with the state of another, at its newest epoch or at an earlier one.

    epoch N of the old job ──► epoch 0 of the new one   the same start, with the same first offsets
                          └──► epoch 1, kind "clone"    state and offsets of N, every result as +I

The new job's changelog is complete, and its audit starts at the same offsets as that of the old
job. It does not depend on the old job, which may run, change or be deleted. The clone is built
beside its table's path and moved there in one step, under the new job's writer lock. So a killed
clone has created no job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

import msgspec
import pyarrow as pa

from jobs.changing.one_query import require_one_query
from jobs.changing.rewind import build_table_changelog, find_target
from jobs.changing.savepoint import create_savepoint
from jobs.core.job.cloning import clone_problems
from jobs.core.job.job_plan import plan_of
from jobs.edge.process.failpoints import failpoint
from jobs.edge.process.fence import WriterLock
from jobs.edge.table import pins
from jobs.edge.table.compaction import current_rows
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import now_ms
from jobs.edge.table.file_writer import (
    AddedFile,
    FileWriter,
    by_part,
    file_name,
    write_file,
)
from jobs.edge.table.reading import TableReader
from jobs.edge.table.savepoints import RESTORED, Savepoint, write_savepoint
from jobs.edge.table.table_location import prepare_new_table
from jobs.table.files import LiveFile
from jobs.table.parts import CHANGELOG, STATE
from schemas.spec.file import write_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.table.object_path import ObjectPath, TablePath
from schemas.table.parquet_file import rows_in
from schemas.table.places import JobDirectory

# Errors of the source: an audit of the clone must report them too.
_CARRIED = ("dropped_retractions", "unmatched_retractions")
_EPOCH = 1


class CannotClone(Exception):
    """The job cannot be cloned; nothing was created."""


def clone(
    place: JobDirectory,
    new: JobDirectory,
    spec: JobSpec,
    to: str | None,
    tables: ObjectPath | None = None,
) -> EpochRow:
    """Create the job `new` from a job's newest epoch, or from a savepoint or epoch in `to`.

    Its table is below `tables`, or in the data directory.
    """
    require_one_query(place, "clone")
    lock = WriterLock(new.lock, new.name)
    try:
        if new.has_table:
            raise CannotClone(f"job {new.name!r} exists already; choose another name")
        with _pin_epoch(place, to) as (reader, target):
            _check(reader, spec)
            beside = None if tables is None else tables / new.name
            return _build_clone(reader, target, new, spec, beside)
    finally:
        lock.release()


@contextmanager
def _pin_epoch(place: JobDirectory, to: str | None) -> Iterator[tuple[TableReader, Savepoint]]:
    """Yield the epoch to clone; its files are pinned until the clone has read them."""
    pins.delete_dead_pins(place.home)
    name = f"clone-{uuid4().hex[:12]}"
    with pins.hold_pin(place.home, name):
        if to is None:
            target = create_savepoint(place, name)
        else:
            found = find_target(TableReader.open(place), to)
            target = msgspec.structs.replace(found, name=name)
            write_savepoint(place.home, target)
        failpoint("clone_pinned")
        reader = TableReader.open(place)
        missing = [file.path for file in target.files if not (place.table / file.path).exists()]
        if missing:
            raise CannotClone(
                f"{len(missing)} files of the state of epoch {target.row.epoch} of job "
                f"{place.name!r} are gone, for example {missing[0]}"
            )
        yield reader, target


def _check(reader: TableReader, spec: JobSpec) -> None:
    plan = plan_of(spec)
    wrong = clone_problems(spec, plan, reader.spec, reader.plan)
    if wrong:
        raise CannotClone("; ".join(f"{key} {reason}" for key, reason in wrong.items()))


def _build_clone(
    reader: TableReader,
    target: Savepoint,
    new: JobDirectory,
    spec: JobSpec,
    beside: ObjectPath | None,
) -> EpochRow:
    first = reader.start
    if first is None:
        raise CannotClone(f"the table of job {reader.place.name!r} has no start row")
    building = prepare_new_table(new, beside)
    table = EpochTable.create(building.table, reader.layout)
    durable = spec.durable
    start = msgspec.structs.replace(
        first,
        epoch=0,
        uuid=uuid4().hex,
        generation=now_ms(),
        committed_at=now_ms() * 1_000,
        watermarks={},
        counters={"groups": 0},
        files={},
    )
    table.commit_epoch(start, (), durable=durable)
    row = _commit_copy(reader, target, table, start, durable=durable)
    write_spec(new.spec, spec)
    failpoint("before_clone")
    building.activate()
    return row


def _commit_copy(
    reader: TableReader, target: Savepoint, table: EpochTable, start: EpochRow, *, durable: bool
) -> EpochRow:
    """Commit epoch 1 with state, results and offsets of the target."""
    uuid, root, layout = uuid4().hex, table.root, reader.layout
    files: list[AddedFile] = []
    for part in RESTORED:
        mine = [file for file in target.files if file.part == part]
        name = file_name(part, _EPOCH, uuid, "clone")
        tables = read_part(reader, part, mine)
        files += write_part(_EPOCH, root, name, layout.schema(part), tables, durable)
    results = reader.results_in(target.files)
    changelog, seqs = build_table_changelog(reader, {}, results)
    if changelog:
        rows = layout.changelog_table(_EPOCH, seqs, changelog)
        name = file_name(CHANGELOG, _EPOCH, uuid, "clone")
        files.append(write_file(root, name, rows, durable=durable))
    until = [row for row in reader.kept_epochs if row.epoch <= target.row.epoch]
    row = EpochRow(
        epoch=_EPOCH,
        uuid=uuid,
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
            "groups": len(results),
            "changelog_rows": len(changelog),
            "cloned": target.row.epoch,
            **{name: sum(getattr(row.counts, name) for row in until) for name in _CARRIED},
            **target.row.state_counters,
            **({} if target.row.moved is None else {"moved": _EPOCH}),
        },
        files=by_part(files),
    )
    table.commit_epoch(row, files, durable=durable)
    return row


def read_part(reader: TableReader, part: str, files: Sequence[LiveFile]) -> Iterable[pa.Table]:
    """Return the rows of files of a part; of a state part the newest row of each key."""
    if not files:
        return ()
    if part in STATE:
        return current_rows(reader.plan, reader.root, part, files)
    return (rows_in(reader.root / file.path) for file in files)


def write_part(
    epoch: int,
    root: TablePath,
    name: str,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    durable: bool,
) -> list[AddedFile]:
    """Write the rows as rows of one epoch to a file; return it, or nothing for no rows."""
    writer: FileWriter | None = None
    at = schema.get_field_index("epoch")
    try:
        for table in tables:
            if not table.num_rows:
                continue
            if writer is None:
                writer = FileWriter(root, name, schema, durable=durable)
            epochs = pa.repeat(pa.scalar(epoch, pa.int64()), table.num_rows)
            writer.write(table.set_column(at, schema.field(at), epochs).select(schema.names))
    finally:
        if writer is not None:
            writer.__exit__(None)
    return [] if writer is None else [writer.added]
