"""Well-formed histories of a table whose primary keys change, in the partitions of canal.

statements ──► live rows
     └──► messages, each in the partition of its (new) key ──► interleavings: bundles
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

from jobs.core.job.job_plan import plan_of
from jobs.core.rows.dedupe import LastImages
from jobs.core.values.change import Row
from schemas.spec.file import load_spec

PARTITIONS = 3
KEYS = 5
COLUMNS = {"id": "INT", "k": "STRING", "v": "INT"}
GROUPS = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class Message:
    partition: int
    changes: tuple[tuple[int, Row], ...]
    time: int  # of its statement


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
        messages.append(Message(key % PARTITIONS, changes, len(messages)))

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


def recompute(query: str, rows: list[Row]) -> list[Row]:
    """Return the result of the query over the live rows, as DuckDB has it."""
    types = pa.schema([("id", pa.int32()), ("k", pa.string()), ("v", pa.int32())])
    t = pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows], types)
    with duckdb.connect() as database:
        database.register("t", t)
        return sorted(database.execute(query).fetchall(), key=repr)


class Reader:
    """Returns the changes that are folded: those of the messages, or with `dedupe: pk` derived."""

    def __init__(self, query: str, *, dedupe: bool) -> None:
        spec: dict[str, Any] = {"name": "moved", "source": {"topic": "t"}, "query": query}
        keyed = {"primary_key": ["id"], "dedupe": "pk"} if dedupe else {}
        self.plan = plan_of(load_spec(spec | {"columns": COLUMNS} | keyed))
        self._image = [list(COLUMNS).index(column.name) for column in self.plan.image]
        self._images = LastImages(self.plan, keys_change=True) if dedupe else None

    def read(self, message: Message) -> list[tuple[int, Row]]:
        rows = [(sign, tuple(row[at] for at in self._image)) for sign, row in message.changes]
        if self._images is None:
            return rows
        return self._images.derive(rows, message.time, message.partition)


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
