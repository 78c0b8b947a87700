"""Which worker runs which file of tests, also after a worker has died.

pytest-xdist 3.8 gives a dead worker's finished files out again, as work without tests, and the run
waits for ever for their end. It also begins the test anew that the worker died in, and lets the
worker that comes instead wait for a second test where only one is left.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """A file's tests stay in one worker; what a dead worker left is run by another one."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Give out what the worker has not finished; return the test that it died in."""
        unfinished = [
            (file, test)
            for file, tests in self.assigned_work.pop(node).items()
            for test, done in tests.items()
            if not done
        ]
        if not unfinished:
            return None
        (_, died_in), *left = unfinished
        for file, test in left:
            self.workqueue.setdefault(file, {})[test] = False
        for other in self.nodes:
            self._reschedule(other)
        return str(died_in)

    def _reschedule(self, node: WorkerController) -> None:
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FileScheduling | None:
    return FileScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
