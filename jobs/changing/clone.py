"""Clone: a new job that begins with the state of another, as it is or as it was at a savepoint.

    epoch N of the one ──► epoch 0 of the other   the same start: the topic's offsets it began at
                      └──► epoch 1, kind "clone"  state of N, offsets of N, every result as +I

So the new job's changelog is whole, its audit goes from its start to now as every job's does, and
nothing of it hangs on the old one, which may run, change and go away. It is built beside the place
of its table and put there in one step, under the new job's writer lock: a clone that was killed
has made no job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from uuid import uuid4

import msgspec
import pyarrow as pa

from jobs.changing.rewind import target_of, way_back
from jobs.changing.savepoint import keep_newest
from jobs.core.job.cloning import misfits
from jobs.core.job.job_plan import plan_of
from jobs.edge.process.failpoints import failpoint
from jobs.edge.process.fence import WriterLock
from jobs.edge.table import pins
from jobs.edge.table.compaction import current_rows
from jobs.edge.table.delta_epochs import EpochTable, LiveFile, start_row
from jobs.edge.table.epoch_files import (
    CHANGELOG,
    STATE,
    AddedFile,
    FileWriter,
    by_part,
    file_name,
    now_ms,
    write_file,
)
from jobs.edge.table.reading import TableReader
from jobs.edge.table.savepoints import RESTORED, Savepoint, write_savepoint
from jobs.edge.table.table_place import building_site
from schemas.spec.file import write_spec
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from schemas.table.object_path import ObjectPath, TablePath
from schemas.table.parquet_file import rows_in
from schemas.table.places import JobDirectory

# What the source did wrong stays known: an audit has to say what it cannot decide.
_CARRIED = ("dropped_retractions", "unmatched_retractions")
_EPOCH = 1


class CannotClone(Exception):
    """There is no such clone to be made; nothing was made."""


def clone(
    place: JobDirectory,
    new: JobDirectory,
    spec: JobSpec,
    to: str | None,
    tables: ObjectPath | None = None,
) -> EpochRow:
    """Make the job `new` of a job's newest epoch, or of a savepoint's name or an epoch's number;
    its table is below `tables`, or in the data directory."""
    lock = WriterLock(new.lock, new.name)
    try:
        if new.begun:
            raise CannotClone(f"there is a job {new.name!r} already; choose another name")
        with _pinned(place, to) as (reader, target):
            _check(reader, spec)
            beside = None if tables is None else tables / new.name
            return _made(reader, target, new, spec, beside)
    finally:
        lock.release()


@contextmanager
def _pinned(place: JobDirectory, to: str | None) -> Iterator[tuple[TableReader, Savepoint]]:
    """The epoch to begin with, whose files stay until we have read them."""
    pins.forget_dead(place.home)
    name = f"clone-{uuid4().hex[:12]}"
    with pins.held(place.home, name):
        if to is None:
            target = keep_newest(place, name)
        else:
            found = target_of(TableReader.open(place), to)
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
    wrong = misfits(spec, plan, reader.spec, reader.plan)
    if wrong:
        raise CannotClone("; ".join(f"{key} {reason}" for key, reason in wrong.items()))


def _made(
    reader: TableReader,
    target: Savepoint,
    new: JobDirectory,
    spec: JobSpec,
    beside: ObjectPath | None,
) -> EpochRow:
    first = start_row(reader.root, reader.handle)
    if first is None:
        raise CannotClone(f"job {reader.place.name!r} no longer knows where it began")
    building = building_site(new, beside)
    table = EpochTable.create(building.table, reader.layout)
    durable = spec.durable
    start = msgspec.structs.replace(
        first, epoch=0, uuid=uuid4().hex, generation=now_ms(), committed_at=now_ms() * 1_000,
        watermarks={}, counters={"groups": 0}, files={},
    )  # fmt: skip
    table.commit_epoch(start, (), durable=durable)
    row = _copied(reader, target, table, start, durable=durable)
    write_spec(new.spec, spec)
    failpoint("before_clone")
    building.moves_in()
    return row


def _copied(
    reader: TableReader, target: Savepoint, table: EpochTable, start: EpochRow, *, durable: bool
) -> EpochRow:
    """The epoch that has everything."""
    uuid, root, layout = uuid4().hex, table.root, reader.layout
    files: list[AddedFile] = []
    for part in RESTORED:
        mine = [file for file in target.files if file.part == part]
        name = file_name(part, _EPOCH, uuid, "clone")
        tables = rows_of_part(reader, part, mine)
        files += as_rows_of(_EPOCH, root, name, layout.schema(part), tables, durable)
    results = reader.results_in(target.files)
    changelog, seqs = way_back(reader, {}, results)
    if changelog:
        rows = layout.changelog_table(_EPOCH, seqs, changelog)
        name = file_name(CHANGELOG, _EPOCH, uuid, "clone")
        files.append(write_file(root, name, rows, durable=durable))
    until = [row for row in reader.epochs if row.epoch <= target.row.epoch]
    row = EpochRow(
        epoch=_EPOCH,
        uuid=uuid,
        generation=start.generation,
        kind="clone",
        committed_at=now_ms() * 1_000,
        plan=target.row.plan,
        offsets=target.row.offsets,
        topics={name: target.row.topics[name] for name in target.row.offsets
                if name in target.row.topics},
        watermarks=target.row.watermarks,
        counters={
            "groups": len(results), "changelog_rows": len(changelog), "cloned": target.row.epoch,
            **{name: sum(row.counters.get(name, 0) for row in until) for name in _CARRIED},
            **target.row.standing, **({} if target.row.moved is None else {"moved": _EPOCH}),
        },
        files=by_part(files),
    )  # fmt: skip
    table.commit_epoch(row, files, durable=durable)
    return row


def rows_of_part(reader: TableReader, part: str, files: Sequence[LiveFile]) -> Iterable[pa.Table]:
    """What files of a part say: of state the newest row of each key."""
    if not files:
        return ()
    if part in STATE:
        return current_rows(reader.plan, reader.root, part, files)
    return (rows_in(reader.root / file.path) for file in files)


def as_rows_of(
    epoch: int,
    root: TablePath,
    name: str,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    durable: bool,
) -> list[AddedFile]:
    """The rows as rows of one epoch, in a file."""
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
