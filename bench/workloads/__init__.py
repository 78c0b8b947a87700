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
    return [*FIRST, *sorted(_modules().keys() - set(FIRST))]


def workload(name: str) -> Workload:
    module: Workload = importlib.import_module(_modules()[name])  # type: ignore[assignment]
    return module


def _modules() -> dict[str, str]:
    """Return the full name of each module, also of those in packages, by its own name."""
    found = pkgutil.walk_packages(__path__, f"{__name__}.")
    return {each.name.rpartition(".")[2]: each.name for each in found if not each.ispkg}
