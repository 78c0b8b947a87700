"""Record the processes that a test starts, and count the starts of JVMs.

record()        keeps every subprocess.Popen, and the file of its output
                    └─► last_lines(): for the report of a failed test
JvmStarts()     makes JAVA_HOME a launcher that writes a line for each start
                    └─► a test that starts a JVM without the marker for it fails
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.edge.machine.java import JavaMissing, java

LINES = 40
READ_BYTES_MAX = 64 << 10
# Files that our processes log to: jobs, the service and the broker, each in its data directory.
LOGS = ("log", "broker.log", "java.out")

_LAUNCHER = """\
#!/bin/sh
[ "$*" = -version ] || echo "$$" >> "{starts}"
exec "{java}" "$@"
"""


class JvmStarts:
    """Counts the JVMs that this process and its children start, whoever of them does.

    Without a Java there is nothing to count, and tests that need one say so themselves.
    """

    def __init__(self, where: Path) -> None:
        self._starts = where / "jvm-starts"
        self._starts.touch()
        try:
            real = java()
        except JavaMissing:
            return
        launcher = where / "java-home" / "bin" / "java"
        launcher.parent.mkdir(parents=True)
        launcher.write_text(_LAUNCHER.format(starts=self._starts, java=real))
        launcher.chmod(0o755)
        os.environ["JAVA_HOME"] = str(launcher.parents[1])
        java.cache_clear()

    @property
    def count(self) -> int:
        return self._starts.stat().st_size


@dataclass(slots=True)
class _Process:
    popen: _RecordedPopen
    log: Path | None

    @property
    def ended(self) -> bool:
        return self.popen.returncode is not None

    def output(self) -> str:
        """Return the known part of its output; read an unread pipe."""
        parts = [*self.popen.read]
        if self.log is not None:
            parts.append(_tail(self.log))
        for pipe in (self.popen.stdout, self.popen.stderr):
            parts.append(_unread(pipe))
        return "".join(parts)


class _RecordedPopen(subprocess.Popen[Any]):
    """A process whose output is kept when the test reads it to the end."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.read: list[str] = []
        log = _file_behind(options.get("stdout"))
        super().__init__(*arguments, **options)
        _recorded.append(_Process(self, log))

    def communicate(self, *arguments: Any, **options: Any) -> tuple[Any, Any]:
        try:
            both = super().communicate(*arguments, **options)
        except subprocess.TimeoutExpired as expired:
            self.read += map(_text, (expired.output, expired.stderr))
            raise
        self.read += map(_text, both)
        return both


_recorded: list[_Process] = []


def record() -> None:
    """Keep every process that is started from now on."""
    subprocess.Popen = _RecordedPopen  # type: ignore[misc]


def forget_ended() -> None:
    """Drop the processes that have ended; called when a test begins."""
    _recorded[:] = [each for each in _recorded if not each.ended]


def last_lines(since: float, roots: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Return a title and the last lines of each process that ran since the test began, and of each
    log that was written `since`."""
    for each in _recorded:
        ended = f"ended with {each.popen.returncode}" if each.ended else "running"
        words = each.popen.args
        command = " ".join(map(str, words)) if isinstance(words, list | tuple) else str(words)
        yield f"process {each.popen.pid}, {ended}: {command[-300:]}", _last(each.output())
    for root in roots:
        for log in sorted(found for name in LOGS for found in root.rglob(name)):
            with suppress(OSError):
                if log.is_file() and log.stat().st_mtime >= since:
                    yield str(log), _last(_tail(log))


def _last(text: str) -> str:
    return "\n".join(text.splitlines()[-LINES:]) or "(no output)"


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - READ_BYTES_MAX))
            return _text(file.read())
    except OSError:
        return ""


def _unread(pipe: Any) -> str:
    """Return the available bytes of a pipe, without waiting for more."""
    if pipe is None or pipe.closed or not pipe.readable():
        return ""
    number = pipe.fileno()
    blocking = os.get_blocking(number)
    try:
        os.set_blocking(number, False)
        return _text(os.read(number, READ_BYTES_MAX))
    except OSError:
        return ""
    finally:
        os.set_blocking(number, blocking)


def _file_behind(stream: Any) -> Path | None:
    name = getattr(stream, "name", None)
    return Path(name) if isinstance(name, str) else None


def _text(data: bytes | str | None) -> str:
    return data.decode(errors="replace") if isinstance(data, bytes) else data or ""
