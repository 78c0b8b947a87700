"""The client: use the service from Python, with typed responses.

    client = Client("http://127.0.0.1:8080", token)
    client.put("items", Path("items.yaml").read_text())
    client.start("items")
    client.result("items", "bolt").row
    for change in client.changes("items", since=client.job("items").epoch): ...

A method that reads results takes a view as `JOB.VIEW`: `client.results("items.top")`.

A refused request raises `Refused` with the stable code of the error. A stream of changes reconnects
by itself and continues after the last change, so no change is lost or repeated. The client needs
only the standard library and msgspec.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from schemas.directory.quarantine import Quarantined
from schemas.spec.plan_node import PlanNode
from schemas.table.explanation import Change, Explained
from schemas.types.json_types import JsonObject
from service import documents as of
from service.connection import CONNECTION_LOST, Connection, Refused

__all__ = ["Client", "Columns", "Progress", "Refused"]

Spec = str | bytes | Mapping[str, Any]
Key = Any  # the value of the group column, or a dict of all group columns

_ENDED = ("DONE", "FAILED")
_PAUSE_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a job and their types, after its query changed in this epoch."""

    epoch: int
    columns: dict[str, str]


@dataclass(frozen=True, slots=True)
class Progress:
    """An epoch is complete; a stream of changes has one after each epoch."""

    epoch: int
    watermark: int | None
    changes: int


class Client(Connection):
    """One service; thread-safe. Each stream has its own connection."""

    # --- jobs -----------------------------------------------------------------------------------

    def jobs(self, state: str | None = None) -> Iterator[of.Job]:
        for page in self._read_pages("/v1/jobs", of.Jobs, state=state):
            yield from page.jobs

    def job(self, name: str) -> of.Job:
        return self._get(_job_path(name), of.Job)

    def validate(self, spec: Spec) -> of.Valid:
        return self._request("POST", "/v1/jobs:validate", of.Valid, _encode_spec(spec))

    def sql(self, statement: str) -> of.SqlAnswer:
        """Answer a SELECT over the results of all jobs."""
        return self._request("POST", "/v1/sql", of.SqlAnswer, {"sql": statement})

    def sql_stream(self, statement: str, format: Literal["arrow", "csv"]) -> bytes:
        """Return the same answer as an Arrow stream or as CSV."""
        body = msgspec.json.encode({"sql": statement, "format": format})
        return self._send("POST", "/v1/sql", body, None)

    def put(
        self,
        name: str,
        spec: Spec,
        *,
        create: bool = False,
        revision: int | None = None,
        replace: bool = False,
    ) -> of.Job:
        """Create a job, or change its spec.

        With `create`, an existing job is refused; with `revision`, a job at another revision. A
        spec that does not fit the state is refused, or with `replace` waits for `approve`.
        """
        headers = {"If-None-Match": "*"} if create else {}
        if revision is not None:
            headers["If-Match"] = f'"{revision}"'
        path = f"{_job_path(name)}?replace=true" if replace else _job_path(name)
        return self._request("PUT", path, of.Job, _encode_spec(spec), headers)

    def approve(
        self, name: str, state: Literal["keep", "replay"] | None = None
    ) -> of.Operation | of.Job:
        """Approve the pending spec; the job keeps its state, or replays its topic.

        Without `state`, the service keeps the state if it fits the new query. The answer is an
        operation, or the job if it has no state yet.
        """
        query = "" if state is None else f"?state={state}"
        text = self._send("POST", f"{_job_path(name)}/approve{query}")
        if "kind" in msgspec.json.decode(text):
            return msgspec.json.decode(text, type=of.Operation)
        return msgspec.json.decode(text, type=of.Job)

    def begin_anew(self, name: str) -> of.Job:
        """Approve the pending spec, and drop the table of the stopped job."""
        return self._request("POST", f"{_job_path(name)}/approve?state=drop", of.Job)

    def delete(self, name: str, *, drop_data: bool) -> None:
        data = "drop" if drop_data else "keep"
        self._send("DELETE", f"{_job_path(name)}?data={data}")

    def start(self, name: str) -> of.Job:
        return self._request("POST", f"{_job_path(name)}/start", of.Job)

    def pause(self, name: str) -> of.Job:
        return self._request("POST", f"{_job_path(name)}/pause", of.Job)

    def resume(self, name: str) -> of.Job:
        return self._request("POST", f"{_job_path(name)}/resume", of.Job)

    def stop(self, name: str) -> of.Job:
        return self._request("POST", f"{_job_path(name)}/stop", of.Job)

    def restart(self, name: str) -> of.Job:
        return self._request("POST", f"{_job_path(name)}/restart", of.Job)

    def until(self, name: str, *states: str, seconds: float = 60.0) -> of.Job:
        """Wait until a job is in one of these states and return it; raise TimeoutError."""
        deadline = time.monotonic() + seconds
        while (job := self.job(name)).actual not in states:
            if time.monotonic() > deadline:
                why = f": {job.reason}" if job.reason else ""
                raise TimeoutError(
                    f"job {name!r} is not {states[0]} after {seconds:g} s, but {job.actual}{why}"
                )
            time.sleep(0.1)
        return job

    def logs(self, name: str, limit: int = 100, level: str = "DEBUG") -> list[of.LogLine]:
        return self._get(f"{_job_path(name)}/logs", of.Logs, limit=limit, level=level).lines

    def plan(self, name: str) -> list[PlanNode]:
        return self._get(f"{_job_path(name)}/plan", of.JobPlan).nodes

    def offsets(self, name: str) -> of.JobOffsets:
        return self._get(f"{_job_path(name)}/offsets", of.JobOffsets)

    def move_offsets(
        self, name: str, offsets: of.Offsets | None, *, epoch: int | None = None
    ) -> of.Operation:
        """Move a stopped job to other offsets; None moves it to those of its source.start.

        With `epoch`, a job at another epoch is refused.
        """
        headers = {} if epoch is None else {"If-Match": f'"{epoch}"'}
        path = f"{_job_path(name)}/offsets"
        if offsets is None:
            return self._request("DELETE", path, of.Operation, None, headers)
        return self._request("PATCH", path, of.Operation, {"offsets": offsets}, headers)

    def watermarks(self, name: str) -> of.Watermarks:
        return self._get(f"{_job_path(name)}/watermarks", of.Watermarks)

    # --- results --------------------------------------------------------------------------------

    def result(self, name: str, key: Key, **options: Any) -> of.Result:
        """Return one group; `as_of`, `min_epoch`, `after_offset`, `wait` as in docs/rest.md."""
        return self._get(_group_path(name, key), of.Result, **options)

    def results(
        self, name: str, *where: str, order: str | None = None, page: int = 1_000, **options: Any
    ) -> Iterator[of.Row]:
        """Yield all rows that meet the conditions; all of them are of one epoch.

        `as_of`, `min_epoch`, `after_offset` and `wait` are those of docs/rest.md.
        """
        path, conditions = f"{_job_path(name)}/results", list(where)
        options = {"where": conditions, "order": order, "limit": page, **options}
        for found in self._read_pages(path, of.Listing, **options):
            yield from found.rows

    def views(self, name: str) -> list[of.View]:
        """Return the views of a job; a job with one query has none."""
        return self._get(f"{_job_path(name)}/views", of.Views).views

    def results_of_views(
        self, name: str, *views: str, limit: int = 1_000, **options: Any
    ) -> dict[str, of.Listing]:
        """Return the first rows of several views; all of them are of one epoch.

        `as_of`, `min_epoch`, `after_offset` and `wait` are those of docs/rest.md.
        """
        options = {"views": ",".join(views), "limit": limit, **options}
        found = self._get(f"{_job_path(name)}/results", of.Listings, **options)
        return found.views or {}

    def epoch_at(self, name: str, time_ms: int) -> int:
        """Return the newest epoch that was committed by a time."""
        options = {"as_of": f"time:{time_ms}", "limit": 1}
        return self._get(f"{_job_path(name)}/results", of.Listing, **options).epoch

    def explain(self, name: str, key: Key) -> Explained:
        return self._get(f"{_group_path(name, key)}/explain", Explained)

    def history(self, name: str, key: Key, limit: int = 1_000) -> of.History:
        return self._get(f"{_group_path(name, key)}/history", of.History, limit=limit)

    def changes(
        self,
        name: str,
        since: int | str | None = None,
        *,
        snapshot: bool = False,
        key: Key = None,
        patience: float = 60.0,
    ) -> Iterator[Change | Columns | Progress]:
        """Yield the changes after a position, without end.

        A Progress follows each epoch. Columns precede an epoch in which the query changed. A lost
        connection is opened again for up to `patience` seconds; the stream continues after the id
        of its last change.

        The rows of a snapshot have seq -1. A snapshot that was interrupted starts again with all of
        its rows.
        """
        at = None if since is None else str(since)
        if at is None and not snapshot:  # or a break before the first change would lose changes
            at = str(self.job(name).epoch or 0)
        pause = 0.1
        lost_at: float | None = None
        while True:
            restart = snapshot and at is None
            parameters = {
                "snapshot": "true" if restart else None,
                "since": None if restart else at,
                "key": None if key is None else _format_key(key),
            }
            try:
                for kind, identity, data in self._read_events(
                    f"{_job_path(name)}/changes", parameters
                ):
                    lost_at, pause = None, 0.1
                    if identity:
                        at = identity
                    if kind == "change":
                        document = json.loads(data)
                        yield msgspec.convert({"seq": -1, **document}, Change)
                    elif kind == "columns":
                        yield Columns(**json.loads(data))
                    elif kind == "progress":
                        found = json.loads(data)
                        at = identity or f"{found['epoch']}"
                        yield Progress(found["epoch"], found["watermark"], found.get("changes", 0))
                    elif kind == "gone":
                        raise Refused(json.loads(data))
            except CONNECTION_LOST as error:
                now = time.monotonic()
                lost_at = lost_at or now
                if now - lost_at > patience:
                    raise ConnectionError(f"the changes of {name!r} were lost: {error}") from error
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    # --- savepoints, quarantine, operations -----------------------------------------------------

    def savepoints(self, name: str) -> list[of.Savepoint]:
        return self._get(f"{_job_path(name)}/savepoints", of.Savepoints).savepoints

    def savepoint(self, name: str, called: str | None = None) -> of.Savepoint:
        return self._request(
            "POST", f"{_job_path(name)}/savepoints", of.Savepoint, {"name": called}
        )

    def drop_savepoint(self, name: str, called: str) -> None:
        self._send("DELETE", f"{_job_path(name)}/savepoints/{quote(called, safe='')}")

    def quarantine(self, name: str) -> Iterator[Quarantined]:
        for page in self._read_pages(f"{_job_path(name)}/quarantine", of.Quarantine):
            yield from page.messages

    def message(self, name: str, message: str) -> Quarantined:
        """Return a message of the quarantine, by its id, with all the bytes that were kept."""
        return self._get(_message_path(name, message), Quarantined)

    def replay(
        self, name: str, message: str, fixed: str | bytes | None = None, *, again: bool = False
    ) -> of.Operation:
        """Send a message of the quarantine, by its id, to its topic again."""
        body: JsonObject = {"message": fixed, "again": again}
        if isinstance(fixed, bytes):
            body = {"message_base64": b64encode(fixed).decode(), "again": again}
        return self._request("POST", f"{_message_path(name, message)}/replay", of.Operation, body)

    def replay_all(
        self, name: str, messages: Sequence[str], *, again: bool = False
    ) -> of.Operation:
        """Send messages of the quarantine to their topics again, unchanged, in this order."""
        body = {"ids": messages, "again": again}
        return self._request("POST", f"{_job_path(name)}/quarantine/replay", of.Operation, body)

    def audit(self, name: str) -> of.Operation:
        """Audit a job with all of its views, or one view as JOB.VIEW."""
        return self._request("POST", f"{_job_path(name)}/audit", of.Operation)

    def rewind(self, name: str, to: str | int) -> of.Operation:
        return self._request("POST", f"{_job_path(name)}/rewind", of.Operation, {"to": to})

    def clone(self, name: str, new: str, to: str | int | None = None) -> of.Operation:
        body = {"name": new, "to": to}
        return self._request("POST", f"{_job_path(name)}/clone", of.Operation, body)

    def difference(
        self, name: str, first: int, last: int | None = None
    ) -> Iterator[of.DifferingGroup]:
        """Yield the groups whose results differ between two epochs, with both rows."""
        epochs = {"from": first, "to": last}
        for page in self._read_pages(f"{_job_path(name)}/diff", of.Difference, **epochs):
            yield from page.rows

    def operations(self, name: str, limit: int = 100) -> list[of.Operation]:
        """Return the operations of a job, newest first."""
        return self._get(f"{_job_path(name)}/operations", of.Operations, limit=limit).operations

    def audit_log(self, limit: int = 100) -> list[of.AuditLogLine]:
        """Return who requested which change, newest first."""
        return self._get("/v1/audit-log", of.AuditLogLines, limit=limit).lines

    def topics(self, connection: str = "default") -> of.Topics:
        """Return the topics of a connection of the service, with their offsets."""
        return self._get("/v1/topics", of.Topics, connection=connection)

    def suggest(self, topic: str, connection: str = "default") -> str:
        """Return a spec for a topic as YAML, from its newest messages; check it before use."""
        path = f"/v1/topics/{quote(topic, safe='')}/suggestion"
        return self._get(path, of.SuggestedSpec, connection=connection).spec

    def operation(self, identity: str) -> of.Operation:
        return self._get(f"/v1/operations/{quote(identity, safe='')}", of.Operation)

    def wait_until_ended(self, operation: of.Operation, seconds: float = 600.0) -> of.Operation:
        """Wait until an operation is DONE or FAILED and return it; raise TimeoutError."""
        deadline = time.monotonic() + seconds
        while operation.state not in _ENDED:
            if time.monotonic() > deadline:
                raise TimeoutError(f"operation {operation.id} is {operation.state}")
            time.sleep(0.1)
            operation = self.operation(operation.id)
        return operation


def _job_path(name: str) -> str:
    return f"/v1/jobs/{quote(name, safe='')}"


def _message_path(name: str, message: str) -> str:
    return f"{_job_path(name)}/quarantine/{quote(message, safe='')}"


def _group_path(name: str, key: Key) -> str:
    return f"{_job_path(name)}/results/{quote(_format_key(key), safe='')}"


def _format_key(key: Key) -> str:
    """Return a key as addresses write it: a single value as text, or an object as JSON."""
    if isinstance(key, Mapping):
        return msgspec.json.encode(key).decode()
    return "true" if key is True else "false" if key is False else str(key)


def _encode_spec(spec: Spec) -> bytes:
    if isinstance(spec, bytes):
        return spec
    return spec.encode() if isinstance(spec, str) else msgspec.json.encode(spec)
