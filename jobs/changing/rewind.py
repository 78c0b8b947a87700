"""Rewind: a stopped job goes back to a savepoint or an epoch, as a new epoch.

    epoch E ──► epoch E+1, kind "rewind"
                  state files     those of epoch N again, instead of those of E
                  offsets         those of N: the job reads on from there
                  changelog       what turns the results of E into those of N

So nothing is taken back: consumers of the changelog stay right without knowing of it, and epochs
only grow. It is one commit like every other; until it is made, nothing has happened. The new
epoch has a generation of its own, by which the hot state knows that it must be built again.
Epoch E is kept as a savepoint first, so that a rewind can be undone by another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from jobs.changing.savepoint import keep_newest
from jobs.core.fold.fold import ChangelogRow
from jobs.core.fold.laws import well_formed
from jobs.core.fold.state import Key
from jobs.core.plan.bucket import bucket_in
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Op, Row
from jobs.core.values.order_key import encoder
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import checked_starts, topic_identities
from jobs.edge.process.failpoints import failpoint
from jobs.edge.process.fence import WriterLock
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.rows.file_statistics import STATISTICS, statistics
from jobs.edge.table.delta_epochs import (
    APPLICATION,
    EpochTable,
    LiveFile,
    live_files,
    newest_epoch,
    opened,
)
from jobs.edge.table.epoch_files import (
    CHANGELOG,
    SEQ_BUCKET_BITS,
    AddedFile,
    by_part,
    file_name,
    now_ms,
    write_file,
)
from jobs.edge.table.reading import TableReader
from jobs.edge.table.savepoints import RESTORED, Savepoint, savepoints
from schemas.table.epoch import EpochRow
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import rows_in, table_file


class CannotRewind(Exception):
    """The job cannot go where it was told to; nothing has been changed."""


@dataclass(frozen=True, slots=True)
class Rewound:
    """What a rewind did. `kept` is the savepoint of the epoch it left; both None: it was there."""

    target: EpochRow
    row: EpochRow | None
    kept: Savepoint | None


def rewind(place: JobDirectory, to: str, admin: KafkaAdmin) -> Rewound:
    """Set a stopped job back to a savepoint's name or an epoch's number."""
    lock = WriterLock(place.lock, place.name)
    try:
        reader = TableReader.open(place)
        target = target_of(reader, to)
        if target.row.epoch == reader.newest.epoch:
            return Rewound(target.row, None, None)
        _check(reader, target, admin)
        kept = keep_newest(place)
        failpoint("rewind_kept")
        return Rewound(target.row, _commit(reader, target), kept)
    finally:
        lock.release()


# --- where to ---------------------------------------------------------------------------------


def target_of(reader: TableReader, to: str) -> Savepoint:
    """The epoch to go back to with the files of its state; HistoryGone names what there is."""
    kept = savepoints(reader.place.home)
    named = [each for each in kept if to in (each.name, str(each.row.epoch))]
    if named:
        return named[0]
    names = ", ".join(f"{each.name} (epoch {each.row.epoch})" for each in kept)
    hint = f"savepoints: {names}" if kept else "there are no savepoints"
    if not to.isdigit():
        raise CannotRewind(f"job {reader.place.name!r} has no savepoint {to!r}; {hint}")
    found = _version_of(reader.root, int(to))
    if found is None:
        first, last = reader.epochs[0].epoch, reader.newest.epoch
        there = f"its epochs are {first} to {last}, but only the last hour's can be gone back to"
        if not first <= int(to) <= last:
            there = f"its epochs are {first} to {last}"
        raise CannotRewind(
            f"the state of epoch {to} of job {reader.place.name!r} is not kept: {there}; {hint}"
        )
    return found


def _version_of(root: TablePath, epoch: int) -> Savepoint | None:
    """An epoch from the table's own history, if that still has its version."""
    entries = {path.name: path for path in (root / "_delta_log").glob("*.json")}
    for _, entry in sorted(entries.items(), reverse=True):
        if not _commits(entry, epoch):
            continue
        try:
            handle = opened(root, int(entry.stem))
            row = newest_epoch(root, handle)
        except (DeltaError, OSError):
            return None
        if row is None or row.epoch != epoch:
            return None
        return Savepoint(name=f"epoch-{epoch}", row=row, files=_restored(handle))
    return None


def _commits(entry: TablePath, epoch: int) -> bool:
    for line in entry.read_text().splitlines():
        if line.startswith('{"txn"'):
            transaction = json.loads(line)["txn"]
            return bool(transaction["appId"] == APPLICATION and transaction["version"] == epoch)
    return False


def _restored(handle: DeltaTable) -> list[LiveFile]:
    return [file for file in live_files(handle) if file.part in RESTORED]


def _check(reader: TableReader, target: Savepoint, admin: KafkaAdmin) -> None:
    """Refuse what the next start would refuse, while the job can still go on as it is."""
    name, epoch = reader.place.name, target.row.epoch
    if target.row.plan != reader.newest.plan:
        raise CannotRewind(f"epoch {epoch} of job {name!r} is of another query or other types")
    missing = [file.path for file in target.files if not (reader.root / file.path).exists()]
    if missing:
        raise CannotRewind(
            f"{len(missing)} files of the state of epoch {epoch} of job {name!r} are gone, for "
            f"example {missing[0]}"
        )
    identities = topic_identities(admin, reader.spec.source.topics)
    checked_starts(admin, target.row.offsets, target.row.topics, identities)


# --- going there ------------------------------------------------------------------------------


def _commit(reader: TableReader, target: Savepoint) -> EpochRow:
    """The epoch that is the way back."""
    table = EpochTable.open(reader.root, reader.layout)
    newest, epoch, uuid = reader.newest, reader.newest.epoch + 1, uuid4().hex
    durable = reader.spec.durable
    live = _restored(table.handle)
    wanted = {file.path for file in target.files}
    known = {file.path for file in live}
    files = [_added(reader.root, file) for file in target.files if file.path not in known]
    now, then = reader.results_in(live), reader.results_in(target.files)
    changelog, seqs = way_back(reader, now, then)
    if changelog:
        rows = reader.layout.changelog_table(epoch, seqs, changelog)
        name = file_name(CHANGELOG, epoch, uuid, "rewind")
        files.append(write_file(reader.root, name, rows, durable=durable))
    others = {topic: known for topic, known in newest.topics.items() if topic not in newest.offsets}
    row = EpochRow(
        epoch=epoch,
        uuid=uuid,
        generation=newest.generation + 1,
        kind="rewind",
        committed_at=now_ms() * 1_000,
        plan=newest.plan,
        offsets=target.row.offsets,
        topics={**target.row.topics, **others},
        watermarks=target.row.watermarks,
        counters={
            "groups": len(then), "changelog_rows": len(changelog),
            "rewound_to": target.row.epoch, **target.row.standing,
        },
        files=by_part(files),
    )  # fmt: skip
    removed = [file for file in live if file.path not in wanted]
    table.commit_epoch(row, files, removed, durable=durable)
    return row


def _added(root: TablePath, file: LiveFile) -> AddedFile:
    """A file of before as one to add again, with the statistics that readers prune by."""
    path = root / file.path
    columns = [name for name in STATISTICS if name in table_file(path).schema_arrow.names]
    stats = statistics(rows_in(path, columns))
    return AddedFile(file.path, file.part, file.rows, file.size, stats)


def way_back(
    reader: TableReader, now: dict[Key, Row], then: dict[Key, Row]
) -> tuple[list[ChangelogRow], list[int]]:
    """The changelog rows that turn one table into the other, with their seqs."""
    return way(reader.plan, reader.spec.state.buckets, now, then)


def way(
    plan: Plan, buckets: int, now: Mapping[Key, Row], then: Mapping[Key, Row]
) -> tuple[list[ChangelogRow], list[int]]:
    order = encoder(tuple(named.type for named in plan.group))
    changed = [key for key in {**now, **then} if now.get(key) != then.get(key)]
    places = sorted((bucket_in(plan, key, buckets), order(key), key) for key in changed)
    rows: list[ChangelogRow] = []
    seqs: list[int] = []
    taken: dict[int, int] = {}
    for bucket, _, key in places:
        for change in _changes(key, now.get(key), then.get(key)):
            rows.append(change)
            seqs.append((bucket << SEQ_BUCKET_BITS) + taken.get(bucket, 0))
            taken[bucket] = taken.get(bucket, 0) + 1
    return list(well_formed(rows)), seqs


def _changes(key: Key, old: Row | None, new: Row | None) -> Sequence[ChangelogRow]:
    if old is None:
        assert new is not None
        return [(Op.INSERT, key, new)]
    if new is None:
        return [(Op.DELETE, key, old)]
    return [(Op.UPDATE_BEFORE, key, old), (Op.UPDATE_AFTER, key, new)]
