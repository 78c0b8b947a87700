"""Shop: products, and the warehouses of their names, keep changing; canal's message of each.

    Shop ──► messages   (partition, canal-json), the envelope as canal sends it
      └────► truth      by name or by warehouse: the result of the query over the rows left

Equal seeds give equal changes. Some messages are bad; they are not in the truth.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from itertools import chain, repeat
from typing import Any

from schemas.types.json_types import JsonObject
from schemas.types.moments import now_ms

_PRODUCT = {  # types of a spec and of MySQL, and JDBC's number
    "id": ("BIGINT", "bigint", -5),
    "name": ("STRING", "varchar(64)", 12),
    "cnt": ("INT", "int", 4),
    "price": ("DECIMAL(10, 2)", "decimal(10,2)", 3),
}
_SHELF = {"shelf": ("STRING", "varchar(8)", 12)}  # comes and goes
_STORAGE = {"name": _PRODUCT["name"], "warehouse": ("STRING", "varchar(16)", 12)}
TABLE_COLUMNS = {name: kind for name, (kind, _, _) in _PRODUCT.items()}
STORAGE_COLUMNS = {name: kind for name, (kind, _, _) in _STORAGE.items()}
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
ROWS_AT_FIRST = 300
ROWS_MAX = 900
RARE_SHARE = 0.002  # of the rows that get a group
ROWS_IN_A_MESSAGE = 6
CANAL_DELAY_MS = 12
WAREHOUSES = ("north", "east", "south", "west")
LEAVES_SHARE = 0.1  # of the changes of a name that is stored: then it is stored nowhere

Message = tuple[int, bytes]
Row = JsonObject  # as canal has it: every value is text
Truth = dict[str, JsonObject]
Columns = Mapping[str, tuple[str, str, int]]


class Shop:
    """Both tables. All changes of a product go to one partition, in order."""

    def __init__(self, seed: int, partitions: int) -> None:
        self.partitions = partitions
        self._products: list[list[Row]] = [[] for _ in range(partitions)]
        self.warehouses: dict[str, str] = {}  # by name
        self._random, self._of_storage = random.Random(seed), random.Random(seed)
        self._next_id, self._messages, self._has_shelf = 1, 0, False

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

    def change_storage(self) -> Iterator[Message]:
        """Store every name, then move one after the other, or store it nowhere for a while."""
        random, names = self._of_storage, (*GROUPS, *RARE_GROUPS)
        for number, name in enumerate(chain(names, map(random.choice, repeat(names)))):
            before = self.warehouses.pop(name, None)
            leaves = before is not None and random.random() < LEAVES_SHARE
            if not leaves:
                self.warehouses[name] = random.choice([w for w in WAREHOUSES if w != before])
            kind = "DELETE" if leaves else "UPDATE" if before else "INSERT"
            row = {"name": name, "warehouse": self.warehouses.get(name, before)}
            old = [{"warehouse": before}] if kind == "UPDATE" else None
            fields = {"pkNames": ["name"], "id": number, "old": old}
            yield 0, _encode_message("storage", _STORAGE, kind, [row], now_ms(), **fields)

    def compute_truth(self, column: str = "name") -> Truth:
        """Compute the results by name or by warehouse from the rows, not from the changes."""
        groups: dict[str, list[int]] = {}
        for row in chain(*self._products):
            key = row["name"] if column == "name" else self.warehouses.get(row["name"])
            if key is not None:
                groups.setdefault(key, []).append(int(row["cnt"]))
        return {
            key: {column: key, "sum_cnt": sum(counts), "top": max(counts), "n": len(counts)}
            for key, counts in groups.items()
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
        return partition, self._encode_product("INSERT", data, now_ms)

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
        return partition, self._encode_product("UPDATE", rows, now_ms, old=old)

    def _delete(self, partition: int, now_ms: int) -> Message:
        live = self._products[partition]
        row = live.pop(self._random.randrange(len(live)))
        return partition, self._encode_product("DELETE", [row], now_ms)

    def _alter(self, partition: int, now_ms: int) -> Message:
        """Add a column that no job reads, or drop it."""
        self._has_shelf = not self._has_shelf
        clause = "ADD COLUMN `shelf` varchar(8)" if self._has_shelf else "DROP COLUMN `shelf`"
        sql = f"ALTER TABLE `product` {clause}"
        return partition, self._encode_product("ALTER", None, now_ms, sql=sql, isDdl=True)

    def _make_bad(self, partition: int, now_ms: int) -> Message:
        """Make a message that a job must refuse: it goes to quarantine, not into results."""
        row = self._make_product("bolt")
        kind = self._random.randrange(3)
        if kind == 0:
            row["cnt"] = "a few"
        value = self._encode_product("UPSERT" if kind == 1 else "INSERT", [row], now_ms)
        return partition, value[:-40] if kind == 2 else value

    # --- messages of canal --------------------------------------------------------------------

    def _encode_product(
        self, kind: str, data: list[Row] | None, now_ms: int, **fields: Any
    ) -> bytes:
        self._messages += 1
        columns = _PRODUCT | (_SHELF if self._has_shelf else {})
        keys = {"pkNames": ["id"] if data else None, "id": self._messages}
        return _encode_message("product", columns, kind, data, now_ms, **keys, **fields)

    def _make_product(self, name: str) -> Row:
        return {
            "id": str(self._next_id),
            "name": name,
            "cnt": str(self._random.randint(0, 999)),
            "price": f"{self._choose_price(20_000):.2f}",
        }

    def _choose_price(self, cents_max: int) -> Decimal:
        return Decimal(self._random.randint(5, cents_max)) / 100

    def _choose_group(self, apart_from: str = "") -> str:
        pool = RARE_GROUPS if self._random.random() < RARE_SHARE else GROUPS
        return self._random.choice([name for name in pool if name != apart_from])


def _encode_message(
    table: str, columns: Columns, kind: str, data: list[Row] | None, now_ms: int, **fields: Any
) -> bytes:
    message = {
        "data": data and [{name: row.get(name) for name in columns} for row in data],
        "database": "shop",
        "es": now_ms - CANAL_DELAY_MS,
        "isDdl": False,
        "mysqlType": {name: kind for name, (_, kind, _) in columns.items()} if data else None,
        "old": None,
        "sql": "",
        "sqlType": {name: number for name, (*_, number) in columns.items()} if data else None,
        "table": table,
        "ts": now_ms,
        "type": kind,
    }
    return json.dumps({**message, **fields}, separators=(",", ":")).encode()
