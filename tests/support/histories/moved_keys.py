"""Well-formed histories of a table whose primary keys change, in the partitions of canal.

statements ──► live rows
     └──► messages, each in the partition of its (new) key ──► interleavings: bundles
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from jobs.core.values.change import Row

PARTITIONS = 3
KEYS = 5
GROUPS = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Message:
    partition: int
    changes: tuple[tuple[int, Row], ...]


@dataclass(frozen=True, slots=True)
class History:
    """Messages in the order of the statements, and the rows that are left."""

    messages: tuple[Message, ...]
    rows: list[Row]


@st.composite
def histories(draw: st.DrawFn, *, delete_all: bool = False) -> History:
    """Draw inserts, updates in place and of keys, swaps of keys, and deletes."""
    live: dict[int, Row] = {}
    messages: list[Message] = []

    def change(key: int, before: Row | None, after: Row | None) -> None:
        images = ((-1, before), (1, after))
        changes = tuple((sign, image) for sign, image in images if image is not None)
        messages.append(Message(key % PARTITIONS, changes))

    def move(old: int, new: int) -> None:
        before = live.pop(old)
        live[new] = (new, *before[1:])
        change(new, before, live[new])

    values = st.tuples(st.sampled_from(GROUPS), st.one_of(st.none(), st.integers(0, 4)))
    for _ in range(draw(st.integers(0, 14))):
        key = draw(st.integers(0, KEYS - 1))
        before = live.get(key)
        action = draw(st.sampled_from(["set", "set", "delete", "move", "swap"]))
        others = [other for other in live if other != key]
        if before is None or action == "set":
            live[key] = (key, *draw(values))
            change(key, before, live[key])
        elif action == "delete":
            change(key, live.pop(key), None)
        elif action == "swap" and others:
            other = draw(st.sampled_from(others))
            for old, new in ((key, KEYS), (other, key), (KEYS, other)):
                move(old, new)
        elif free := [number for number in range(KEYS) if number not in live]:
            move(key, draw(st.sampled_from(free)))
    if delete_all:
        for key in list(live):
            change(key, live.pop(key), None)
    return History(tuple(messages), list(live.values()))


@st.composite
def interleavings(draw: st.DrawFn, messages: Sequence[Message]) -> list[list[Message]]:
    """Draw bundles of the messages; of each partition they are in order."""
    queues = [[each for each in messages if each.partition == at] for at in range(PARTITIONS)]
    bundles: list[list[Message]] = [[]]
    while any(queues):
        queue = draw(st.sampled_from([queue for queue in queues if queue]))
        bundles[-1].append(queue.pop(0))
        if draw(st.booleans()):
            bundles.append([])
    return bundles
