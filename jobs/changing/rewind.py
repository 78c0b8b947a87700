"""Rewind: restore a savepoint or an epoch of a stopped job, as a new epoch.

    epoch E ──► epoch E+1, kind "rewind", of all views
                  state files     those of epoch N again, instead of those of E
                  offsets         those of N: the job continues from there
                  changelog       the changes from the results of E to those of N

The changelog continues, so its consumers stay correct without any action, and epoch numbers only
grow. A rewind is one commit; before this commit nothing has changed. The new epoch has a new
generation, which tells the hot state to rebuild itself. Epoch E becomes a savepoint first, so that
another rewind can undo this one. A savepoint may be older than all rows that retention has kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from deltalake.exceptions import DeltaError

from jobs.changing.savepoint import create_savepoint
from jobs.changing.stopped_job import StoppedJob, find_obstacle, unite_counters
from jobs.core.fold.fold import ChangelogRow
from jobs.core.fold.laws import well_formed
from jobs.core.fold.state import Key
from jobs.core.plan.bucket import bucket_of_group
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Op, Row
from jobs.core.values.order_key import encoder
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import check_starts, find_topics
from jobs.edge.process.failpoints import failpoint
from jobs.edge.process.fence import WriterLock
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.delta_epochs import APPLICATION
from jobs.edge.table.epoch_files import SEQ_BUCKET_BITS
from jobs.edge.table.file_writer import (
    STATISTICS,
    AddedFile,
    EpochAttempt,
    by_part,
    compute_statistics,
)
from jobs.reading.epoch_rows import newest_of_job
from jobs.reading.files import LiveFile, files_of_view, live_files, open_table
from jobs.reading.parts import CHANGELOG
from jobs.reading.savepoints import Savepoint, list_restored_files, savepoints
from jobs.reading.version import TableVersion
from schemas.table.epoch import EpochRow
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import rows_in, table_file
from schemas.types.moments import now_ms


class CannotRewind(Exception):
    """The job cannot be rewound to this epoch; nothing has been changed."""


@dataclass(frozen=True, slots=True)
class Rewound:
    """The result of a rewind; without a row the job was already at the target.

    `kept` is the savepoint of the epoch before the rewind.
    """

    target: EpochRow
    row: EpochRow | None
    kept: Savepoint | None


def rewind(paths: JobDirectory, to: str, admin: KafkaAdmin) -> Rewound:
    """Restore a stopped job to a savepoint's name or an epoch's number."""
    with WriterLock(paths.lock, paths.name):
        job = StoppedJob.open(paths)
        target = find_target(paths, to)
        if target.row.epoch == job.newest.epoch:
            return Rewound(target.row, None, None)
        _check(job, target, admin)
        kept = create_savepoint(paths)
        failpoint("rewind_kept")
        return Rewound(target.row, _commit(job, target), kept)


# --- the target -------------------------------------------------------------------------------


def find_target(paths: JobDirectory, to: str) -> Savepoint:
    """Return the epoch to restore with its state files; raise CannotRewind if it is not kept."""
    kept = savepoints(paths.home)
    named = [each for each in kept if to in (each.name, str(each.row.epoch))]
    if named:
        return named[0]
    names = ", ".join(f"{each.name} (epoch {each.row.epoch})" for each in kept)
    hint = f"savepoints: {names}" if kept else "there are no savepoints"
    if not to.isdigit():
        raise CannotRewind(f"job {paths.name!r} has no savepoint {to!r}; {hint}")
    found = _find_version(paths.table, int(to))
    if found is None:
        epochs = TableVersion(paths.table).epochs()
        first, last = epochs[0].epoch, epochs[-1].epoch
        known = f"its epochs are {first} to {last}"
        if first <= int(to) <= last:
            known += ", but only those of the last hour can be restored"
        raise CannotRewind(
            f"the state of epoch {to} of job {paths.name!r} is not kept: {known}; {hint}"
        )
    return found


def _find_version(root: TablePath, epoch: int) -> Savepoint | None:
    """Return an epoch from the table's own history, if this still has its version."""
    entries = {path.name: path for path in (root / "_delta_log").glob("*.json")}
    for _, entry in sorted(entries.items(), reverse=True):
        if not _commits_epoch(entry, epoch):
            continue
        try:
            handle = open_table(root, int(entry.stem))
            row = newest_of_job(root, live_files(handle))
        except (DeltaError, OSError):
            return None
        if row is None or row.epoch != epoch:
            return None
        return Savepoint(name=f"epoch-{epoch}", row=row, files=list_restored_files(handle))
    return None


def _commits_epoch(entry: TablePath, epoch: int) -> bool:
    for line in entry.read_text().splitlines():
        if line.startswith('{"txn"'):
            transaction = json.loads(line)["txn"]
            return bool(transaction["appId"] == APPLICATION and transaction["version"] == epoch)
    return False


def _check(job: StoppedJob, target: Savepoint, admin: KafkaAdmin) -> None:
    """Refuse a target that the next start would refuse, before anything has changed."""
    paths = job.reader.paths.at_view("")
    if obstacle := find_obstacle(paths, target, job.newest.plans, job.views):
        raise CannotRewind(obstacle)
    if target.row.counts.sources != job.newest.counts.sources:
        raise CannotRewind(
            f"epoch {target.row.epoch} of job {paths.name!r} has the rows of other topics than the "
            "job reads now; choose an epoch after the last evolve"
        )
    identities = find_topics(admin, job.reader.spec.topics)
    check_starts(admin, target.row.offsets, target.row.topics, identities)


# --- the new epoch ----------------------------------------------------------------------------


def _commit(job: StoppedJob, target: Savepoint) -> EpochRow:
    table, newest = job.table, job.newest
    attempt = EpochAttempt(newest.epoch + 1, uuid4().hex, job.reader.spec.durable)
    live = list_restored_files(table.handle)
    wanted = {file.path for file in target.files}
    known = {file.path for file in live}
    files = [_make_added_file(table.root, file) for file in target.files if file.path not in known]
    counters: dict[str, dict[str, int]] = {}
    for name, reader in job.views.items():
        now = reader.results_in(files_of_view(live, name))
        then = reader.results_in(files_of_view(target.files, name))
        changelog, seqs = build_changelog(reader.plan, reader.spec.state.buckets, now, then)
        if changelog:
            rows = reader.layout.changelog_table(attempt.epoch, seqs, changelog)
            files.append(attempt.write(reader.root, CHANGELOG, "rewind", rows).of_view(name))
        sums = {} if target.sums is None else target.sums.get(name, {})
        counters[name] = {
            "groups": len(then),
            "changelog_rows": len(changelog),
            **target.row.view_counters(name),
            **sums,
        }
    others = {topic: known for topic, known in newest.topics.items() if topic not in newest.offsets}
    row = EpochRow(
        epoch=attempt.epoch,
        uuid=attempt.uuid,
        generation=newest.generation + 1,
        kind="rewind",
        committed_at=now_ms() * 1_000,
        plan=newest.plan,
        offsets=target.row.offsets,
        topics={**target.row.topics, **others},
        watermarks=target.row.watermarks,
        counters={
            **unite_counters(target.row, counters),
            "rewound_to": target.row.epoch,
            **target.row.state_counters,
        },
        files=by_part(files),
    )
    removed = [file for file in live if file.path not in wanted]
    table.commit_epoch(row, files, removed, durable=attempt.durable)
    return row


def _make_added_file(root: TablePath, file: LiveFile) -> AddedFile:
    """Return an old file to add again, with the statistics that readers prune by."""
    path = root / file.path
    columns = [name for name in STATISTICS if name in table_file(path).schema_arrow.names]
    stats = compute_statistics(rows_in(path, columns))
    return AddedFile(file.path, file.part, file.rows, file.size, stats)


def build_changelog(
    plan: Plan, buckets: int, now: Mapping[Key, Row], then: Mapping[Key, Row]
) -> tuple[list[ChangelogRow], list[int]]:
    """Return the changelog rows from the results `now` to the results `then`, with their seqs."""
    order = encoder(tuple(named.type for named in plan.group))
    changed = [key for key in {**now, **then} if now.get(key) != then.get(key)]
    places = sorted((bucket_of_group(plan, key, buckets), order(key), key) for key in changed)
    rows: list[ChangelogRow] = []
    seqs: list[int] = []
    taken: dict[int, int] = {}
    for bucket, _, key in places:
        for change in _compare_rows(key, now.get(key), then.get(key)):
            rows.append(change)
            seqs.append((bucket << SEQ_BUCKET_BITS) + taken.get(bucket, 0))
            taken[bucket] = taken.get(bucket, 0) + 1
    return list(well_formed(rows)), seqs


def _compare_rows(key: Key, old: Row | None, new: Row | None) -> Sequence[ChangelogRow]:
    if old is None:
        assert new is not None
        return [(Op.INSERT, key, new)]
    if new is None:
        return [(Op.DELETE, key, old)]
    return [(Op.UPDATE_BEFORE, key, old), (Op.UPDATE_AFTER, key, new)]
