"""Guard: ends what is left of a demo that was killed.

    demo ──pipe──► guard     its end, however the demo ended ──► whoever works in the demo's data

A job outlives the service that started it, as it should; the jobs of a demo that is gone must not.
On Linux processes are found by the demo's directory in their arguments.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_LOOKS, _PAUSE_SECONDS = 5, 0.5  # a job that was just being started is found by the second one


class Guard:
    """For as long as the demo lives, and `stop` was not said."""

    def __init__(self, data: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jobs.demo.guard", str(data)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is not for it
        )

    def stop(self) -> None:
        """All is ended already."""
        self._process.kill()
        self._process.wait()


def main(data: str) -> None:
    sys.stdin.buffer.read()
    for _ in range(_LOOKS):
        for pid in working_in(data):
            with suppress(OSError):
                if os.getpgid(pid) == pid:  # with its JVM and workers
                    os.killpg(pid, signal.SIGKILL)
                else:
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_SECONDS)


def working_in(data: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            inside = any(each == data or each.startswith(data + "/") for each in arguments)
            ours = any(each.startswith("jobs.") for each in arguments)
            if inside and ours and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found


if __name__ == "__main__":
    main(sys.argv[1])
