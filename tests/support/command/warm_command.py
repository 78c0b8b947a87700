"""`retally` commands as processes that need not import anything: forks of one that has done so.

    test ──arguments, environment, stdout, stderr──► serve() ──fork──► jobs.cli.main
      └────────── pid, exit code ◄───────────────────────┘

A fork does what the command does from its first line on, with its own signals, limits and output.
Importing takes 2 s, which is most of what a short-lived service costs.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn

import msgspec

from schemas import limits
from tests.support.command.waiting import wait_readable

_CHECKOUT = Path(__file__).resolve().parents[3]
_BYTES_MAX = 256 << 10
RUN_SECONDS_MAX = 200
_FILES = resource.RLIMIT_NOFILE
_IMPORTED = ("jobs.cli.main", "jobs.cli.commands.serve", "service.serving")


class Command(msgspec.Struct, tag=True):
    """A command to start; two file descriptors come with it, for its output and its errors."""

    arguments: list[str]
    environment: dict[str, str]
    files_max: tuple[int, int]  # soft and hard limit


class Ended(msgspec.Struct, tag=True):
    """Asks for the exit code of a process that has ended."""

    pid: int


class WarmCommand:
    """A running command, with those methods of a `subprocess.Popen` that tests use."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self._channel = channel
        self._ended = os.pidfd_open(pid)
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and wait_readable(self._ended, 0):
            self.returncode = _ask(self._channel, Ended(self.pid))
            os.close(self._ended)
        return self.returncode

    def wait(self, seconds: float | None = None) -> int:
        if self.returncode is None and not wait_readable(self._ended, seconds):
            raise subprocess.TimeoutExpired(f"process {self.pid}", seconds or 0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class WarmCommands:
    """Starts its process with the first command; `close` ends it, and no command."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, *arguments: str, stdout: int, stderr: int, files_max: tuple[int, int] | None = None
    ) -> WarmCommand:
        """Start `retally ARGUMENTS`, with our limits of open files if `files_max` is None."""
        if self._channel is None:
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=_CHECKOUT,
            )
            theirs.close()
        files_max = files_max or resource.getrlimit(_FILES)
        command = Command(list(arguments), dict(os.environ), files_max)
        return WarmCommand(self._channel, _ask(self._channel, command, stdout, stderr))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `retally ARGUMENTS` to its end."""
        with TemporaryFile("w+") as output, TemporaryFile("w+") as errors:
            ran = self.start(*arguments, stdout=output.fileno(), stderr=errors.fileno())
            code = ran.wait(RUN_SECONDS_MAX)
            for file in (output, errors):
                file.seek(0)
            return subprocess.CompletedProcess(arguments, code, output.read(), errors.read())

    def close(self) -> None:
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait(60)
            self._channel = self._process = None


warm_commands = WarmCommands()  # one for all tests of a worker; tests/conftest.py closes it


def _ask(channel: socket.socket, request: Command | Ended, *files: int) -> int:
    socket.send_fds(channel, [msgspec.json.encode(request)], list(files))
    answer = channel.recv(_BYTES_MAX)
    assert answer, "the process that starts warm commands has ended"
    return int(answer)


def serve(channel: socket.socket) -> None:
    """Fork a process for each command, until the tests have ended."""
    for name in _IMPORTED:
        import_module(name)
    # Most services here answer no SQL; the first statement of one starts its workers.
    limits.SQL_WARM_AFTER_SECONDS = 3_600.0
    # Those of native libraries (OpenBLAS, jemalloc) begin anew in a fork; ours would be missing.
    assert threading.active_count() == 1, threading.enumerate()
    gc.freeze()
    decode: Any = msgspec.json.Decoder(Command | Ended).decode
    while True:
        packet, files, _, _ = socket.recv_fds(channel, _BYTES_MAX, 2)
        if not packet:
            return
        request = decode(packet)
        if isinstance(request, Ended):
            answer = os.waitstatus_to_exitcode(os.waitpid(request.pid, 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                channel.close()
                _run(request, files)
        for number in files:
            os.close(number)
        channel.send(b"%d" % answer)


def _run(command: Command, files: list[int]) -> NoReturn:
    """Be the command, as if this process had begun with it."""
    code = 1
    try:
        for number, file in enumerate(files, start=1):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(command.environment)
        resource.setrlimit(_FILES, command.files_max)
        sys.argv[1:] = command.arguments
        code = sys.modules["jobs.cli.main"].main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
