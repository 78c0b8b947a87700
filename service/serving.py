"""Serving: one service process, from its arguments to its end.

lock of the data directory ──► tokens or loopback ──► application ──► uvicorn ──► SIGTERM
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn

from schemas.limits import FOLLOWER_STALL_SECONDS_MAX
from service import app
from service.access.requirements import loopback
from service.access.tokens import Tokens
from service.limits.bounded_protocol import BoundedProtocol
from service.limits.capacity import own_capacity
from service.live.reader_process import LOG_FORMAT, Nursery
from service.places import ServicePlaces
from service.runtime import Runtime
from service.settings import Settings

log = logging.getLogger("service")

_KEEP_ALIVE_SECONDS = 30
_GRACE_SECONDS = 5
_SWITCH_SECONDS = 0.0005
_SEND_BUFFER_BYTES = 128 * 1024


class CannotServe(Exception):
    """The service cannot start; the message says why and what to do."""


class AlreadyServed(CannotServe):
    """Another service owns the data directory."""


def new_token(data: Path, name: str, role: str, seconds: int | None = None) -> str:
    return Tokens(ServicePlaces(data.absolute()).tokens).add(name, role, seconds)


def tokens_listed(data: Path) -> list[tuple[str, str, int | None]]:
    """Return name, role and end (seconds since 1970) of each token."""
    found = Tokens(ServicePlaces(data.absolute()).tokens).listed()
    return [(each.name, each.role, each.ends_at) for each in found]


def revoke_token(data: Path, name: str) -> None:
    Tokens(ServicePlaces(data.absolute()).tokens).revoke(name)


def serve(settings: Settings, *, verbose: bool = False) -> None:
    """Serve until SIGTERM or SIGINT. The jobs go on; the next service finds them."""
    os.umask(0o077)
    # Followers of tables compute in threads of their own; a request should not wait for the
    # interpreter for Python's usual 5 ms each time.
    sys.setswitchinterval(_SWITCH_SECONDS)
    _log_to_standard_error(verbose)
    settings = replace(settings, capacity=own_capacity())
    BoundedProtocol.capacity = settings.capacity
    tokens = Tokens(settings.places.tokens)
    if not tokens.wanted and not loopback(settings.host):
        raise CannotServe(
            f"there are no tokens, and {settings.host} is not only this machine; make one with "
            f"retally serve --data {settings.data} --new-token NAME=ROLE, or serve on 127.0.0.1"
        )
    # Before the lock, which nobody else may hold when we are gone.
    nursery = Nursery()
    with _only_service(settings.places.lock):
        application, gated = app.create(settings, nursery)
        if application.state.access.admits_everybody():
            log.warning("there are no tokens: whoever reaches %s is admin", settings.host)
        elif not tokens.any:
            log.error("no token in %s is valid: nobody is let in", settings.places.tokens)
        else:
            log.info("requests need a token")
        server = _Server(
            uvicorn.Config(
                gated,
                http=BoundedProtocol,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                lifespan="on",
                proxy_headers=False,
                ws="none",
            ),
            application.state.runtime,
        )
        listener = _listening(settings.host, settings.port)
        host, port = listener.getsockname()[:2]
        # What was imported stays: a search of the collector through all of it would stop every
        # request for a tenth of a second.
        gc.collect()
        gc.freeze()
        print(f"ready http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
        server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Lets go of streams first, and ends with exit code 0; uvicorn's own waits for them, and dies
    by the signal again."""

    def __init__(self, config: uvicorn.Config, runtime: Runtime) -> None:
        super().__init__(config)
        self._runtime = runtime

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._runtime.release()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens already, so that `ready` is true when it is said."""
    try:
        # With its protocol by name, or asyncio does not know it for TCP and leaves Nagle's delay
        # of 40 ms on in every connection.
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bound_stalls(listener)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        raise CannotServe(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return listener


def _bound_stalls(listener: socket.socket) -> None:
    """What every connection inherits: a small buffer for a client that does not read, and its end
    by the kernel when it goes on so; a server in user space cannot end what it cannot write to."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        stalled = int(2 * FOLLOWER_STALL_SECONDS_MAX * 1_000)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled)


@contextmanager
def _only_service(path: Path) -> Iterator[None]:
    """One service a data directory: two supervisors would fight over the jobs."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyServed(f"another service owns {path.parent.parent}") from None
        yield
    finally:
        os.close(descriptor)


def _log_to_standard_error(verbose: bool) -> None:
    level = logging.DEBUG if verbose else logging.INFO
    for name in ("service", "uvicorn.error"):
        logging.getLogger(name).setLevel(level)
    logging.getLogger("service.access").setLevel(logging.INFO if verbose else logging.WARNING)
    if not logging.getLogger().handlers:
        logging.basicConfig(stream=sys.stderr, format=LOG_FORMAT)
