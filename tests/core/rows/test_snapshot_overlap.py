"""Rows of a snapshot, then the topic: exact for every overlap of both.

history of a table ─┬─ its rows at moments of their own, by part ─► images ─┐
                    └─ its messages, partitions in any order ───────────────┴─► the last rows
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from jobs.core.plan.tree import Column
from jobs.core.rows.dedupe import LastImages
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row
from schemas.types.sql_types import SqlType

PARTITIONS = 2
Message = tuple[int, int, list[tuple[int, Row]]]  # partition, time, signed rows


class History:
    """A table whose rows come, change, go and get other keys; each change at a time of its own."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.rows: dict[int, Row] = {}
        self.time = 1_700_000_000_000

    def change(self) -> Message:
        random, key = self._random, self._random.randrange(6)
        self.time += 1
        before = self.rows.get(key)
        after: Row = (key, random.randrange(4))
        if before is None:
            self.rows[key] = after
            return key % PARTITIONS, self.time, [(1, after)]
        kind = random.random()
        if kind < 0.3:
            del self.rows[key]
            return key % PARTITIONS, self.time, [(-1, before)]
        free = [each for each in range(6) if each not in self.rows]
        if kind < 0.6 and free:
            new = random.choice(free)
            after = (new, before[1])
            self.rows[new] = after
            del self.rows[key]
            return new % PARTITIONS, self.time, [(-1, before), (1, after)]
        self.rows[key] = after
        return key % PARTITIONS, self.time, [(-1, before), (1, after)]


@pytest.mark.parametrize("seeds", [range(at, at + 50) for at in range(0, 300, 50)], ids=str)
def test_a_snapshot_at_any_moments_and_the_topic_behind_it_end_at_the_rows_of_the_table(
    seeds: range,
) -> None:
    for seed in seeds:
        _compare(Random(seed))


def _compare(random: Random) -> None:
    history = History(random)
    for _ in range(random.randrange(30)):
        history.change()  # before the job notes the ends of the topic
    states, messages = [dict(history.rows)], list[Message]()
    for _ in range(random.randrange(40)):
        messages.append(history.change())
        states.append(dict(history.rows))
    images = _images()
    for part in range(3):  # each is read when it is its turn, and none in the past
        rows = random.choice(states)
        for key in (key for key in rows if key % 3 == part):
            images.derive([(1, rows[key])])
    for message in _deliver(messages, random):
        images.derive(message[2], message[1], message[0])
    assert sorted(map(repr, images.live())) == sorted(map(repr, history.rows.values()))
    assert images.moved_keys == 0


def _images() -> LastImages:
    columns = {"id": SqlType.parse("BIGINT"), "n": SqlType.parse("BIGINT")}
    plan = parse_query("SELECT id, n, COUNT(*) AS c FROM t GROUP BY id, n", columns, {})
    keyed = replace(plan, primary_key=(Column("id", columns["id"]),))
    return LastImages(keyed, keys_change=True)


def _deliver(messages: list[Message], random: Random) -> list[Message]:
    """Return the messages in an order that keeps that of each partition."""
    queues = [[each for each in messages if each[0] == number] for number in range(PARTITIONS)]
    found = []
    while any(queues):
        queue = random.choice([each for each in queues if each])
        found.append(queue.pop(0))
    return found
