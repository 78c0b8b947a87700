"""Deltas before the fold: whether they change anything, and which retractions they lose."""

from __future__ import annotations

from jobs.core.fold.program import FIRST_CELL, FIRST_PLUS, HEADS, NEVER, ROW_COUNT, Delta, Program


def is_empty(program: Program, delta: Delta) -> bool:
    """Return whether a delta changes nothing."""
    if delta[ROW_COUNT]:
        return False
    cells_end = FIRST_CELL + len(program.cells) - 1
    return not any(delta[FIRST_CELL:cells_end]) and not any(
        any(multiset.values()) for multiset in delta[cells_end:]
    )


def drop_heads(program: Program, delta: Delta) -> int:
    """Drop the retractions before the first +I or +U of a group; return how many."""
    dropped = 0
    for position, *values in delta[HEADS]:
        if position < delta[FIRST_PLUS]:
            program.undo_retraction(delta, *values)
            dropped += 1
    return dropped


def starts_group(delta: Delta) -> bool:
    """Return whether a delta starts a group that withholds results and drops heads.

    A +I or +U starts one, even if a later retraction cancels it.
    """
    return bool(delta[FIRST_PLUS] < NEVER)
