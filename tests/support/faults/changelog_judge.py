"""A changelog, folded as it is read: the table that it comes to, and every change that is wrong.

+I  where nothing is          -U  of the row that is there, +U of another one after it
                              -D  of the row that is there
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
        """The first things that are not as they should be, for people."""
        said = [*self.wrong]
        said += [f"missing: {row}" for row in sorted(truth - self.table, key=str)]
        said += [f"beyond the truth: {row}" for row in sorted(self.table - truth, key=str)]
        return said[:SHOWN_MAX]


def folded(changes: Iterable[Change], keys: int, *, by_row: bool = False) -> Folded:
    """`keys` columns of a row are its key. `by_row`: a filter has looked at each change by itself,
    so that what comes may be a +U and what goes a -U."""
    outcome = Folded()
    there: dict[Values, Values] = {}
    updating: dict[Values, Values] = {}  # taken back by -U, and no +U after it yet
    for op, row in changes:
        outcome.changes += 1
        key = row[:keys]
        now, before = there.pop(key, None), updating.pop(key, None)
        wrong = ""
        if op in ("-U", "-D"):
            if now != row:
                wrong = f"takes back what is not there, but {now}"
            if op == "-U":
                updating[key] = row
        else:
            if now is not None:
                wrong = f"comes where {now} is"
            elif not by_row and (op == "+U") != (before is not None):
                wrong = "comes as the other kind"
            elif not by_row and before == row:
                wrong = "changes nothing"
            there[key] = row
        if wrong:
            outcome.wrong.append(f"{op} {row} {wrong}")
    if not by_row:
        outcome.wrong += [f"-U {row} has no +U" for row in updating.values()]
    outcome.table = set(there.values())
    return outcome
