"""Emission: the changelog rows of a group, by its row before and after.

    before    after      emit
    ──────    ─────      ────
    none      none
    none      a row      +I
    a row     none       -D
    a row     a row      -U +U, if they differ

Both folds use this table: the general fold for one group, the fold in arrays for all groups.
"""

from __future__ import annotations

from collections.abc import Iterator

from jobs.core.fold.state import Key
from jobs.core.values.change import Op, Row

# By `2 * (a row before) + (a row after)`; two rows that do not differ emit what no rows do.
CASES: tuple[tuple[Op, ...], ...] = (
    (),
    (Op.INSERT,),
    (Op.DELETE,),
    (Op.UPDATE_BEFORE, Op.UPDATE_AFTER),
)
WITH_ROW_AFTER = frozenset({Op.INSERT, Op.UPDATE_AFTER})


def emit_change(
    key: Key, before: Row | None, after: Row | None, *, differ: bool
) -> Iterator[tuple[Op, Key, Row]]:
    """Yield the changelog rows of one group."""
    both = before is not None and after is not None
    case = 0 if both and not differ else 2 * (before is not None) + (after is not None)
    for op in CASES[case]:
        row = after if op in WITH_ROW_AFTER else before
        assert row is not None
        yield op, key, row
