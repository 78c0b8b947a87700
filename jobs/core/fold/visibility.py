"""Visibility: how much of a group readers of the changelog have seen, and how that changes.

    before      emit a row   emit no row   withhold    close
    ─────────   ──────────   ───────────   ─────────   ──────
    (no group)  SHOWN        HIDDEN        UNSHOWN
    SHOWN       SHOWN        HIDDEN        WITHHELD    CLOSED
    WITHHELD    SHOWN        HIDDEN        WITHHELD
    UNSHOWN     SHOWN        HIDDEN        UNSHOWN
    HIDDEN      SHOWN        HIDDEN        UNSHOWN     (gone)

Withheld changes are emitted before the window closes, and a closed group takes no changes.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto


class Visibility(IntEnum):
    """Stored with each group; the numbers are part of the format."""

    SHOWN = 0  # every change is emitted
    WITHHELD = 1  # the last result is emitted, the changes since are not
    UNSHOWN = 2  # nothing is emitted, and there are changes to emit
    CLOSED = 3  # the window is closed: the table keeps the result, the state nothing
    HIDDEN = 4  # everything is emitted, and the group has no row: it does not pass HAVING


class Action(Enum):
    """What a fold does with the changes of a group."""

    EMIT = auto()
    EMIT_NO_ROW = auto()
    WITHHOLD = auto()
    CLOSE = auto()


_AFTER: dict[tuple[Visibility | None, Action], Visibility | None] = {
    (None, Action.EMIT): Visibility.SHOWN,
    (None, Action.EMIT_NO_ROW): Visibility.HIDDEN,
    (None, Action.WITHHOLD): Visibility.UNSHOWN,
    (Visibility.SHOWN, Action.EMIT): Visibility.SHOWN,
    (Visibility.SHOWN, Action.EMIT_NO_ROW): Visibility.HIDDEN,
    (Visibility.SHOWN, Action.WITHHOLD): Visibility.WITHHELD,
    (Visibility.SHOWN, Action.CLOSE): Visibility.CLOSED,
    (Visibility.WITHHELD, Action.EMIT): Visibility.SHOWN,
    (Visibility.WITHHELD, Action.EMIT_NO_ROW): Visibility.HIDDEN,
    (Visibility.WITHHELD, Action.WITHHOLD): Visibility.WITHHELD,
    (Visibility.UNSHOWN, Action.EMIT): Visibility.SHOWN,
    (Visibility.UNSHOWN, Action.EMIT_NO_ROW): Visibility.HIDDEN,
    (Visibility.UNSHOWN, Action.WITHHOLD): Visibility.UNSHOWN,
    (Visibility.HIDDEN, Action.EMIT): Visibility.SHOWN,
    (Visibility.HIDDEN, Action.EMIT_NO_ROW): Visibility.HIDDEN,
    (Visibility.HIDDEN, Action.WITHHOLD): Visibility.UNSHOWN,
    (Visibility.HIDDEN, Action.CLOSE): None,
}
WITHHELD = frozenset({Visibility.WITHHELD, Visibility.UNSHOWN})
WITHOUT_ROW = frozenset({Visibility.UNSHOWN, Visibility.HIDDEN})


def next_visibility(before: Visibility | None, action: Action) -> Visibility | None:
    """Return a group's visibility after an action; None stands for no group.

    KeyError: the action is impossible there, so the fold is wrong and must not go on.
    """
    return _AFTER[before, action]
