"""The result of a fault suite: inputs, outputs, and the planned and fired faults.

    suite ──► plan, fire, recovered, counts ──► close ──► one line, printed and kept as JSON
                                                  └─► fails if anything was lost, or a planned
                                                      fault did not happen

The lines are in build/faults.jsonl, or in the file that RETALLY_FAULT_RESULTS names; newest last.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[3]
RESULTS = Path(os.environ.get("RETALLY_FAULT_RESULTS", CHECKOUT / "build" / "faults.jsonl"))


@dataclass(slots=True)
class FaultTally:
    """The figures of one suite; `close` prints them and decides."""

    suite: str
    inputs: int = 0
    outputs: int = 0
    lost: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    planned: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)  # in `unit`
    unit: str = "s"
    further: dict[str, Any] = field(default_factory=dict)  # figures that only this suite has
    began: float = field(default_factory=time.monotonic)

    def plan(self, fault: str) -> None:
        self.planned[fault] += 1

    def fire(self, fault: str) -> None:
        self.fired[fault] += 1

    @property
    def missed(self) -> list[str]:
        """The planned faults that did not happen, so that nothing was tested."""
        return sorted((self.planned - self.fired).elements())

    def line(self) -> dict[str, object]:
        return {
            "suite": self.suite,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "lost": self.lost,
            "duplicates": self.duplicates,
            "out_of_order": self.out_of_order,
            "faults_planned": self.planned.total(),
            "faults_fired": self.fired.total(),
            "recoveries": len(self.recoveries),
            "recovery_p50": quantile(self.recoveries, 0.5),
            "recovery_p99": quantile(self.recoveries, 0.99),
            "recovery_unit": self.unit,
            **self.further,
            "seconds": round(time.monotonic() - self.began, 1),
        }

    def close(self) -> None:
        report(self.line())
        assert not self.missed, f"planned and did not happen: {self.missed[:5]}"
        found = (self.lost, self.duplicates, self.out_of_order)
        assert found == (0, 0, 0), f"lost, repeated, out of order: {found}"


def report(line: Mapping[str, object]) -> None:
    """Print a result line, and keep it."""
    stamped = {**line, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a") as file:
        file.write(json.dumps(stamped) + "\n")
    print("\n" + " ".join(f"{name}={value}" for name, value in stamped.items()))


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that this share of the values does not exceed."""
    if not values:
        return None
    return round(sorted(values)[max(0, -(-int(share * 100) * len(values) // 100) - 1)], 4)
