"""The client: the methods of the REST API, written once as coroutines.

    AsyncClient ──► these methods, on an AsyncConnection
    Client      ──► the same methods, on a BlockingConnection (retally.blocking)

A method that reads results takes a view as `JOB.VIEW`.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any, Literal, Self, TypeVar

from retally.addresses import (
    AsOf,
    Key,
    Offset,
    Spec,
    encode_spec,
    format_key,
    format_moment,
    group_path,
    job_path,
    message_path,
    quote,
)
from retally.documents import (
    AuditLogLine,
    DifferingGroup,
    Document,
    Explained,
    History,
    Job,
    JobOffsets,
    Listing,
    LogLine,
    Operation,
    PlanNode,
    Quarantined,
    Result,
    Savepoint,
    Topics,
    Valid,
    View,
    Watermarks,
    parse_document,
)
from retally.errors import Refused
from retally.following import Event, Follower
from retally.http import AsyncConnection, Connection, Request, encode_json
from retally.leader import LeaderConnection
from retally.results import AsyncAnswer, AsyncResults

_Form = TypeVar("_Form", bound=Document)
_ENDED = ("DONE", "FAILED")
_PAUSE_SECONDS = 0.1
_WAIT_SECONDS_MAX = 10.0  # of one request


class AsyncClient:
    """One service; its methods may run at the same time. Each stream has its own connection."""

    address: str

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.address = connection.address

    @classmethod
    def connect(cls, address: str, token: str | None = None, *, seconds: float = 90.0) -> Self:
        connect = partial(AsyncConnection, token=token, seconds=seconds)
        return cls(LeaderConnection(connect, address))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.address}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connection.close()

    # --- results --------------------------------------------------------------------------------

    def results(
        self,
        name: str,
        *,
        where: str | Sequence[str] = (),
        order: str | None = None,
        limit: int | None = None,
        as_of: AsOf | None = None,
        min_epoch: int | None = None,
        after_offset: Offset | None = None,
        wait: float | None = None,
    ) -> AsyncResults:
        """Return the rows that meet all conditions, such as `n>=10`; all of them of one epoch.

        `order` is such as `-n,name`. With `min_epoch` or `after_offset`, the service waits up to
        `wait` seconds until the results include that epoch or record.
        """
        parameters = {
            "where": [where] if isinstance(where, str) else list(where),
            "order": order,
            **format_moment(as_of, min_epoch, after_offset, wait),
        }
        return AsyncResults(self._connection, f"{job_path(name)}/results", parameters, limit)

    async def group(
        self,
        name: str,
        key: Key,
        *,
        as_of: AsOf | None = None,
        min_epoch: int | None = None,
        after_offset: Offset | None = None,
        wait: float | None = None,
    ) -> Result:
        """Return one group with its epoch; without such a group, raise Refused group-unknown."""
        moment = format_moment(as_of, min_epoch, after_offset, wait)
        return await self._get(group_path(name, key), Result, **moment)

    async def explain(self, name: str, key: Key) -> Explained:
        """Return why a group has its values: its values with their counts, epochs, offsets."""
        return await self._get(f"{group_path(name, key)}/explain", Explained)

    async def history(self, name: str, key: Key, *, limit: int = 1_000) -> History:
        """Return the changes of a group, as far as they are kept."""
        return await self._get(f"{group_path(name, key)}/history", History, limit=limit)

    async def diff(self, name: str, first: int, last: int | None = None) -> list[DifferingGroup]:
        """Return the groups whose results differ between two epochs, with both rows."""
        epochs = {"from": first, "to": last}
        return await self._list(f"{job_path(name)}/diff", "rows", DifferingGroup, **epochs)

    async def views(self, name: str) -> list[View]:
        """Return the views of a job; a job with one query has none."""
        return await self._list(f"{job_path(name)}/views", "views", View)

    async def results_of_views(
        self,
        name: str,
        *views: str,
        limit: int = 1_000,
        as_of: AsOf | None = None,
        min_epoch: int | None = None,
    ) -> dict[str, Listing]:
        """Return the first rows of several views; all of them are of one epoch."""
        moment = format_moment(as_of, min_epoch, None, None)
        path, named = f"{job_path(name)}/results", ",".join(views)
        found = await self._get(path, Document, views=named, limit=limit, **moment)
        return {view: Listing(each) for view, each in found["views"].items()}

    async def epoch_at(self, name: str, moment: datetime | int) -> int:
        """Return the newest epoch that was committed by a time; a number is milliseconds."""
        as_of = moment if isinstance(moment, datetime) else f"time:{moment}"
        found = await self._get(
            f"{job_path(name)}/results", Listing, limit=1, **format_moment(as_of)
        )
        return found.epoch

    def sql(self, statement: str) -> AsyncAnswer:
        """Return the answer of a SELECT over the results of all jobs.

        Each job is a table; `items AT EPOCH 41` is its past.
        """
        return AsyncAnswer(self._connection, statement)

    async def wait(
        self,
        name: str,
        *,
        epoch: int | None = None,
        offset: Offset | None = None,
        seconds: float = 60.0,
    ) -> int:
        """Wait until the results include an epoch or a record, and return their epoch.

        Raise TimeoutError after `seconds`.
        """
        if (epoch is None) == (offset is None):
            raise TypeError("wait for either an epoch or an offset")
        deadline = time.monotonic() + seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            moment = format_moment(None, epoch, offset, min(left, _WAIT_SECONDS_MAX))
            try:
                path = f"{job_path(name)}/results"
                return (await self._get(path, Listing, limit=1, **moment)).epoch
            except Refused as error:
                if not error.retryable:
                    raise
                if time.monotonic() >= deadline:
                    raise TimeoutError(error.detail) from error
                if error.code != "epoch-not-reached":  # for which the service has waited
                    await self._connection.sleep(error.retry_after or _PAUSE_SECONDS)

    async def follow(
        self,
        name: str,
        since: int | str | None = None,
        *,
        snapshot: bool = False,
        key: Key = None,
        patience: float = 60.0,
        resnapshot: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Yield the changes after a position, without end; by default after the newest epoch.

        A Progress follows each epoch; its `position` is a later `since`. Columns precede an epoch
        in which the query changed. A lost connection is opened again for up to `patience` seconds,
        and the stream continues after its last change.

        The rows of a snapshot have seq -1. If the position is no longer kept, the stream raises
        Gap. With `resnapshot` it yields Restarted and a new snapshot instead; so it does after a
        cut inside a snapshot.
        """
        position = None if since is None else str(since)
        if position is None and not snapshot:  # or a cut before the first event would lose changes
            position = str((await self.job(name.partition(".")[0])).epoch or 0)
        given = None if key is None else format_key(key)
        path = f"{job_path(name)}/changes"
        follower = Follower(self._connection, path, position, given, patience, resnapshot)
        async with aclosing(follower.follow()) as events:
            async for event in events:
                yield event

    # --- jobs -----------------------------------------------------------------------------------

    async def jobs(self, state: str | None = None, *, label: str | None = None) -> list[Job]:
        """Return all jobs, or those in a state such as `FAILED`, or with a label."""
        return await self._list("/v1/jobs", "jobs", Job, state=state, label=label)

    async def job(self, name: str) -> Job:
        return await self._get(job_path(name), Job)

    async def validate(self, spec: Spec) -> Valid:
        """Return the columns and notes of a spec; raise Refused spec-invalid with all mistakes."""
        return await self._send("POST", "/v1/jobs:validate", Valid, encode_spec(spec))

    async def put(
        self,
        spec: Spec,
        name: str | None = None,
        *,
        create: bool = False,
        revision: int | None = None,
        replace: bool = False,
    ) -> Job:
        """Create a job, or change its spec; a spec is YAML text, a dict, or a Path.

        With `create`, an existing job is refused; with `revision`, a job at another revision. A
        spec that does not fit the state is refused, or with `replace` waits for `approve`.
        """
        body = encode_spec(spec)
        if name is None:
            name = spec["name"] if isinstance(spec, Mapping) else await self._read_name(body)
        headers = {"If-None-Match": "*"} if create else {}
        if revision is not None:
            headers["If-Match"] = f'"{revision}"'
        parameters = {"replace": "true" if replace else None}
        return await self._send("PUT", job_path(name), Job, body, headers, **parameters)

    async def _read_name(self, body: bytes) -> str:
        """Return the name in a spec; it is the service that parses YAML."""
        valid = await self._send("POST", "/v1/jobs:validate", Valid, body)
        return str(valid.spec["name"])

    async def approve(
        self, name: str, state: Literal["keep", "replay", "drop"] | None = None
    ) -> Operation | Job:
        """Approve the pending spec; the job keeps its state, replays its topic, or drops its table.

        Without `state`, the service keeps the state if it fits the new query. The answer is an
        operation, or the job if that is all.
        """
        path = f"{job_path(name)}/approve"
        found = await self._send("POST", path, Document, state=state)
        return Operation(found) if "kind" in found else Job(found)

    async def delete(self, name: str, *, drop_data: bool) -> None:
        data = "drop" if drop_data else "keep"
        await self._request(Request("DELETE", job_path(name), {"data": data}))

    async def start(self, name: str) -> Job:
        return await self._send("POST", f"{job_path(name)}/start", Job)

    async def pause(self, name: str) -> Job:
        return await self._send("POST", f"{job_path(name)}/pause", Job)

    async def resume(self, name: str) -> Job:
        return await self._send("POST", f"{job_path(name)}/resume", Job)

    async def stop(self, name: str) -> Job:
        return await self._send("POST", f"{job_path(name)}/stop", Job)

    async def restart(self, name: str) -> Job:
        return await self._send("POST", f"{job_path(name)}/restart", Job)

    async def until(self, name: str, *states: str, seconds: float = 60.0) -> Job:
        """Wait until a job is in one of these states and return it; raise TimeoutError."""
        deadline = time.monotonic() + seconds
        while (job := await self.job(name)).actual not in states:
            if time.monotonic() > deadline:
                why = f": {job.reason}" if job.reason else ""
                raise TimeoutError(
                    f"job {name!r} is not {states[0]} after {seconds:g} s, but {job.actual}{why}"
                )
            await self._connection.sleep(_PAUSE_SECONDS)
        return job

    async def logs(self, name: str, *, limit: int = 100, level: str = "DEBUG") -> list[LogLine]:
        path = f"{job_path(name)}/logs"
        return await self._list(path, "lines", LogLine, limit=limit, level=level)

    async def plan(self, name: str) -> list[PlanNode]:
        return await self._list(f"{job_path(name)}/plan", "nodes", PlanNode)

    async def watermarks(self, name: str) -> Watermarks:
        return await self._get(f"{job_path(name)}/watermarks", Watermarks)

    async def offsets(self, name: str) -> JobOffsets:
        return await self._get(f"{job_path(name)}/offsets", JobOffsets)

    async def move_offsets(
        self, name: str, offsets: dict[str, dict[str, int]] | None, *, epoch: int | None = None
    ) -> Operation:
        """Move a stopped job to other offsets; None moves it to those of its source.start.

        With `epoch`, a job at another epoch is refused.
        """
        headers = {} if epoch is None else {"If-Match": f'"{epoch}"'}
        path = f"{job_path(name)}/offsets"
        if offsets is None:
            return await self._send("DELETE", path, Operation, None, headers)
        return await self._send("PATCH", path, Operation, {"offsets": offsets}, headers)

    # --- savepoints, quarantine, operations -----------------------------------------------------

    async def savepoints(self, name: str) -> list[Savepoint]:
        return await self._list(f"{job_path(name)}/savepoints", "savepoints", Savepoint)

    async def savepoint(self, name: str, called: str | None = None) -> Savepoint:
        """Create a savepoint of the newest epoch."""
        path = f"{job_path(name)}/savepoints"
        return await self._send("POST", path, Savepoint, {"name": called})

    async def drop_savepoint(self, name: str, called: str) -> None:
        await self._request(Request("DELETE", f"{job_path(name)}/savepoints/{quote(called)}"))

    async def rewind(self, name: str, to: str | int) -> Operation:
        """Return a stopped job to an earlier epoch or a savepoint."""
        return await self._send("POST", f"{job_path(name)}/rewind", Operation, {"to": to})

    async def clone(self, name: str, new: str, to: str | int | None = None) -> Operation:
        """Create a stopped job with the state of this one."""
        body = {"name": new, "to": to}
        return await self._send("POST", f"{job_path(name)}/clone", Operation, body)

    async def audit(self, name: str) -> Operation:
        """Audit a job with all of its views, or one view as JOB.VIEW."""
        return await self._send("POST", f"{job_path(name)}/audit", Operation)

    async def quarantine(self, name: str) -> list[Quarantined]:
        return await self._list(f"{job_path(name)}/quarantine", "messages", Quarantined)

    async def message(self, name: str, message: str) -> Quarantined:
        """Return a message of the quarantine, by its id, with all the bytes that were kept."""
        return await self._get(message_path(name, message), Quarantined)

    async def replay(
        self, name: str, message: str, fixed: str | bytes | None = None, *, again: bool = False
    ) -> Operation:
        """Send a message of the quarantine, by its id, to its topic again."""
        body: dict[str, object] = {"message": fixed, "again": again}
        if isinstance(fixed, bytes):
            body = {"message_base64": b64encode(fixed).decode(), "again": again}
        return await self._send("POST", f"{message_path(name, message)}/replay", Operation, body)

    async def replay_all(
        self, name: str, messages: Sequence[str], *, again: bool = False
    ) -> Operation:
        """Send messages of the quarantine to their topics again, unchanged, in this order."""
        body = {"ids": messages, "again": again}
        return await self._send("POST", f"{job_path(name)}/quarantine/replay", Operation, body)

    async def operations(self, name: str, *, limit: int = 100) -> list[Operation]:
        """Return the operations of a job, newest first."""
        path = f"{job_path(name)}/operations"
        return await self._list(path, "operations", Operation, limit=limit)

    async def operation(self, identity: str) -> Operation:
        return await self._get(f"/v1/operations/{quote(identity)}", Operation)

    async def wait_until_ended(self, operation: Operation, seconds: float = 600.0) -> Operation:
        """Wait until an operation is DONE or FAILED and return it; raise TimeoutError."""
        deadline = time.monotonic() + seconds
        while operation.state not in _ENDED:
            if time.monotonic() > deadline:
                raise TimeoutError(f"operation {operation.id} is {operation.state}")
            await self._connection.sleep(_PAUSE_SECONDS)
            operation = await self.operation(operation.id)
        return operation

    async def audit_log(self, *, limit: int = 100) -> list[AuditLogLine]:
        """Return who requested which change, newest first."""
        return await self._list("/v1/audit-log", "lines", AuditLogLine, limit=limit)

    # --- topics, and the service itself ---------------------------------------------------------

    async def topics(self, connection: str = "default") -> Topics:
        """Return the topics of a connection of the service, with their offsets."""
        return await self._get("/v1/topics", Topics, connection=connection)

    async def suggest(self, topic: str, connection: str = "default") -> str:
        """Return a spec for a topic as YAML, from its newest messages; check it before use."""
        path = f"/v1/topics/{quote(topic)}/suggestion"
        return str((await self._get(path, Document, connection=connection))["spec"])

    async def metrics(self) -> str:
        """Return the metrics of the service in Prometheus' text format."""
        return (await self._request(Request("GET", "/metrics"))).decode()

    # --- requests -------------------------------------------------------------------------------

    async def _get(self, path: str, form: type[_Form], **parameters: Any) -> _Form:
        return form(parse_document(await self._request(Request("GET", path, parameters))))

    async def _list(
        self, path: str, field: str, form: type[_Form], **parameters: Any
    ) -> list[_Form]:
        """Return the items of all pages."""
        found: list[_Form] = []
        cursor: str | None = None
        while True:
            page = await self._get(path, Document, **parameters, cursor=cursor)
            found += map(form, page[field])
            cursor = page.get("next_cursor")
            if cursor is None:
                return found

    async def _send(
        self,
        method: str,
        path: str,
        form: type[_Form],
        body: bytes | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **parameters: Any,
    ) -> _Form:
        given = body if body is None or isinstance(body, bytes) else encode_json(body)
        request = Request(method, path, parameters, given, headers or {})
        return form(parse_document(await self._request(request)))

    async def _request(self, request: Request) -> bytes:
        return (await self._connection.send(request)).content
