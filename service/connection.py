"""HTTP connections to the service: JSON, pages of a list, server-sent events."""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from schemas.types.json_types import JsonObject

Document = TypeVar("Document")

_READ_METHODS = ("GET", "HEAD")
CONNECTION_LOST = (http.client.HTTPException, OSError)


class Refused(Exception):
    """The service refused a request; programs read the reason from `code`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.status = int(document.get("status", 0))
        self.code = str(document.get("code", "unknown"))
        self.detail = str(document.get("detail", ""))
        self.errors: list[JsonObject] = list(document.get("errors", ()))
        self.document = dict(document)
        positions = "".join(
            f"\n  {':'.join(map(str, filter(None, (each.get('line'), each.get('path')))))}: "
            f"{each.get('message', '')}"
            for each in self.errors
        )
        super().__init__(f"{self.code}: {self.detail}{positions}")


class Connection:
    """Requests to one service; thread-safe. Each stream has its own connection."""

    def __init__(self, address: str, token: str | None = None, *, seconds: float = 90.0) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{address!r} is not an address; write one like http://127.0.0.1:8080")
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

    def _get(self, path: str, form: type[Document], **parameters: Any) -> Document:
        query = _encode_query(parameters)
        return self._request("GET", f"{path}?{query}" if query else path, form)

    def _read_pages(self, path: str, form: type[Document], **parameters: Any) -> Iterator[Document]:
        """Yield all pages of a list; each has the cursor of the next one."""
        cursor: str | None = None
        while True:
            page: Any = self._get(path, form, **parameters, cursor=cursor)
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return

    def _request(
        self,
        method: str,
        path: str,
        form: type[Document],
        body: bytes | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Document:
        given = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        return msgspec.json.decode(self._send(method, path, given, headers), type=form)

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send a request and return the body of the response.

        The service may have closed the kept connection. Then a read is sent again on a new
        connection; a change uses a new one from the start, so that it is never sent twice.
        """
        sent = {**self._headers, **(headers or {}), "Accept": "application/json"}
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None and method not in _READ_METHODS:
            kept.close()
            kept = None
        for connection in ([kept] if kept is not None else []) + [self._connect()]:
            try:
                connection.request(method, self._prefix + path, body, sent)
                answer = connection.getresponse()
                text = answer.read()
            except CONNECTION_LOST:
                connection.close()
                if connection is kept:
                    continue
                raise
            self._keep(connection)
            if answer.status >= 400:
                raise _make_refused(answer.status, text)
            return text
        raise AssertionError("the last connection either returns or raises")

    def _read_events(
        self, path: str, parameters: Mapping[str, Any]
    ) -> Iterator[tuple[str, str | None, str]]:
        """Yield server-sent events as kind, id and data, until the connection ends."""
        connection = self._connect()
        try:
            query = _encode_query(parameters)
            sent = {**self._headers, "Accept": "text/event-stream"}
            connection.request("GET", f"{self._prefix}{path}?{query}", headers=sent)
            answer = connection.getresponse()
            if answer.status != 200:
                raise _make_refused(answer.status, answer.read())
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

    def _connect(self) -> http.client.HTTPConnection:
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


def _encode_query(parameters: Mapping[str, Any]) -> str:
    """Encode a query: omit None, repeat the name for each item of a list."""
    return urlencode({k: v for k, v in parameters.items() if v is not None}, doseq=True)


def _make_refused(status: int, text: bytes) -> Refused:
    try:
        return Refused(msgspec.json.decode(text, type=JsonObject))
    except msgspec.DecodeError:  # from a proxy
        return Refused({"status": status, "detail": text[:200].decode("utf-8", "replace")})
