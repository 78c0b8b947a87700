"""Fork Spark's Python workers, with pyspark's daemon but five changes.

Spark puts archives of pyspark and py4j in front of the installed packages. Python compiles modules
of an archive anew in each process, which took each worker more than a second, so they are left out.

The daemon loads the compiled kernels and the modules of tasks: all workers share them, and none
compiles or imports in its first task.

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
from importlib import import_module
from importlib.machinery import PathFinder
from itertools import count
from pathlib import Path

_ARCHIVES = ("pyspark.zip", "py4j-*-src.zip")


def leave_out_archives(path: list[str]) -> list[str]:
    """Return a search path without Spark's archives, if pyspark is installed elsewhere on it."""
    kept = [entry for entry in path if not any(map(Path(entry).match, _ARCHIVES))]
    return kept if PathFinder.find_spec("pyspark", kept) else path


sys.path[:] = leave_out_archives(sys.path)

from pyspark import daemon  # noqa: E402

from jobs.edge.machine.kernel_cache import WHY_NO_KERNELS, load_kernels  # noqa: E402
from schemas.limits import TASKS_BETWEEN_GC_MAX  # noqa: E402

_MODULE = "jobs.edge.tasks.outbox"  # imports those of all tasks

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
    import_module(_MODULE)
    gc.freeze()  # a collection would write to pages that the workers share
    daemon.worker = worker
    daemon.manager()
