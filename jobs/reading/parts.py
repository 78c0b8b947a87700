"""Names of the parts of a job's table: the values of its partition column `part`."""

from __future__ import annotations

CHANGELOG, ACCUMULATORS, MULTISETS = "changelog", "accumulators", "multisets"
TIMERS, ROWS, LATE, QUARANTINE, EPOCHS = "timers", "rows", "late", "quarantine", "epochs"
GROUP_STATE = (ACCUMULATORS, MULTISETS, TIMERS)
STATE = (*GROUP_STATE, ROWS)
PARTS = (EPOCHS, CHANGELOG, *STATE, LATE, QUARANTINE)
