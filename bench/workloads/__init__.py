"""The workloads: one module each, found by its name.

A workload has a TITLE for the table of figures, and `run(bench)`, which adds figures. A new module
in this package is a new workload; `python -m bench --only NAME` runs it alone.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol

from bench.frame import Bench

# These come first, in this order; the others follow by name.
FIRST = ("backfill", "epoch", "latency")


class Workload(Protocol):
    TITLE: str

    @staticmethod
    def run(bench: Bench) -> None: ...


def names() -> list[str]:
    found = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [*FIRST, *(name for name in found if name not in FIRST)]


def workload(name: str) -> Workload:
    module: Workload = importlib.import_module(f"{__name__}.{name}")  # type: ignore[assignment]
    return module
