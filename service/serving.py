"""Serving: run one service process until SIGTERM.

leader:  lock of the data directory ──► first token or loopback ──► application ──► SIGTERM
standby: application that reads ──► the leader is gone ──► the command starts again, and leads
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from schemas.limits import (
    FIRST_START_SECONDS_MAX,
    FOLLOWER_STALL_SECONDS_MAX,
    LEADER_WATCH_SECONDS,
)
from service import app
from service.access.requirements import is_loopback
from service.access.tokens import Role, Tokens
from service.limits.bounded_protocol import BoundedProtocol
from service.limits.capacity import determine_capacity
from service.live.reader_process import ReaderSpawner
from service.paths import ServicePaths
from service.postgres.certificate import Certificate
from service.postgres.server import PostgresServer
from service.request_ids import JsonFormat, TextFormat
from service.runtime import Runtime
from service.settings import Settings
from service.supervision.leadership import AlreadyServed, CannotServe, Leadership, LeaderWatch

log = logging.getLogger("service")

_FIRST_NAME = "first"
_KEEP_ALIVE_SECONDS = 30
_GRACE_SECONDS = 5
_SWITCH_SECONDS = 0.0005
_SEND_BUFFER_BYTES = 128 * 1024


def create_token(data: Path, name: str, role: str, seconds: int | None = None) -> str:
    return Tokens(ServicePaths(data.absolute()).tokens).add(name, role, seconds)


def list_tokens(data: Path) -> list[tuple[str, str, int | None]]:
    """Return name, role and end (seconds since 1970) of each token."""
    found = Tokens(ServicePaths(data.absolute()).tokens).list_valid()
    return [(each.name, each.role, each.ends_at) for each in found]


def revoke_token(data: Path, name: str) -> None:
    Tokens(ServicePaths(data.absolute()).tokens).revoke(name)


def serve(
    settings: Settings,
    *,
    only_reads: bool = False,
    verbose: bool = False,
    log_format: str = "text",
) -> int | None:
    """Serve until SIGTERM or SIGINT. Jobs keep running; the next service finds them.

    Beside a service that leads, this one stands by: it reads, and leads once nobody else does.
    Return the port if nobody leads any more: a standby starts again on it, and leads.
    """
    os.umask(0o077)
    # Other threads compute too; a request should not wait 5 ms for the interpreter each time.
    sys.setswitchinterval(_SWITCH_SECONDS)
    _configure_logging(verbose, log_format)
    settings = replace(settings, capacity=determine_capacity())
    BoundedProtocol.capacity = settings.capacity
    # Fork before taking the lock, so that no child keeps it.
    spawner = ReaderSpawner.start()
    if not only_reads:
        with suppress(AlreadyServed), Leadership.take(settings.paths) as leadership:
            _serve_leading(settings, spawner, leadership)
            return None
    return _serve_reading(settings, spawner, only_reads=only_reads)


def _serve_leading(settings: Settings, spawner: ReaderSpawner, leadership: Leadership) -> None:
    tokens, first_token = Tokens(settings.paths.tokens), None
    if not tokens.required and not is_loopback(settings.host):
        first_token = tokens.add(_FIRST_NAME, Role.ADMIN.name.lower())
    application, gated = app.create(settings, spawner)
    runtime = application.state.runtime
    _log_access(settings, runtime)
    listener = _listen(settings.host, settings.port)
    address = settings.address or _make_address("http", listener, socket.gethostname())
    leadership.begin(address, runtime.register.is_deposed)
    if first_token is not None:
        log.warning(
            "first start: sign in at http://127.0.0.1:%d with the admin token %s; it is shown "
            "once, and `retally serve --data %s --new-token %s=admin` replaces it",
            listener.getsockname()[1],
            first_token,
            settings.data,
            _FIRST_NAME,
        )
    _run(_make_server(settings, gated, runtime), listener)


def _serve_reading(settings: Settings, spawner: ReaderSpawner, *, only_reads: bool) -> int | None:
    """Answer reads beside a leader; return the port once a standby shall lead."""
    # A leader may be at its first start, as in `docker compose up --scale service=2`.
    patience = 0.0 if only_reads else FIRST_START_SECONDS_MAX
    deadline = time.monotonic() + patience
    while (reason := _find_what_lacks(settings)) is not None:
        if time.monotonic() >= deadline:
            raise CannotServe(reason)
        time.sleep(LEADER_WATCH_SECONDS)
    watch = LeaderWatch(settings.paths)
    is_led = watch.learn_address()
    leader = f"{watch.address or 'a service that is starting'} leads {settings.data}"
    try:
        listener = _listen(settings.host, settings.port)
    except CannotServe as error:  # often a second start by mistake
        raise CannotServe(f"{leader} already; {error}" if is_led else str(error)) from None
    port: int = listener.getsockname()[1]
    settings = replace(settings, reader=f"{socket.gethostname()}-{settings.port or os.getpid()}")
    application, gated = app.create(settings, spawner, lambda: watch.address)
    runtime = application.state.runtime
    _log_access(settings, runtime)
    server = _make_server(settings, gated, runtime)
    ended, leaderless = threading.Event(), threading.Event()

    def watch_the_leader() -> None:
        if watch.wait_until_nobody_leads(ended, only_reads=only_reads):
            leaderless.set()
            server.should_exit = True

    if not only_reads:
        log.warning("stands by, and only answers reads until it leads: now %s", leader)
    threading.Thread(target=watch_the_leader, name="leader-watch", daemon=True).start()
    try:
        _run(server, listener)
    finally:
        ended.set()
        shutil.rmtree(settings.paths.own, ignore_errors=True)
    return port if leaderless.is_set() else None


def _find_what_lacks(settings: Settings) -> str | None:
    """Return what a service that only reads cannot do without."""
    if not settings.paths.register.exists():
        return f"no service has used {settings.data} yet: start one that leads first"
    if not Tokens(settings.paths.tokens).required and not is_loopback(settings.host):
        return f"nobody could sign in on {settings.host}: create a token with --new-token first"
    return None


def _log_access(settings: Settings, runtime: Runtime) -> None:
    if runtime.access.admits_everybody():
        log.warning("there are no tokens: everyone who reaches %s is admin", settings.host)
    elif not runtime.tokens.has_valid:
        log.error("no token in %s is valid: all requests are refused", settings.paths.tokens)
    else:
        log.info("requests require a token")


def _make_server(settings: Settings, gated: ASGIApp, runtime: Runtime) -> _Server:
    config = uvicorn.Config(
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
    )
    postgres = certificate = None
    if settings.postgres_tls is not None:
        try:
            certificate = Certificate(*settings.postgres_tls)
        except OSError as error:
            paths = " and ".join(map(str, settings.postgres_tls))
            reason = f"cannot read the certificate in {paths}: {error.strerror or error}"
            raise CannotServe(reason) from None
    if settings.postgres_port is not None:
        postgres = _listen(settings.host, settings.postgres_port, "--pg-port")
        if certificate is None and not is_loopback(settings.host):
            log.warning(
                "--pg-port: tokens of PostgreSQL's clients cross the network as they are; encrypt "
                "with --pg-tls-cert and --pg-tls-key"
            )
    return _Server(config, runtime, postgres, certificate)


def _run(server: _Server, listener: socket.socket) -> None:
    # Imported modules stay alive. Without this, each full garbage collection would stop all
    # requests for a tenth of a second.
    gc.collect()
    gc.freeze()
    others = "" if server.postgres is None else f" {_make_address('postgresql', server.postgres)}"
    try:
        print(f"ready {_make_address('http', listener)}{others}", flush=True)
    except BrokenPipeError:  # whoever started a standby read this line long ago
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that ends its streams first and exits with 0.

    uvicorn's own server waits for streams and raises the signal again.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        runtime: Runtime,
        postgres: socket.socket | None,
        certificate: Certificate | None,
    ) -> None:
        super().__init__(config)
        self._runtime = runtime
        self.postgres = postgres
        self._postgres = (
            None if postgres is None else PostgresServer(runtime, postgres, certificate)
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._postgres is not None and not self.should_exit:
            await self._postgres.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._runtime.end_streams()
        if self._postgres is not None:
            self._postgres.close()
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


def _listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """Return a listening socket, so that the service is ready when it prints `ready`."""
    try:
        # With an explicit protocol. Otherwise asyncio does not recognize TCP and leaves Nagle's
        # algorithm on, which delays responses by 40 ms.
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _limit_stalls(listener)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        advice = f"; name another port with {option} (0: a free one)"
        advice = advice if error.errno in (errno.EADDRINUSE, errno.EACCES) else ""
        reason = f"cannot listen on {host}:{port}: {error.strerror or error}{advice}"
        raise CannotServe(reason) from None
    return listener


def _make_address(scheme: str, listener: socket.socket, anywhere: str | None = None) -> str:
    """Return the address of a listener; `anywhere` is its host if it has all."""
    host, port = listener.getsockname()[:2]
    if anywhere is not None and ip_address(host).is_unspecified:
        host = anywhere
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _limit_stalls(listener: socket.socket) -> None:
    """Limit connections whose client does not read: a small buffer and a timeout of the kernel.

    Every connection inherits both. The server itself cannot close what it cannot write to.
    """
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        stalled = int(2 * FOLLOWER_STALL_SECONDS_MAX * 1_000)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stalled)


def _configure_logging(verbose: bool, log_format: str) -> None:
    """Configure this process, and those that it forks."""
    level = logging.DEBUG if verbose else logging.INFO
    for name in ("service", "uvicorn.error"):
        logging.getLogger(name).setLevel(level)
    logging.getLogger("service.access").setLevel(logging.INFO if verbose else logging.WARNING)
    logging.basicConfig(stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormat() if log_format == "json" else TextFormat())
