"""What a task is: its body, which runs without garbage collector, its place, and its report."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec
from pyspark import TaskContext

from jobs.edge.spark.task_errors import errors_by_code

_PARENTS_MAX = 3  # of a Python worker: the daemon that forked it, and its executor
# The arguments of an executor, on every kind of cluster.
_HOST, _ID = re.compile(rb"--hostname\0([^\0]+)"), re.compile(rb"--executor-id\0([^\0]+)")


@contextmanager
def task_body() -> Iterator[None]:
    """Run a task's body with the collector off and errors raised by code."""
    with collector_off(), errors_by_code():
        yield


@contextmanager
def collector_off() -> Iterator[None]:
    """Turn the garbage collector off.

    A task makes hundreds of thousands of tuples and no cycles. The collector would spend a fifth of
    the task's time on scanning them.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def name_writer(letter: str) -> str:
    """Return the name by which this attempt at a task writes files."""
    context = TaskContext.get()
    return f"{letter}{context.taskAttemptId() if context else 0}"


def _task_number() -> int:
    context = TaskContext.get()
    return context.partitionId() if context else 0


@cache
def _this_executor() -> str:
    """Return the executor that this worker belongs to, as HOST_ID; "" with a local master."""
    process = os.getpid()
    for _ in range(_PARENTS_MAX):
        try:
            status = Path(f"/proc/{process}/stat").read_text()
            process = int(status.rpartition(")")[2].split()[1])  # its parent
            arguments = Path(f"/proc/{process}/cmdline").read_bytes()
        except (OSError, IndexError, ValueError):  # no parent, or no /proc
            return ""
        host, number = _HOST.search(arguments), _ID.search(arguments)
        if host is not None and number is not None:
            return f"{host[1].decode()}_{number[1].decode()}"
    return ""


class TaskReport(msgspec.Struct, kw_only=True):
    """The report of a task with state, which knows its task by itself."""

    task: int = msgspec.field(default_factory=_task_number)
    executor: str = msgspec.field(default_factory=_this_executor)
    too_large: bool = False  # the input has more bytes than a task may hold; nothing was done
    caught_up: int = 0  # rows of state that other hosts had written
