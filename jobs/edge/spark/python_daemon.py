"""The daemon that forks Spark's Python workers: pyspark's own, but for two things.

A worker that still writes while its JVM ends has nobody to tell; pyspark prints a BrokenPipeError
over whatever the user is reading.

After every task pyspark looks for garbage in cycles, in all that a worker remembers: 70 ms, where
the task itself took 25. What lives when a task ends is put out of that search's sight, and looked
at after every thousandth one.
"""

from __future__ import annotations

import gc
import os
import socket
from itertools import count

from pyspark import daemon

from schemas.limits import TASKS_UNSEARCHED_MAX

_worker = daemon.worker
_tasks = count(1)


def worker(sock: socket.socket, authenticated: bool) -> int:
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        os._exit(0)
    finally:
        if next(_tasks) % TASKS_UNSEARCHED_MAX == 0:
            gc.unfreeze()
        else:
            gc.freeze()


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
