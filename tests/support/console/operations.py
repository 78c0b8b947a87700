"""Ended operations of a job, written to a register: audits with every verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from schemas.documents.answers import OperationState
from service.supervision.register import OperationRecord, Register

HOSTILE = "<b>&amp;"
JOB = "items"


def report(verdict: str, *differing: str, **further: Any) -> dict[str, Any]:
    """Return a document as `retally audit --json` prints it."""
    differences = [
        {
            "group": {"name": name},
            "table": {"name": name, "total": 5, "top": 3},
            "recomputed": {"name": name, "total": 5, "top": 4} if name != "gone" else None,
        }
        for name in differing
    ]
    return {
        "job": JOB,
        "epoch": 41,
        "verdict": verdict,
        "groups": 13,
        "not_compared": 0,
        "differing": len(differing),
        "differences": differences,
        "odd": {},
        "offsets": {"t": {"0": [0, 410], "1": [0, 287]}},
        **further,
    }


ENDED: dict[str, tuple[OperationState, dict[str, Any] | None, str | None]] = {
    "equal": ("DONE", report("equal"), None),
    "different": ("DONE", report("different", "bolt", HOSTILE, "gone"), None),
    "undecided": (
        "DONE",
        report("undecided", "nut", odd={"dropped_retractions": 2}, not_compared=1),
        None,
    ),
    "failed": ("FAILED", None, f"topic {HOSTILE} has lost records since the job began"),
}


def ask_for_audits(data: Path) -> None:
    """Add audits `audit-equal` and so on to the register; call before the service starts."""
    home = data / "service"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    register = Register(home / "register.sqlite")
    for at, (name, (state, result, reason)) in enumerate(ENDED.items()):
        register.add_operation(
            OperationRecord(
                id=f"audit-{name}",
                job=JOB,
                kind="audit",
                state=state,
                arguments="{}",
                created_at=1_767_225_600_000 + at,
                began_at=1_767_225_601_000,
                ended_at=1_767_225_602_000,
                asked_by=HOSTILE,
                reason=reason,
                result=None if result is None else json.dumps(result),
            )
        )
    register.close()
