"""Shop: a table of products that keeps changing, and canal's message for each change.

    Shop ──► messages   (partition, canal-json), the envelope as canal sends it
      └────► truth      name -> the result of the query over the rows left

Equal seeds give equal changes: the shop has its own clock, and each message advances it. Some
messages are bad; they are not in the truth.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from schemas.types.json_types import JsonObject

_COLUMNS = {  # types of a spec and of MySQL, and JDBC's number
    "id": ("BIGINT", "bigint", -5),
    "name": ("STRING", "varchar(64)", 12),
    "cnt": ("INT", "int", 4),
    "price": ("DECIMAL(10, 2)", "decimal(10,2)", 3),
    "created": ("TIMESTAMP(3)", "datetime(3)", 93),
}
_SHELF = {"shelf": ("STRING", "varchar(8)", 12)}  # comes and goes
TABLE_COLUMNS = {name: kind for name, (kind, _, _) in _COLUMNS.items()}
GROUPS = (
    *("bolt", "bracket", "chisel", "drill", "hammer", "hinge", "nut", "pliers", "saw", "screw"),
    *("washer", "wrench"),
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

Message = tuple[int, bytes]
Row = JsonObject  # as canal has it: every value is text
Truth = dict[str, JsonObject]


class Shop:
    """The table. All changes of a product go to one partition, in order."""

    def __init__(self, seed: int, partitions: int) -> None:
        self.partitions = partitions
        self._products: list[list[Row]] = [[] for _ in range(partitions)]
        self._random = random.Random(seed)
        self._next_id = 1
        self._messages = 0
        self._has_shelf = False

    def insert_stock(self, now_ms: int) -> Iterator[Message]:
        """Insert the first products, in messages of several rows, as a bulk INSERT does."""
        per_message = ROWS_AT_FIRST // (4 * self.partitions)
        for number in range(4 * self.partitions):
            yield self._insert(number % self.partitions, now_ms, per_message)

    def change(self, now_ms: int) -> Message:
        """Make the next change, by chance."""
        partition = self._random.randrange(self.partitions)
        live = self._products[partition]
        (kind,) = self._random.choices(list(CHANGES), list(CHANGES.values()))
        if kind == "insert" and sum(map(len, self._products)) >= ROWS_MAX:
            kind = "delete"
        if len(live) < ROWS_IN_A_MESSAGE and kind not in ("alter", "bad"):
            kind = "insert"
        others = {"insert": self._insert, "delete": self._delete}
        others |= {"alter": self._alter, "bad": self._make_bad}
        make = others.get(kind, partial(self._update, kind))
        return make(partition, now_ms)

    def compute_truth(self) -> Truth:
        """Compute the results of the query from the rows, not from the changes."""
        groups: dict[str, list[Row]] = {}
        for live in self._products:
            for row in live:
                groups.setdefault(row["name"], []).append(row)
        return {
            name: {
                "name": name,
                "sum_cnt": sum(int(row["cnt"]) for row in rows),
                "top": max(int(row["cnt"]) for row in rows),
                "n": len(rows),
                "oldest": min(row["created"] for row in rows).rstrip("0").rstrip("."),
            }
            for name, rows in groups.items()
        }

    # --- kinds of changes ---------------------------------------------------------------------

    def _insert(self, partition: int, now_ms: int, rows: int = 1) -> Message:
        data = []
        for _ in range(rows):
            while self._next_id % self.partitions != partition:
                self._next_id += 1
            data.append(self._make_product(self._choose_group()))
            self._next_id += 1
        self._products[partition] += data
        return partition, self._encode_message("INSERT", data, now_ms)

    def _update(self, kind: str, partition: int, now_ms: int) -> Message:
        count = self._random.randint(2, ROWS_IN_A_MESSAGE) if kind == "restock" else 1
        rows, old = self._random.sample(self._products[partition], count), []
        for row in rows:
            if kind == "regroup":
                new = {"name": self._choose_group(apart_from=row["name"])}
            elif kind == "reprice":
                new = {"price": f"{Decimal(row['price']) + self._choose_price(500):.2f}"}
            else:
                new = {"cnt": str((int(row["cnt"]) + self._random.randint(1, 999)) % 1_000)}
            old.append({name: row[name] for name in new})
            row |= new
        return partition, self._encode_message("UPDATE", rows, now_ms, old=old)

    def _delete(self, partition: int, now_ms: int) -> Message:
        live = self._products[partition]
        row = live.pop(self._random.randrange(len(live)))
        return partition, self._encode_message("DELETE", [row], now_ms)

    def _alter(self, partition: int, now_ms: int) -> Message:
        """Add a column that no job reads, or drop it."""
        self._has_shelf = not self._has_shelf
        clause = "ADD COLUMN `shelf` varchar(8)" if self._has_shelf else "DROP COLUMN `shelf`"
        sql = f"ALTER TABLE `product` {clause}"
        return partition, self._encode_message("ALTER", None, now_ms, sql=sql, isDdl=True)

    def _make_bad(self, partition: int, now_ms: int) -> Message:
        """Make a message that a job must refuse: it goes to quarantine, not into results."""
        row = self._make_product("bolt")
        kind = self._random.randrange(3)
        if kind == 0:
            row["cnt"] = "a few"
        value = self._encode_message("UPSERT" if kind == 1 else "INSERT", [row], now_ms)
        return partition, value[:-40] if kind == 2 else value

    # --- messages of canal --------------------------------------------------------------------

    def _encode_message(
        self, kind: str, data: list[Row] | None, now_ms: int, **fields: Any
    ) -> bytes:
        self._messages += 1
        columns = _COLUMNS | (_SHELF if self._has_shelf else {})
        message = {
            "data": data and [{name: row.get(name) for name in columns} for row in data],
            "database": "shop",
            "es": now_ms - CANAL_DELAY_MS,
            "id": self._messages,
            "isDdl": False,
            "mysqlType": {name: kind for name, (_, kind, _) in columns.items()} if data else None,
            "old": None,
            "pkNames": ["id"] if data else None,
            "sql": "",
            "sqlType": {name: number for name, (*_, number) in columns.items()} if data else None,
            "table": "product",
            "ts": now_ms,
            "type": kind,
        }
        return json.dumps({**message, **fields}, separators=(",", ":")).encode()

    def _make_product(self, name: str) -> Row:
        created = OPENS + self._messages * MESSAGE_TAKES
        return {
            "id": str(self._next_id),
            "name": name,
            "cnt": str(self._random.randint(0, 999)),
            "price": f"{self._choose_price(20_000):.2f}",
            "created": created.isoformat(" ", "milliseconds"),
        }

    def _choose_price(self, cents_max: int) -> Decimal:
        return Decimal(self._random.randint(5, cents_max)) / 100

    def _choose_group(self, apart_from: str = "") -> str:
        pool = RARE_GROUPS if self._random.random() < RARE_SHARE else GROUPS
        return self._random.choice([name for name in pool if name != apart_from])
