"""Directory: answers about one job, read from its tables in a data directory."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from jobs.cli.answers import Results, Wanted
from jobs.cli.errors import CommandFailed
from jobs.cli.group_key import parse_group_key
from jobs.cli.spec_reading import load_job
from jobs.edge.process.job_directory import JobDirectory, find_job, find_view
from jobs.edge.table.reading import TableReader, read_with_retries
from jobs.reading.difference import compare_epochs
from jobs.reading.listing import select_items
from jobs.reading.quarantine import list_messages
from jobs.reading.savepoints import delete_savepoint, savepoints
from schemas.documents.explanation import Explained
from schemas.spec.connections import Connections, load_connections
from schemas.spec.file import load_spec
from schemas.table.epoch import EpochRow, Offsets
from schemas.types.json_types import JsonObject

if TYPE_CHECKING:
    from jobs.edge.kafka.admin import KafkaAdmin


class Directory:
    """The tables of one job. What needs Kafka or Spark is imported where it is used."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._job = find_view(find_job(options.data, options.job), options.view)

    # --- reading ----------------------------------------------------------------------------------

    def read_results(self, wanted: Wanted) -> Results:
        """Return the rows of the job at one epoch, the newest one without another wish."""
        return read_with_retries(self._job, lambda table: _read_results(table, wanted))

    def read_changes(
        self, since: int | None, group: str | None, *, follow: bool
    ) -> Iterator[JsonObject]:
        """Yield the changelog after an epoch; with `follow` also what is committed later."""
        if follow:
            table = TableReader.open(self._job)
            rows = table.follow(since)
        else:
            table, rows = read_with_retries(self._job, lambda table: (table, table.changes(since)))
        only = None if group is None else parse_group_key(group, table.plan)
        shape = table.shape
        for op, epoch, seq, key, result in rows:
            if only is not None and key != only:
                continue
            yield {"op": str(op), "epoch": epoch, "seq": seq, "row": shape.row(key, result)}

    def explain(self, key: str | None) -> Explained:
        """Return why a group has its values."""

        return read_with_retries(
            self._job, lambda table: table.explain(parse_group_key(key, table.plan))
        )

    def compare_epochs(self, first: int, last: int | None) -> tuple[int, list[JsonObject]]:
        """Return the later epoch, and each group that differs between the two."""

        def compare(table: TableReader) -> tuple[int, list[JsonObject]]:
            to = table.newest.epoch if last is None else last
            found = compare_epochs(table, table.shape, first, to)
            return to, [msgspec.to_builtins(each) for _, each in found]

        return read_with_retries(self._job, compare)

    # --- quarantine -------------------------------------------------------------------------------

    def list_quarantine(self, *, whole: bool) -> list[JsonObject]:
        """Return the refused messages; with `whole` all the bytes that the job kept of them."""
        found = read_with_retries(
            self._job, lambda table: list_messages(table, None, sys.maxsize, bytes_max=None)
        )
        return [msgspec.to_builtins(each.with_replay(self._job.replayed)) for each in found]

    def send_again(self, message: str, fixed: bytes | None, *, again: bool) -> JsonObject:
        """Send a refused message to its topic again."""
        from jobs.changing.quarantine_replay import replay

        with self._open_broker() as (connections, admin):
            done = replay(self._job, message, fixed, connections, admin, again=again)
        document: JsonObject = msgspec.to_builtins(done)
        return document

    def send_all_again(self, messages: Sequence[str], *, again: bool) -> JsonObject:
        """Send refused messages to their topics again; return which, and why not the others."""
        from jobs.changing.quarantine_replay import replay_all

        with self._open_broker() as (connections, admin):
            done = replay_all(self._job, messages, connections, admin, again=again)
        document: JsonObject = msgspec.to_builtins(done)
        return document

    # --- offsets ----------------------------------------------------------------------------------

    def read_offsets(self) -> JsonObject:
        """Return the offsets at which the job continues."""
        first = self._job.at_view(next(iter(load_spec(self._job.spec).view_specs)))
        newest = read_with_retries(first, lambda table: table.newest)
        return self._describe_offsets(newest, changed=False)

    def move_offsets(self, to: Offsets | None, *, at: int | None) -> JsonObject:
        """Let a stopped job continue at other offsets; None: those of its source.start."""
        from jobs.changing.offsets import move_offsets

        with self._open_broker() as (_, admin):
            done = move_offsets(self._job, to, admin, at=at)
        return self._describe_offsets(done.row or done.newest, changed=done.row is not None)

    def _describe_offsets(self, row: EpochRow, *, changed: bool) -> JsonObject:
        document = {"job": self._job.name, "epoch": row.epoch, "changed": changed}
        return {**document, "moved": row.moved, "offsets": row.offsets}

    # --- savepoints and other jobs ----------------------------------------------------------------

    def list_savepoints(self) -> list[JsonObject]:
        """Return the savepoints, oldest epochs first."""
        found = [each.describe() for each in savepoints(self._job.home)]
        documents: list[JsonObject] = msgspec.to_builtins(found)
        return documents

    def create_savepoint(self, name: str | None) -> JsonObject:
        """Name the newest epoch."""
        from jobs.changing.savepoint import create_savepoint

        document: JsonObject = msgspec.to_builtins(create_savepoint(self._job, name).describe())
        return document

    def delete_savepoint(self, name: str) -> None:
        if not delete_savepoint(self._job.home, name):
            raise CommandFailed(f"job {self._job.name!r} has no savepoint {name!r}")

    def rewind(self, to: str) -> JsonObject:
        """Set a stopped job back to a savepoint or an epoch."""
        from jobs.changing.rewind import rewind

        with self._open_broker() as (_, admin):
            done = rewind(self._job, to, admin)
        row = done.row
        return {
            "job": self._job.name,
            "to": done.target.epoch,
            "epoch": done.target.epoch if row is None else row.epoch,
            "changelog_rows": 0 if row is None else row.counts.changelog_rows,
            "kept": None if done.kept is None else done.kept.name,
        }

    def clone(self, name: str, to: str | None, spec: Path | None) -> JsonObject:
        """Create a job with the state of this one."""
        from jobs.changing.clone import clone
        from jobs.core.job.cloning import clone_spec

        if spec is None:
            wanted = clone_spec(load_spec(self._job.spec), name)
        else:
            wanted, _ = load_job(spec)
        if wanted.name != name:
            raise CommandFailed(f"the spec names {wanted.name!r}, not {name!r}")
        new = JobDirectory(self._job.data, name)
        row = clone(self._job, new, wanted, to, self._options.tables)
        return {
            "job": name,
            "of": self._job.name,
            "cloned": row.counts.cloned,
            "epoch": row.epoch,
            "groups": row.groups,
        }

    def audit(self) -> JsonObject:
        """Recompute the results of the job or of one view from the topic, and compare."""
        from jobs.checking.audit import audit
        from jobs.checking.audit_views import audit_views

        whole = not self._job.view and load_spec(self._job.spec).views is not None
        with self._open_broker() as (connections, admin):
            check = audit_views if whole else audit
            return asdict(check(self._job, connections, admin, self._options.master))

    @contextmanager
    def _open_broker(self) -> Iterator[tuple[Connections, KafkaAdmin]]:
        """Yield the connections, and a client of those of the job's sources."""
        from jobs.edge.files.log import open_file_logs
        from jobs.edge.kafka.admin import KafkaAdmin

        connections = load_connections(self._options.connections, self._options.brokers)
        spec = load_spec(self._job.spec)
        files = open_file_logs(self._job.data.absolute(), spec)
        with KafkaAdmin.of_sources(connections, spec, files) as admin:
            yield connections, admin


def _read_results(table: TableReader, wanted: Wanted) -> Results:
    group = None if wanted.key is None else parse_group_key(wanted.key, table.plan)
    shape, moved = table.shape, table.newest.moved
    conditions, order = wanted.parse_listing(shape.columns)
    epoch = wanted.epoch if wanted.time_ms is None else table.find_epoch(wanted.time_ms * 1_000)
    at = table.newest.epoch if epoch is None else epoch
    found = table.results(epoch, group)
    rows = (((*key, *result), (key, result)) for key, result in found.items())
    kept = select_items(shape.columns, rows, conditions, order, wanted.limit)
    return Results(
        at,
        [(name, kind.numeric) for name, kind in shape.types.items()],
        [shape.row(*row) for row in kept],
        moved if moved is not None and moved <= at else None,
    )
