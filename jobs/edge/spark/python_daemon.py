"""Fork Spark's Python workers, with pyspark's daemon but four changes.

The daemon loads the compiled kernels: all workers share them, and none compiles in a task.

A worker that still writes while its JVM ends exits silently. pyspark would print a BrokenPipeError
into the user's terminal.

After each task pyspark collects garbage among all objects of the worker: this took 70 ms, the task
itself 25 ms. So the objects that live when a task ends are frozen, and scanned only after every
thousandth task.

The daemon of a shared JVM imports the modules of tasks, so that its workers share their memory.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from importlib import import_module
from itertools import count

from pyspark import daemon

from jobs.edge.machine.kernel_cache import WHY_NO_KERNELS, load_kernels
from schemas.limits import TASKS_BETWEEN_GC_MAX

MODULES = "RETALLY_WORKER_MODULES"  # to import before the workers are forked

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
    if modules := os.environ.get(MODULES, "").split():
        for name in modules:
            import_module(name)
        gc.freeze()  # a collection would write to pages that the workers share
    daemon.worker = worker
    daemon.manager()
