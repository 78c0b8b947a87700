"""HTTP: one service behind a base URL, by a blocking or an asynchronous connection.

    methods of the client ──Request──► Connection ──► httpx ──► the service
                                           └── problem+json, redirects, lost connections ──► errors

Everything above this module is written once, as coroutines. Those of a BlockingConnection never
suspend, so `retally.blocking` can run them without an event loop.

The token is sent to the base URL only: no redirect is followed. retally.leader chooses among
several.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Protocol

import httpx

from retally.errors import Gap, Refused, RetallyError, Unreachable

READ_METHODS = ("GET", "HEAD")
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")
_CONNECT_SECONDS = 10.0  # a host that is gone does not answer at all
_DETAIL_CHARACTERS_MAX = 200  # of an answer that is not ours, such as a proxy's page


@dataclass(frozen=True, slots=True)
class Request:
    """One request; `path` is percent-encoded and below the base URL."""

    method: str
    path: str
    parameters: Mapping[str, Any] = field(default_factory=dict)  # None is left out
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Connection(Protocol):
    """How requests reach the service; safe for threads, or for the tasks of an event loop."""

    address: str

    async def send(self, request: Request) -> httpx.Response: ...

    def stream(self, request: Request) -> AsyncGenerator[bytes, None]: ...

    async def sleep(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class BlockingConnection:
    def __init__(self, address: str, token: str | None, seconds: float) -> None:
        options = _make_options(address, token, seconds)
        self.address = address
        self._reads = httpx.Client(**options)
        self._changes = httpx.Client(**options, limits=_SENT_ONCE)

    async def send(self, request: Request) -> httpx.Response:
        attempts = _count_attempts(request)
        while True:
            attempts -= 1
            try:
                client = self._reads if request.method in READ_METHODS else self._changes
                return _check(client.request(**_arguments(request)))
            except httpx.HTTPError as error:
                if not attempts or not isinstance(error, _STALE):
                    raise _unreachable(self.address, error) from error

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        try:
            with self._changes.stream(**_arguments(request)) as response:
                if response.status_code != 200:
                    response.read()
                    _check(response)
                for piece in response.iter_bytes():
                    yield piece
        except httpx.HTTPError as error:
            raise _unreachable(self.address, error) from error

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def close(self) -> None:
        self._reads.close()
        self._changes.close()


class AsyncConnection:
    def __init__(self, address: str, token: str | None, seconds: float) -> None:
        options = _make_options(address, token, seconds)
        self.address = address
        self._reads = httpx.AsyncClient(**options)
        self._changes = httpx.AsyncClient(**options, limits=_SENT_ONCE)

    async def send(self, request: Request) -> httpx.Response:
        attempts = _count_attempts(request)
        while True:
            attempts -= 1
            try:
                client = self._reads if request.method in READ_METHODS else self._changes
                return _check(await client.request(**_arguments(request)))
            except httpx.HTTPError as error:
                if not attempts or not isinstance(error, _STALE):
                    raise _unreachable(self.address, error) from error

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        try:
            async with self._changes.stream(**_arguments(request)) as response:
                if response.status_code != 200:
                    await response.aread()
                    _check(response)
                async for piece in response.aiter_bytes():
                    yield piece
        except httpx.HTTPError as error:
            raise _unreachable(self.address, error) from error

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._reads.aclose()
        await self._changes.aclose()


# The service may close a kept connection at any time. Then a read is sent once more; a change has
# a connection of its own from the start, so that it is never sent twice.
_SENT_ONCE = httpx.Limits(max_keepalive_connections=0)
_STALE = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


def _count_attempts(request: Request) -> int:
    return 2 if request.method in READ_METHODS else 1


def _make_options(address: str, token: str | None, seconds: float) -> dict[str, Any]:
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise ValueError(f"{address!r} is not an address; write one like http://127.0.0.1:8080")
    if url.userinfo:
        raise ValueError("an address takes no name and password; give the token as token=")
    return {
        "base_url": url,
        "headers": {} if token is None else {"Authorization": f"Bearer {token}"},
        "timeout": httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS)),
        "follow_redirects": False,
        # A proxy of the environment is for other machines. It could not reach this one.
        "trust_env": not _is_loopback(url.host),
        "verify": _make_tls() if url.scheme == "https" else False,
    }


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _make_tls() -> ssl.SSLContext:
    """Return the machine's own authorities, which SSL_CERT_FILE and SSL_CERT_DIR change."""
    return ssl.create_default_context()


def _arguments(request: Request) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": request.path.lstrip("/"),
        "params": {k: v for k, v in request.parameters.items() if v is not None},
        "content": request.body,
        "headers": {"Accept": "application/json", **request.headers},
    }


def _check(response: httpx.Response) -> httpx.Response:
    """Return a response of the service; raise the error that it is."""
    if response.is_redirect:
        where = response.headers.get("Location", "")
        raise RetallyError(
            f"{response.request.url} redirects to {where!r}, and the token stays here: "
            "connect to the address of the service itself"
        )
    if response.status_code < 400:
        return response
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):  # from a proxy
        detail = response.text[:_DETAIL_CHARACTERS_MAX]
        document = {"status": response.status_code, "detail": detail}
    raise make_refused(document, _parse_seconds(response.headers.get("Retry-After")))


def make_refused(document: Mapping[str, Any], retry_after: float | None = None) -> Refused:
    is_gap = document.get("code") == "history-gone"
    return (Gap if is_gap else Refused)(document, retry_after)


def _parse_seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _unreachable(address: str, error: httpx.HTTPError) -> Unreachable:
    why = _ERRNO.sub("", str(error)) or type(error).__name__
    return Unreachable(f"{address} does not answer: {why}")


def encode_json(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
