"""How the demo waits, says how far it is, and what it leaves when it gives up."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

STALL_SECONDS_MAX = 600.0  # a start of Spark took three minutes on a machine with load 50
LINE_SECONDS = 5.0  # between two lines of one phase, where there is no terminal
# Log files of the processes of a demo, below its data directory.
_LOGS = ("service.log", "broker/broker.log", "broker/java.out", "service/jobs/*/log*")


class DemoFailed(Exception):
    """The demo cannot continue; the message says why."""


@dataclass(slots=True)
class Patience:
    """Waits as long as a sign of progress changes: a busy machine is slow, and not broken."""

    seconds_max: float = STALL_SECONDS_MAX
    _sign: object = None
    _since: float = field(default_factory=time.monotonic)

    def observe(self, sign: object) -> float:
        """Return for how many seconds the sign has been the same."""
        if sign != self._sign:
            self._sign, self._since = sign, time.monotonic()
        return time.monotonic() - self._since

    def require(self, sign: object, what: str) -> None:
        """Raise DemoFailed if the sign has not changed for too long."""
        if self.observe(sign) > self.seconds_max:
            raise DemoFailed(f"{what}, and nothing has moved for {self.seconds_max:.0f} s")


@contextmanager
def phase(console: Console, subject: str, text: str) -> Iterator[Callable[[str], None]]:
    """Show a phase until the block ends; yield a function that reports how far it is.

    A terminal gets a spinner with the seconds of the phase, a pipe or a log plain lines.
    """
    began = shown = time.monotonic()
    if console.is_terminal:
        with console.status(f"{subject}: {text}") as status:
            yield lambda detail: status.update(
                f"{subject}: {text}; {detail} ({time.monotonic() - began:.0f} s)"
            )
        return

    def report(detail: str) -> None:
        nonlocal shown
        if time.monotonic() - shown >= LINE_SECONDS:
            shown = time.monotonic()
            console.print(f"          {shown - began:.0f} s: {detail}", soft_wrap=True)

    console.print(f"{subject:9} {text}", soft_wrap=True)
    yield report


def keep_logs(data: Path) -> Path:
    """Delete the data directory of a demo, all but its logs; return the directory with these."""
    kept = data / "logs"
    kept.mkdir(exist_ok=True)
    for path in [path for pattern in _LOGS for path in sorted(data.glob(pattern))]:
        name = path.name if path.name.endswith((".log", ".out")) else f"{path.parent.name}.log"
        if path.is_file() and path.stat().st_size > 0:
            path.replace(kept / name)
    for path in data.iterdir():
        if path.is_dir() and not path.is_symlink() and path != kept:
            shutil.rmtree(path, ignore_errors=True)
        elif path != kept:
            path.unlink()
    return kept
