"""Rows of epochs, of which a test says only what it is about."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from jobs.core.plan.tree import Plan
from schemas.table.epoch import EpochRow


def epoch_row(epoch: int, plan: Plan | None = None, **fields: Any) -> EpochRow:
    known: dict[str, Any] = {
        "epoch": epoch,
        "uuid": uuid4().hex,
        "generation": 1,
        "kind": "data" if epoch else "start",
        "committed_at": int(time.time() * 1_000) * 1_000,
        "plan": "a plan" if plan is None else plan.fingerprint,
        "offsets": {"t": {"0": epoch}},
        "counters": {"groups": 0},
    }
    return EpochRow(**{**known, **fields})
