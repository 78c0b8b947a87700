"""Shop: a table of products that keeps changing, and canal's message for each change.

    Shop ──► messages   (partition, canal-json), the envelope as canal sends it
      └────► truth      name -> (SUM(cnt), MAX(cnt), COUNT(*), MIN(created)) of the rows left

Equal seeds give equal changes: the shop has its own clock, and each message advances it. Some
messages are bad; they are not in the truth.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

TABLE_COLUMNS = {
    "id": "BIGINT",
    "name": "STRING",
    "cnt": "INT",
    "price": "DECIMAL(10, 2)",
    "created": "TIMESTAMP(3)",
}
GROUPS = (
    "bolt",
    "bracket",
    "chisel",
    "drill",
    "hammer",
    "hinge",
    "nut",
    "pliers",
    "saw",
    "screw",
    "washer",
    "wrench",
)
RARE_GROUPS = ("anvil", "sundial")  # one row or none, so that results come and go

# How often each change happens, in a thousand. The number of rows stays about the same.
CHANGES = {
    "insert": 200,
    "recount": 420,
    "reprice": 90,  # changes no result: nothing is published for it
    "regroup": 80,
    "restock": 40,  # several rows in one message
    "delete": 163,
    "alter": 3,
    "bad": 4,
}
BAD_IN_A_THOUSAND = CHANGES["bad"]
ROWS_AT_FIRST = 300
ROWS_MAX = 900
RARE_SHARE = 0.002  # of the rows that get a group
ROWS_IN_A_MESSAGE = 6
CANAL_DELAY_MS = 12
OPENS = datetime(2026, 1, 2, 9)
MESSAGE_TAKES = timedelta(microseconds=2_500)  # as at the demo's default rate

_TYPES = {  # of MySQL, and JDBC's numbers for them
    "id": ("bigint", -5),
    "name": ("varchar(64)", 12),
    "cnt": ("int", 4),
    "price": ("decimal(10,2)", 3),
    "created": ("datetime(3)", 93),
    "shelf": ("varchar(8)", 12),
}

Message = tuple[int, bytes]
Truth = dict[str, tuple[int, int, int, datetime]]


@dataclass(slots=True)
class Product:
    name: str
    cnt: int
    cents: int
    created: datetime


@dataclass(slots=True)
class Shop:
    """The table. All changes of a product go to one partition, in order."""

    seed: int
    partitions: int
    _products: list[dict[int, Product]] = field(init=False)  # by partition, then by id
    _random: random.Random = field(init=False)
    _next_id: int = field(init=False, default=1)
    _messages: int = field(init=False, default=0)
    _has_shelf: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._products = [{} for _ in range(self.partitions)]

    def insert_stock(self, now_ms: int) -> Iterator[Message]:
        """Insert the first products, in messages of several rows, as a bulk INSERT does."""
        per_message = ROWS_AT_FIRST // (4 * self.partitions)
        for number in range(4 * self.partitions):
            yield self._insert(number % self.partitions, per_message, now_ms)

    def change(self, now_ms: int) -> Message:
        """Make the next change, by chance."""
        partition = self._random.randrange(self.partitions)
        live = self._products[partition]
        (kind,) = self._random.choices(list(CHANGES), list(CHANGES.values()))
        if kind == "insert" and sum(map(len, self._products)) >= ROWS_MAX:
            kind = "delete"
        if kind == "insert" or (len(live) < ROWS_IN_A_MESSAGE and kind not in ("alter", "bad")):
            return self._insert(partition, 1, now_ms)
        if kind == "delete":
            return self._delete(partition, now_ms)
        if kind == "alter":
            return self._alter(partition, now_ms)
        if kind == "bad":
            return self._make_bad(partition, now_ms)
        return self._update(partition, kind, now_ms)

    def compute_truth(self) -> Truth:
        """Compute the results of the query from the rows, not from the changes."""
        groups: dict[str, list[Product]] = {}
        for live in self._products:
            for product in live.values():
                groups.setdefault(product.name, []).append(product)
        return {
            name: (
                sum(each.cnt for each in group),
                max(each.cnt for each in group),
                len(group),
                min(each.created for each in group),
            )
            for name, group in sorted(groups.items())
        }

    # --- kinds of changes ---------------------------------------------------------------------

    def _insert(self, partition: int, rows: int, now_ms: int) -> Message:
        data = []
        for _ in range(rows):
            while self._next_id % self.partitions != partition:
                self._next_id += 1
            identity, self._next_id = self._next_id, self._next_id + 1
            product = self._make_product(self._choose_group())
            self._products[partition][identity] = product
            data.append(self._encode_row(identity, product))
        return partition, self._encode_message("INSERT", data, None, now_ms)

    def _update(self, partition: int, kind: str, now_ms: int) -> Message:
        live = self._products[partition]
        rows = self._random.randint(2, ROWS_IN_A_MESSAGE) if kind == "restock" else 1
        data, old = [], []
        for identity in self._random.sample(list(live), rows):
            product = live[identity]
            if kind == "regroup":
                old.append({"name": product.name})
                product.name = self._choose_group(apart_from=product.name)
            elif kind == "reprice":
                old.append({"price": _format_price(product.cents)})
                product.cents += self._random.randint(1, 500)
            else:
                old.append({"cnt": str(product.cnt)})
                product.cnt = (product.cnt + self._random.randint(1, 999)) % 1_000
            data.append(self._encode_row(identity, product))
        return partition, self._encode_message("UPDATE", data, old, now_ms)

    def _delete(self, partition: int, now_ms: int) -> Message:
        live = self._products[partition]
        identity = self._random.choice(list(live))
        data = [self._encode_row(identity, live.pop(identity))]
        return partition, self._encode_message("DELETE", data, None, now_ms)

    def _alter(self, partition: int, now_ms: int) -> Message:
        """Add a column that no job reads, or drop it."""
        self._has_shelf = not self._has_shelf
        clause = "ADD COLUMN `shelf` varchar(8)" if self._has_shelf else "DROP COLUMN `shelf`"
        fields = {"sql": f"ALTER TABLE `product` {clause}", "isDdl": True}
        return partition, self._encode_message("ALTER", None, None, now_ms, **fields)

    def _make_bad(self, partition: int, now_ms: int) -> Message:
        """Make a message that a job must refuse: it goes to quarantine, not into results."""
        row = self._encode_row(self._next_id, self._make_product("bolt"))
        kind = self._random.randrange(3)
        if kind == 0:
            return partition, self._encode_message(
                "INSERT", [{**row, "cnt": "a few"}], None, now_ms
            )
        if kind == 1:
            return partition, self._encode_message("UPSERT", [row], None, now_ms)
        return partition, self._encode_message("INSERT", [row], None, now_ms)[:-40]

    # --- messages of canal --------------------------------------------------------------------

    def _encode_row(self, identity: int, product: Product) -> dict[str, str | None]:
        row: dict[str, str | None] = {
            "id": str(identity),
            "name": product.name,
            "cnt": str(product.cnt),
            "price": _format_price(product.cents),
            "created": product.created.isoformat(" ", "milliseconds"),
        }
        if self._has_shelf:
            row["shelf"] = None if identity % 3 else f"{identity % 7}-{identity % 5}"
        return row

    def _encode_message(
        self,
        kind: str,
        data: list[dict[str, str | None]] | None,
        old: list[dict[str, str]] | None,
        now_ms: int,
        **fields: Any,
    ) -> bytes:
        self._messages += 1
        names = list(data[0]) if data else []
        message = {
            "data": data,
            "database": "shop",
            "es": now_ms - CANAL_DELAY_MS,
            "id": self._messages,
            "isDdl": False,
            "mysqlType": {name: _TYPES[name][0] for name in names} if data else None,
            "old": old,
            "pkNames": ["id"] if data else None,
            "sql": "",
            "sqlType": {name: _TYPES[name][1] for name in names} if data else None,
            "table": "product",
            "ts": now_ms,
            "type": kind,
        }
        return json.dumps({**message, **fields}, separators=(",", ":")).encode()

    def _make_product(self, name: str) -> Product:
        now = OPENS + self._messages * MESSAGE_TAKES
        created = now.replace(microsecond=now.microsecond // 1_000 * 1_000)
        return Product(name, self._random.randint(0, 999), self._random.randint(5, 20_000), created)

    def _choose_group(self, apart_from: str = "") -> str:
        pool = RARE_GROUPS if self._random.random() < RARE_SHARE else GROUPS
        return self._random.choice([name for name in pool if name != apart_from])


def _format_price(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"
