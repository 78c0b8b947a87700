"""Fold a changelog into its table, and collect every wrong change.

+I  if the key has no row     -U  of the current row, then +U of another one
                              -D  of the current row
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.faults.peer_queries import Values

Change = tuple[str, Values]
SHOWN_MAX = 5


@dataclass(slots=True)
class Folded:
    changes: int = 0
    table: set[Values] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def against(self, truth: set[Values]) -> list[str]:
        """Return the first wrong changes and wrong rows, as lines for people."""
        lines = [*self.wrong]
        lines += [f"missing: {row}" for row in sorted(truth - self.table, key=str)]
        lines += [f"unexpected: {row}" for row in sorted(self.table - truth, key=str)]
        return lines[:SHOWN_MAX]


def folded(changes: Iterable[Change], keys: int, *, by_row: bool = False) -> Folded:
    """Fold changes whose first `keys` columns are the key.

    `by_row`: a filter was applied to each change by itself, so a key may start with +U and end
    with -U.
    """
    outcome = Folded()
    current: dict[Values, Values] = {}
    updating: dict[Values, Values] = {}  # retracted by -U, without their +U so far
    for op, row in changes:
        outcome.changes += 1
        key = row[:keys]
        now, before = current.pop(key, None), updating.pop(key, None)
        wrong = ""
        if op in ("-U", "-D"):
            if now != row:
                wrong = f"does not retract the current row, which is {now}"
            if op == "-U":
                updating[key] = row
        else:
            if now is not None:
                wrong = f"is inserted although {now} exists"
            elif not by_row and (op == "+U") != (before is not None):
                wrong = "has the wrong kind, +I or +U"
            elif not by_row and before == row:
                wrong = "changes nothing"
            current[key] = row
        if wrong:
            outcome.wrong.append(f"{op} {row} {wrong}")
    if not by_row:
        outcome.wrong += [f"-U {row} has no +U" for row in updating.values()]
    outcome.table = set(current.values())
    return outcome
