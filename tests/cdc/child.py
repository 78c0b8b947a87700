"""A process of the rig. Its output is in a file; it is stopped by its own pid."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60


class Child:
    def __init__(
        self, command: list[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def await_that(self, what: str, holds: Callable[[], object]) -> None:
        """Wait until a condition holds; fail with the last lines of the log if the process ends."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not holds():
            late = time.monotonic() > deadline
            if late or self._process.poll() is not None:
                raise AssertionError(f"not {what}: {self.log}\n{self.log.read_text()[-3_000:]}")
            time.sleep(0.1)

    def await_end(self) -> None:
        """Wait until the process ends, and fail unless it ends well."""
        assert self._process.wait(START_SECONDS_MAX) == 0, self.log.read_text()[-3_000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
