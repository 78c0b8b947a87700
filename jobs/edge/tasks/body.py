"""Run the body of a task without garbage collector, and report errors by code."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from jobs.edge.spark.task_errors import errors_by_code


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
