"""Service: answers about one job, from a running service over HTTP.

The service runs what takes a while as an operation: it continues if the command is interrupted.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

import retally
from jobs.cli.answers import Results, Wanted
from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.group_key import parse_group_key
from jobs.cli.output import escape_controls, show_waiting
from jobs.core.job.job_plan import plan_of
from jobs.core.plan.tree import Plan
from jobs.core.values.json_values import Json, render
from jobs.edge.process.fence import OwnedElsewhere
from schemas.documents.explanation import Explained
from schemas.spec.file import Problem, SpecError, load_spec
from schemas.table.epoch import Offsets
from schemas.types.json_types import JsonObject
from schemas.types.sql_types import Kind, SqlType

SERVICE_VARIABLE, TOKEN_VARIABLE = "RETALLY_SERVICE", "RETALLY_TOKEN"
SERVICE_DEFAULT = "http://127.0.0.1:8080"
State = Literal["keep", "replay", "drop"]  # what an approval does with the state of a job
# How messages of the service spell what are options here.
_OPTIONS = (
    (re.compile(r"\?replace=true"), "--replace"),
    (re.compile(r"\bstate=(\w+)"), r"--state \1"),
    (re.compile(r"\?data=(\w+)"), r"--job-data \1"),
    (
        re.compile(r"as_of=epoch:N, as_of=time:(\S+) or as_of=watermark:T"),
        r"--epoch N or --time \1",
    ),
    (re.compile(r"\bquery\.(where|order|limit)\b"), r"--\1"),
)


@contextmanager
def service_client(options: argparse.Namespace) -> Iterator[retally.Client]:
    """Yield a client; what the service refuses becomes CommandFailed."""
    address = options.service or os.environ.get(SERVICE_VARIABLE) or SERVICE_DEFAULT
    try:
        client = retally.connect(address, os.environ.get(TOKEN_VARIABLE))
    except ValueError as error:
        raise UsageError(str(error)) from None
    try:
        yield client
    except retally.Refused as error:
        raise CommandFailed(_describe_refusal(error)) from None
    except TimeoutError as error:
        raise CommandFailed(str(error)) from None
    except retally.RetallyError as error:
        raise CommandFailed(
            f"{error}; does retally serve run? "
            "(--service URL names another service, --data DIR reads the tables)"
        ) from None
    finally:
        client.close()


def _describe_refusal(error: retally.Refused) -> str:
    """Return what the service refused, in the words of the command line."""
    parts = [f"{error.code}: {error.detail}"]
    for each in error.errors:
        if each.get("message", "") not in error.detail:
            position = f"line {each['line']}, " if each.get("line") else ""
            parts.append(f"{position}{each.get('path', '')}: {each.get('message', '')}")
    text = "; ".join(parts)
    for written, option in _OPTIONS:
        text = written.sub(option, text)
    return escape_controls(text)


@contextmanager
def name_places(file: Path) -> Iterator[None]:
    """Turn the mistakes of a spec that a service refuses into those of its file, with lines."""
    try:
        yield
    except retally.Refused as error:
        if error.code != "spec-invalid":
            raise
        problems = [
            Problem(
                str(each.get("path", "")),
                str(each.get("message", "")),
                each.get("line"),
                each.get("column"),
            )
            for each in error.errors
        ]
        refused = SpecError(str(file), problems)
        refused.text = file.read_text("utf-8-sig", errors="replace")
        raise refused from None


class Service:
    """One job of a running service. The methods are those of jobs.cli.directory.Directory."""

    def __init__(self, client: retally.Client, job: str) -> None:
        self._client = client
        self._job = job

    # --- reading ----------------------------------------------------------------------------------

    def read_results(self, wanted: Wanted) -> Results:
        job = self._client.job(self._job)
        plan = _read_plan(job)
        wanted.parse_listing(plan.types)  # raises as the tables do
        at = job.epoch if wanted.epoch is None else wanted.epoch
        if wanted.time_ms is not None:  # with one row, to learn the epoch
            at = self._client.epoch_at(self._job, wanted.time_ms)
        if wanted.key is None:
            found = self._client.results(
                self._job, where=wanted.where, order=wanted.order, limit=wanted.limit, as_of=at
            )
            rows = found.rows()
        else:
            rows = self._find_group(_parse_group(wanted.key, plan), at)
        assert at is not None  # or the service would have refused
        types = plan.types
        read = _make_reader(types)
        return Results(
            at,
            [(name, types[name].numeric) for name in plan.output],
            [read(row) for row in rows],
            job.moved if job.moved is not None and job.moved <= at else None,
        )

    def _find_group(self, group: JsonObject, at: int | None) -> list[JsonObject]:
        try:
            return [self._client.group(self._job, group, as_of=at).row]
        except retally.Refused as error:
            if error.code == "group-unknown":
                return []
            raise

    def read_changes(
        self, since: int | None, key: str | None, *, follow: bool
    ) -> Iterator[JsonObject]:
        job = self._client.job(self._job)
        group = None if key is None else _parse_group(key, _read_plan(job))
        newest = None if follow else job.epoch
        if newest is not None and (since or 0) >= newest:
            return
        read = _make_reader(_read_plan(job).types)
        for change in self._stream_changes(since, group):
            if isinstance(change, retally.Progress):
                if newest is not None and change.epoch >= newest:
                    return
            elif isinstance(change, retally.Columns):  # the query has changed
                columns = change.columns.items()
                read = _make_reader({name: SqlType.read(kind) for name, kind in columns})
            elif isinstance(change, retally.Change):
                yield {**change, "row": read(change.row)}

    def _stream_changes(self, since: int | None, group: JsonObject | None) -> Iterator[Any]:
        """Stream the changes after an epoch, without `since` all that the changelog still has."""
        changes = self._client.follow(self._job, since or 0, key=group)
        try:
            return chain([next(changes)], changes)
        except retally.Gap as gap:
            if since is not None or gap.oldest is None:
                raise
            return self._client.follow(self._job, gap.oldest, key=group)

    def compare_epochs(self, first: int, last: int | None) -> tuple[int, list[JsonObject]]:
        job = self._client.job(self._job)
        to = (job.epoch or 0) if last is None else last
        read = _make_reader(_read_plan(job).types)
        found = self._client.diff(self._job, first, to)
        return to, [{name: value and read(value) for name, value in each.items()} for each in found]

    def explain(self, key: str | None) -> Explained:
        plan = _read_plan(self._client.job(self._job))
        document = self._client.explain(self._job, _parse_group(key, plan))
        found = msgspec.convert(document, Explained)
        read = _make_reader(plan.types)
        types = {argument.name: argument.type for argument in plan.arguments}
        for argument in found.arguments:
            for entry in argument.get("multiset", ()):
                entry["value"] = _read_value(entry["value"], types[argument["argument"]])
        epochs = [
            replace(epoch, changes=[replace(each, row=read(each.row)) for each in epoch.changes])
            for epoch in found.epochs
        ]
        row = None if found.row is None else read(found.row)
        return replace(found, group=read(found.group), row=row, epochs=epochs)

    # --- quarantine -------------------------------------------------------------------------------

    def list_quarantine(self, *, whole: bool) -> list[JsonObject]:
        found = self._client.quarantine(self._job)
        return [self._client.message(self._job, m.id) if whole and m.cut else m for m in found]

    def send_again(self, message: str, fixed: bytes | None, *, again: bool) -> JsonObject:
        return self._run_operation(
            lambda: self._client.replay(self._job, message, fixed, again=again)
        )

    def send_all_again(self, messages: Sequence[str], *, again: bool) -> JsonObject:
        return self._run_operation(
            lambda: self._client.replay_all(self._job, messages, again=again)
        )

    # --- offsets ----------------------------------------------------------------------------------

    def read_offsets(self) -> JsonObject:
        found = self._client.offsets(self._job)
        offsets = {
            topic: {partition: at.next for partition, at in partitions.items()}
            for topic, partitions in found.topics.items()
        }
        document = {"job": self._job, "epoch": found.epoch, "changed": False}
        return {**document, "moved": found.moved, "offsets": offsets}

    def move_offsets(self, to: Offsets | None, *, at: int | None) -> JsonObject:
        return self._run_operation(lambda: self._client.move_offsets(self._job, to, epoch=at))

    # --- savepoints and other jobs ----------------------------------------------------------------

    def list_savepoints(self) -> list[JsonObject]:
        return [*self._client.savepoints(self._job)]

    def create_savepoint(self, name: str | None) -> JsonObject:
        return self._client.savepoint(self._job, name)

    def delete_savepoint(self, name: str) -> None:
        self._client.drop_savepoint(self._job, name)

    def rewind(self, to: str) -> JsonObject:
        return self._run_operation(lambda: self._client.rewind(self._job, to))

    def clone(self, name: str, to: str | None, spec: Path | None) -> JsonObject:
        if spec is not None:
            raise UsageError("--spec needs --data; over HTTP, put the spec after the clone")
        return self._run_operation(lambda: self._client.clone(self._job, name, to))

    def approve(self, state: State | None) -> JsonObject:
        """Approve the pending spec; without `state` the job keeps a state that fits."""
        answer = self._begin(lambda: self._client.approve(self._job, state))
        if isinstance(answer, retally.Job):  # there was no state, or it was dropped
            return {"job": self._job, "state": "drop"}
        return self._wait_until_ended(answer)

    def audit(self) -> JsonObject:
        return self._run_operation(lambda: self._client.audit(self._job))

    def _run_operation(self, begin: Callable[[], Any]) -> JsonObject:
        """Begin an operation, wait until it ends, and return its result."""
        return self._wait_until_ended(self._begin(begin))

    def _begin(self, begin: Callable[[], Any]) -> Any:
        try:
            return begin()
        except retally.Refused as error:
            if error.code == "job-not-stopped":  # as the lock of the writer says it
                raise OwnedElsewhere(escape_controls(error.detail)) from None
            raise

    def _wait_until_ended(self, operation: Any) -> JsonObject:
        with show_waiting(f"{operation.kind} of {operation.job} (operation {operation.id})"):
            # As in a directory: the operation goes on even if this command does not.
            operation = self._client.wait_until_ended(operation, math.inf)
        if operation.state == "FAILED":
            reason = escape_controls(operation.reason or "")
            raise CommandFailed(f"the {operation.kind} of {operation.job} failed: {reason}")
        document: JsonObject = operation.result or {}
        return document


def _read_plan(job: Any) -> Plan:
    return plan_of(load_spec(job.spec))


def _parse_group(text: str | None, plan: Plan) -> JsonObject:
    """Return the group that `text` names, as the REST API takes it."""
    named = zip(plan.group, parse_group_key(text, plan), strict=True)
    return {column.name: render(value, column.type) for column, value in named}


def _make_reader(types: Mapping[str, SqlType]) -> Callable[[JsonObject], JsonObject]:
    """Return a function that converts a row of the REST API to a row of the command line."""
    return lambda row: {name: _read_value(value, types.get(name)) for name, value in row.items()}


def _read_value(value: Json, sql_type: SqlType | None) -> Json:
    """Return a BIGINT as a number: the REST API writes those beyond 2^53 as text."""
    if sql_type is None:  # a column of an older query
        return value
    if isinstance(value, list) and sql_type.kind is Kind.ARRAY:
        return [_read_value(item, sql_type.items[0]) for item in value]
    return int(value) if isinstance(value, str) and sql_type.kind is Kind.BIGINT else value
