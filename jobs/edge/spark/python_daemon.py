"""Fork Spark's Python workers, with pyspark's daemon but three changes.

The daemon loads the compiled kernels: all workers share them, and none compiles in a task.

A worker that still writes while its JVM ends exits silently. pyspark would print a BrokenPipeError
into the user's terminal.

After each task pyspark collects garbage among all objects of the worker: this took 70 ms, the task
itself 25 ms. So the objects that live when a task ends are frozen, and scanned only after every
thousandth task.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from itertools import count

from pyspark import daemon

from jobs.edge.machine.kernel_cache import WHY_NO_KERNELS, load_kernels
from schemas.limits import TASKS_BETWEEN_GC_MAX

_worker = daemon.worker
_tasks = count(1)


def worker(sock: socket.socket, authenticated: bool) -> int:
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        os._exit(0)
    finally:
        if next(_tasks) % TASKS_BETWEEN_GC_MAX == 0:
            gc.unfreeze()
        else:
            gc.freeze()


if __name__ == "__main__":
    if not load_kernels():
        print(f"messages are decoded one by one: {WHY_NO_KERNELS}", file=sys.stderr)
    daemon.worker = worker
    daemon.manager()
