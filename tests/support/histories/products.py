"""Random histories of a product table as canal messages, with their rows.

    seed ──► inserts, updates that move groups, deletes, NULLs, several rows a message, noise
                 ├─► canal-json bytes in four partitions
                 └─► the signed rows of each message, and so the live rows after any prefix

A row's partition follows from its id, so a partition's messages are in the order of their rows.
Domains are small, so that rows repeat and cancel. The same seed gives the same history on every
machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Literal

from jobs.core.values.change import Row

COLUMNS = {
    "id": "BIGINT",
    "name": "STRING",
    "region": "STRING",
    "cnt": "INT",
    "price": "DECIMAL(10, 2)",
    "weight": "DOUBLE",
    "note": "STRING",
}
PARTITIONS = 4
DATABASE, TABLE = "shop", "product"
ID, NAME, REGION, CNT, PRICE, WEIGHT, NOTE = range(7)

# Values as retally holds them: decimals in units, and floats whose sums are exact in any order,
# so that a judge which adds doubles one after the other comes to the same.
_DOMAINS: dict[int, list[str | int | float | None]] = {
    NAME: ["ant", "bee", "cow", "Ährenfeld", "", None],
    REGION: ["north", "south", None],
    CNT: [-3, -1, 0, 1, 2, 2_147_483_647, None],
    PRICE: [0, 1, 5, 250, 999, 99_999_999, -333, None],
    WEIGHT: [0.0, 0.25, -1.5, 1024.125, None],
    NOTE: ["x", "y", "é", "zz", "", None],
}
_FIRST_ES = 1_589_373_515_000
_ROWS_A_MESSAGE_MAX = 3

Outcome = Literal["changes", "rejected", "skipped", "filtered"]


@dataclass(frozen=True, slots=True)
class Message:
    """One record: its bytes, its outcome, and its signed rows."""

    partition: int
    value: bytes | None
    outcome: Outcome
    changes: tuple[tuple[int, Row], ...] = ()


@dataclass(slots=True)
class History:
    seed: int
    messages: list[Message] = field(default_factory=list)  # in the order of their writing

    def cut(self, seed: int, mean: float) -> list[list[Message]]:
        """Cut the messages into bundles of about `mean`; each partition has its own pace."""
        rng = random.Random(f"cut {self.seed} {seed}")
        queues = [
            [message for message in self.messages if message.partition == partition]
            for partition in range(PARTITIONS)
        ]
        bundles = []
        while any(queues):
            bundle = []
            for queue in queues:
                take = min(len(queue), round(rng.expovariate(PARTITIONS / mean)))
                bundle += queue[:take]
                del queue[:take]
            bundles.append(bundle)
        return bundles


def live_rows(live: dict[int, Row], messages: Iterable[Message]) -> dict[int, Row]:
    """Apply messages to `live` (rows by id), in place, and return it."""
    for message in messages:
        for weight, row in message.changes:
            key = row[ID]
            assert isinstance(key, int)
            if weight > 0:
                assert key not in live
                live[key] = row
            else:
                assert live.pop(key) == row
    return live


def history(seed: int, messages: int) -> History:
    """Return a history with this number of messages, including noise."""
    return History(seed, list(islice(endless(seed), messages)))


def endless(seed: int) -> Iterator[Message]:
    """Yield the same history without end."""
    source = _Source(random.Random(f"history {seed}"))
    for number in count():
        yield source.message(number)


class _Source:
    """The table that the messages come from."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.live: list[dict[int, Row]] = [{} for _ in range(PARTITIONS)]
        self.ids = iter(range(1_000_000))

    def message(self, number: int) -> Message:
        rng = self.rng
        partition = rng.randrange(PARTITIONS)
        live = self.live[partition]
        kinds = ["INSERT"] * 4 + ["noise"]
        if live:
            kinds += ["UPDATE"] * 5 + ["DELETE"] * 2
        kind = rng.choice(kinds)
        if kind == "noise":
            return self._noise(partition, number)
        changes: list[tuple[int, Row]] = []
        old: list[dict[str, object]] = []
        if kind == "INSERT":
            for _ in range(rng.randint(1, _ROWS_A_MESSAGE_MAX)):
                changes.append((1, self._fresh(partition)))
        else:
            count = min(len(live), rng.randint(1, _ROWS_A_MESSAGE_MAX))
            for key in rng.sample(sorted(live), count):
                before = live[key]
                if kind == "DELETE":
                    changes.append((-1, before))
                    continue
                after, named = self._changed(before)
                changes += [(-1, before), (1, after)]
                old.append(named)
        for weight, row in changes:
            if weight > 0:
                live[int(str(row[ID] or 0))] = row
            else:
                del live[int(str(row[ID] or 0))]
        data = [row for weight, row in changes if (weight > 0) != (kind == "DELETE")]
        value = canal(kind, data, old if kind == "UPDATE" else None, es=_FIRST_ES + number)
        return Message(partition, value, "changes", tuple(changes))

    def _fresh(self, partition: int) -> Row:
        """A row whose id belongs to the partition; ids are never used again."""
        key = next(self.ids) * PARTITIONS + partition
        return (key, *(self.rng.choice(_DOMAINS[place]) for place in range(1, len(COLUMNS))))

    def _changed(self, before: Row) -> tuple[Row, dict[str, object]]:
        """Return an updated row and its `old`: changed columns, sometimes also unchanged ones."""
        after = list(before)
        for place in self.rng.sample(range(1, len(COLUMNS)), self.rng.randint(1, 3)):
            after[place] = self.rng.choice(_DOMAINS[place])
        names = list(COLUMNS)
        named: dict[str, object] = {
            names[place]: text(place, before[place])
            for place in range(len(COLUMNS))
            if before[place] != after[place] or self.rng.random() < 0.1
        }
        return tuple(after), named

    def _noise(self, partition: int, number: int) -> Message:
        """Return a message without effect: malformed, of another table, or without rows."""
        good = [self._fresh(partition) for _ in range(2)]
        outcome, value = self.rng.choice(list(_noises(good, _FIRST_ES + number)))
        return Message(partition, value, outcome)


def _noises(good: list[Row], es: int) -> Iterator[tuple[Outcome, bytes | None]]:
    whole = canal("INSERT", good, None, es=es)

    def spoilt(kind: str = "INSERT", **fields: object) -> bytes:
        message = json.loads(whole)
        message["type"] = kind
        message["data"][-1].update(fields)
        return json.dumps(message).encode()

    yield "rejected", whole[:-5]
    yield "rejected", b"\xff" + whole
    yield "rejected", spoilt("UPSERT")
    yield "rejected", spoilt(cnt="three")  # the row before it is good; it must not count
    yield "rejected", spoilt(cnt="2147483648")
    yield "rejected", spoilt(price="123456789.00")
    yield "rejected", whole.replace(b'"data": [{', b'"data": [null, {')
    yield "rejected", canal("UPDATE", good, [{"cnt": "1"}], es=es)
    yield "skipped", None
    yield "skipped", b""
    yield "skipped", b'{"database": "shop", "isDdl": true, "table": "product", "type": "CREATE"}'
    yield "filtered", whole.replace(b'"table": "product"', b'"table": "customer"')
    yield "changes", canal("INSERT", [], None, es=es)


def canal(kind: str, data: list[Row], old: list[dict[str, object]] | None, *, es: int) -> bytes:
    """Return a message as canal writes it: values are text or null."""
    rows = [{name: text(place, row[place]) for place, name in enumerate(COLUMNS)} for row in data]
    message = {
        "data": rows,
        "database": DATABASE,
        "es": es,
        "isDdl": False,
        "old": old,
        "pkNames": ["id"],
        "table": TABLE,
        "ts": es + 7,
        "type": kind,
    }
    return json.dumps(message).encode()


def text(place: int, value: object) -> str | None:
    if value is None:
        return None
    if place == PRICE:
        assert isinstance(value, int)
        return f"{'-' if value < 0 else ''}{abs(value) // 100}.{abs(value) % 100:02d}"
    return str(value)
