"""The client: the service from Python, with answers as types.

    client = Client("http://127.0.0.1:8080", token)
    client.put("items", Path("items.yaml").read_text())
    client.start("items")
    client.result("items", "bolt").row
    for change in client.changes("items", since=client.job("items").epoch): ...

What is refused is a `Refused` with the code that stays. A stream that breaks is taken up again
where it was, so no change is lost or told twice. Of the standard library only, and msgspec.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from service.routes import documents as of

Answer = TypeVar("Answer")
Spec = str | bytes | Mapping[str, Any]
Key = Any  # the value of the group column, or a dict of all of them

_LOOKS = ("GET", "HEAD")
_ENDED = ("DONE", "FAILED")
_PAUSE_SECONDS_MAX = 10.0
_CONNECTION_LOST = (http.client.HTTPException, OSError)


class Refused(Exception):
    """The service said no; `code` says why, for programs."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.status = int(document.get("status", 0))
        self.code = str(document.get("code", "unknown"))
        self.detail = str(document.get("detail", ""))
        self.errors: list[dict[str, Any]] = list(document.get("errors", ()))
        self.document = dict(document)
        places = "".join(
            f"\n  {each.get('line') or ''}:{each.get('path', '')}: {each.get('message', '')}"
            for each in self.errors
        )
        super().__init__(f"{self.code}: {self.detail}{places}")


@dataclass(frozen=True, slots=True)
class Columns:
    """That the job's query is another from this epoch on: its columns, with their types."""

    epoch: int
    columns: dict[str, str]


@dataclass(frozen=True, slots=True)
class Progress:
    """That an epoch is complete; a stream of changes has one after each."""

    epoch: int
    watermark: int | None
    changes: int


class Client:
    """One service. Safe to be used by several threads; each stream has a connection of its own."""

    def __init__(self, address: str, token: str | None = None, *, seconds: float = 90.0) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{address!r} is no address; write it like http://127.0.0.1:8080")
        self.address = address
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._seconds = seconds
        self._lock = threading.Lock()
        self._kept: http.client.HTTPConnection | None = None

    def close(self) -> None:
        with self._lock:
            if self._kept is not None:
                self._kept.close()
                self._kept = None

    # --- jobs -----------------------------------------------------------------------------------

    def jobs(self, state: str | None = None) -> Iterator[of.Job]:
        cursor: str | None = None
        while True:
            page = self._get("/v1/jobs", of.Jobs, state=state, cursor=cursor)
            yield from page.jobs
            cursor = page.next_cursor
            if cursor is None:
                return

    def job(self, name: str) -> of.Job:
        return self._get(_job(name), of.Job)

    def validate(self, spec: Spec) -> of.Valid:
        return self._ask("POST", "/v1/jobs:validate", of.Valid, _text(spec))

    def put(
        self,
        name: str,
        spec: Spec,
        *,
        create: bool = False,
        revision: int | None = None,
        replace: bool = False,
    ) -> of.Job:
        """Create a job or change it; with `create` only the former, with `revision` only that. A
        spec that does not fit the state is refused, or with `replace` waits for `approve`."""
        headers = {"If-None-Match": "*"} if create else {}
        if revision is not None:
            headers["If-Match"] = f'"{revision}"'
        place = f"{_job(name)}?replace=true" if replace else _job(name)
        return self._ask("PUT", place, of.Job, _text(spec), headers)

    def approve(self, name: str, state: Literal["keep", "replay"] | None = None) -> of.Operation:
        """Take the pending spec: the job goes on under it with the state that it has (`keep`, also
        without `state`, where that answers it) or with its topic read again (`replay`)."""
        query = "" if state is None else f"?state={state}"
        return self._ask("POST", f"{_job(name)}/approve{query}", of.Operation)

    def begin_anew(self, name: str) -> of.Job:
        """Take the pending spec: the stopped job's table is dropped, and it begins anew."""
        return self._ask("POST", f"{_job(name)}/approve?state=drop", of.Job)

    def delete(self, name: str, *, drop_data: bool) -> None:
        data = "drop" if drop_data else "keep"
        self._send("DELETE", f"{_job(name)}?data={data}")

    def start(self, name: str) -> of.Job:
        return self._ask("POST", f"{_job(name)}/start", of.Job)

    def pause(self, name: str) -> of.Job:
        return self._ask("POST", f"{_job(name)}/pause", of.Job)

    def resume(self, name: str) -> of.Job:
        return self._ask("POST", f"{_job(name)}/resume", of.Job)

    def stop(self, name: str) -> of.Job:
        return self._ask("POST", f"{_job(name)}/stop", of.Job)

    def restart(self, name: str) -> of.Job:
        return self._ask("POST", f"{_job(name)}/restart", of.Job)

    def until(self, name: str, *states: str, seconds: float = 60.0) -> of.Job:
        """The job once it is in one of these states; TimeoutError says in which it is instead."""
        deadline = time.monotonic() + seconds
        while (job := self.job(name)).actual not in states:
            if time.monotonic() > deadline:
                raise TimeoutError(f"job {name!r} is {job.actual}: {job.reason or 'no reason'}")
            time.sleep(0.1)
        return job

    def logs(self, name: str, limit: int = 100, level: str = "DEBUG") -> list[of.LogLine]:
        return self._get(f"{_job(name)}/logs", of.Logs, limit=limit, level=level).lines

    def offsets(self, name: str) -> of.JobOffsets:
        return self._get(f"{_job(name)}/offsets", of.JobOffsets)

    def move_offsets(
        self, name: str, offsets: of.Offsets | None, *, epoch: int | None = None
    ) -> of.Operation:
        """Let a stopped job go on from other offsets; None: from those of its source.start. With
        `epoch` only where the job is at that one."""
        headers = {} if epoch is None else {"If-Match": f'"{epoch}"'}
        place = f"{_job(name)}/offsets"
        if offsets is None:
            return self._ask("DELETE", place, of.Operation, None, headers)
        return self._ask("PATCH", place, of.Operation, {"offsets": offsets}, headers)

    def watermarks(self, name: str) -> of.Watermarks:
        return self._get(f"{_job(name)}/watermarks", of.Watermarks)

    # --- results --------------------------------------------------------------------------------

    def result(self, name: str, key: Key, **options: Any) -> of.Result:
        """One group; `as_of`, `min_epoch`, `after_offset`, `wait` as in docs/rest.md."""
        return self._get(_group(name, key), of.Result, **options)

    def results(
        self, name: str, *where: str, order: str | None = None, page: int = 1_000, **options: Any
    ) -> Iterator[of.Row]:
        """All rows that fit, of one epoch whatever is committed meanwhile."""
        cursor: str | None = None
        while True:
            found = self._get(
                f"{_job(name)}/results", of.Listing, where=list(where), order=order, limit=page,
                cursor=cursor, **options,
            )  # fmt: skip
            yield from found.rows
            cursor = found.next_cursor
            if cursor is None:
                return

    def explain(self, name: str, key: Key) -> of.Explained:
        return self._get(f"{_group(name, key)}/explain", of.Explained)

    def history(self, name: str, key: Key, limit: int = 1_000) -> of.History:
        return self._get(f"{_group(name, key)}/history", of.History, limit=limit)

    def changes(
        self,
        name: str,
        since: int | str | None = None,
        *,
        snapshot: bool = False,
        key: Key = None,
        patience: float = 60.0,
    ) -> Iterator[of.Change | Columns | Progress]:
        """The changes after a place, for ever, and after each epoch its Progress; Columns before
        one in which the query changed. A connection that
        breaks is made again for up to `patience` seconds; the last change is known by its id.

        A snapshot's rows have seq -1; one that breaks begins anew, with all of its rows.
        """
        at = None if since is None else str(since)
        if at is None and not snapshot:  # or a break before the first change would lose some
            at = str(self.job(name).epoch or 0)
        pause = 0.1
        lost_at: float | None = None
        while True:
            begun = snapshot and at is None
            asked = {
                "snapshot": "true" if begun else None,
                "since": None if begun else at,
                "key": None if key is None else _key(key),
            }
            try:
                for kind, identity, data in self._events(f"{_job(name)}/changes", asked):
                    lost_at, pause = None, 0.1
                    if identity:
                        at = identity
                    if kind == "change":
                        document = json.loads(data)
                        yield msgspec.convert({"seq": -1, **document}, of.Change)
                    elif kind == "columns":
                        yield Columns(**json.loads(data))
                    elif kind == "progress":
                        told = json.loads(data)
                        at = identity or f"{told['epoch']}"
                        yield Progress(told["epoch"], told["watermark"], told.get("changes", 0))
                    elif kind == "gone":
                        raise Refused(json.loads(data))
            except _CONNECTION_LOST as error:
                now = time.monotonic()
                lost_at = lost_at or now
                if now - lost_at > patience:
                    raise ConnectionError(f"the changes of {name!r} were lost: {error}") from error
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    # --- savepoints, quarantine, operations -----------------------------------------------------

    def savepoints(self, name: str) -> list[of.Savepoint]:
        return self._get(f"{_job(name)}/savepoints", of.Savepoints).savepoints

    def savepoint(self, name: str, called: str | None = None) -> of.Savepoint:
        return self._ask("POST", f"{_job(name)}/savepoints", of.Savepoint, {"name": called})

    def drop_savepoint(self, name: str, called: str) -> None:
        self._send("DELETE", f"{_job(name)}/savepoints/{quote(called, safe='')}")

    def quarantine(self, name: str) -> Iterator[of.Quarantined]:
        cursor: str | None = None
        while True:
            page = self._get(f"{_job(name)}/quarantine", of.Quarantine, cursor=cursor)
            yield from page.messages
            cursor = page.next_cursor
            if cursor is None:
                return

    def replay(self, name: str, message: str, fixed: str | None = None) -> of.Operation:
        """Send a message of the quarantine, by its id, to its topic again."""
        place = f"{_job(name)}/quarantine/{quote(message, safe='')}/replay"
        return self._ask("POST", place, of.Operation, {"message": fixed})

    def audit(self, name: str) -> of.Operation:
        return self._ask("POST", f"{_job(name)}/audit", of.Operation)

    def rewind(self, name: str, to: str | int) -> of.Operation:
        return self._ask("POST", f"{_job(name)}/rewind", of.Operation, {"to": to})

    def clone(self, name: str, new: str, to: str | int | None = None) -> of.Operation:
        body = {"name": new, "to": to}
        return self._ask("POST", f"{_job(name)}/clone", of.Operation, body)

    def operation(self, identity: str) -> of.Operation:
        return self._get(f"/v1/operations/{quote(identity, safe='')}", of.Operation)

    def ended(self, operation: of.Operation, seconds: float = 600.0) -> of.Operation:
        """The operation once it is DONE or FAILED."""
        deadline = time.monotonic() + seconds
        while operation.state not in _ENDED:
            if time.monotonic() > deadline:
                raise TimeoutError(f"operation {operation.id} is {operation.state}")
            time.sleep(0.1)
            operation = self.operation(operation.id)
        return operation

    # --- HTTP -----------------------------------------------------------------------------------

    def _get(self, path: str, form: type[Answer], **parameters: Any) -> Answer:
        query = _query(parameters)
        return self._ask("GET", f"{path}?{query}" if query else path, form)

    def _ask(
        self,
        method: str,
        path: str,
        form: type[Answer],
        body: bytes | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        given = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        return msgspec.json.decode(self._send(method, path, given, headers), type=form)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The body of an answer. A kept connection that the service has closed meanwhile is made
        anew for looks; a change is never sent twice."""
        sent = {**self._headers, **(headers or {}), "Accept": "application/json"}
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None and method not in _LOOKS:
            kept.close()
            kept = None
        for connection in ([kept] if kept is not None else []) + [self._connection()]:
            try:
                connection.request(method, self._prefix + path, body, sent)
                answer = connection.getresponse()
                text = answer.read()
            except _CONNECTION_LOST:
                connection.close()
                if connection is kept:
                    continue
                raise
            self._keep(connection)
            if answer.status >= 400:
                raise _refused(answer.status, text)
            return text
        raise AssertionError("the last connection either answers or raises")

    def _events(
        self, path: str, parameters: Mapping[str, Any]
    ) -> Iterator[tuple[str, str | None, str]]:
        """Server-sent events as kind, id and data, until the connection ends."""
        connection = self._connection()
        try:
            query = _query(parameters)
            sent = {**self._headers, "Accept": "text/event-stream"}
            connection.request("GET", f"{self._prefix}{path}?{query}", headers=sent)
            answer = connection.getresponse()
            if answer.status != 200:
                raise _refused(answer.status, answer.read())
            kind: str = "message"
            identity: str | None = None
            data = ""
            while line := answer.readline():
                name, _, value = line.decode().rstrip("\r\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "id":
                    identity = value
                elif name == "data":
                    data = value
                elif not name and data:
                    yield kind, identity, data
                    kind, identity, data = "message", None, ""
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._seconds, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._seconds)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            spare, self._kept = self._kept, connection
        if spare is not None:
            spare.close()


def _job(name: str) -> str:
    return f"/v1/jobs/{quote(name, safe='')}"


def _group(name: str, key: Key) -> str:
    return f"{_job(name)}/results/{quote(_key(key), safe='')}"


def _key(key: Key) -> str:
    """A group as addresses name it: a text as it is, what could be misread as an object."""
    if isinstance(key, Mapping):
        return msgspec.json.encode(key).decode()
    return "true" if key is True else "false" if key is False else str(key)


def _text(spec: Spec) -> bytes:
    if isinstance(spec, bytes):
        return spec
    return spec.encode() if isinstance(spec, str) else msgspec.json.encode(spec)


def _query(parameters: Mapping[str, Any]) -> str:
    """Parameters that are None are not given; lists are given several times."""
    return urlencode({k: v for k, v in parameters.items() if v is not None}, doseq=True)


def _refused(status: int, text: bytes) -> Refused:
    try:
        return Refused(msgspec.json.decode(text, type=dict[str, Any]))
    except msgspec.DecodeError:  # a proxy's word
        return Refused({"status": status, "detail": text[:200].decode("utf-8", "replace")})
