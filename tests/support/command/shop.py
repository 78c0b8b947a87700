"""A shop's table that keeps changing: canal-json messages, and the truth by DuckDB."""

from __future__ import annotations

import json
import random
from contextlib import AbstractContextManager
from typing import Any

import duckdb
from kafka import KafkaProducer

from jobs.edge.kafka.admin import KafkaAdmin
from tests.support.command.waiting import repeating

PARTITIONS = 4
QUERY = "SELECT name, SUM(cnt), MAX(cnt) AS top, COUNT(*) AS n FROM product GROUP BY name"
COLUMN_TYPES = {"id": "BIGINT", "name": "STRING", "cnt": "INT"}
COLUMNS = "{" + ", ".join(f"{name}: {kind}" for name, kind in COLUMN_TYPES.items()) + "}"
NAMES = ["apple", "pear", "Grüße", "", "x" * 50, None, "[bold]b[/bold]", "\x1b[31mred"]
Result = list[dict[str, Any]]


class Shop:
    """A table. All changes of a row are in one partition, so that they stay in order."""

    def __init__(self, address: str, topic: str, seed: int) -> None:
        self.topic = topic
        self.rows: dict[int, tuple[str | None, int | None]] = {}
        self.rejected = 0
        self._random = random.Random(seed)
        self._next = 0
        with KafkaAdmin({"bootstrap_servers": [address]}) as admin:
            admin.ensure_topic(topic, PARTITIONS, {})
        self._producer = KafkaProducer(bootstrap_servers=address)

    def feed(self, changes: int) -> None:
        """Send so many messages, and an invalid one."""
        for _ in range(changes):
            self._change()
        self._producer.send(self.topic, b"{not canal", partition=1)
        self.rejected += 1
        self._producer.flush()

    def feeding(self, changes: int, every_seconds: float) -> AbstractContextManager[None]:
        """Send so many changes again and again until the block ends."""
        return repeating(lambda: self.feed(changes), every_seconds)

    def close(self) -> None:
        self._producer.close()

    def truth(self) -> Result:
        """Compute the results of the query over the live rows."""
        with duckdb.connect() as database:
            database.execute("CREATE TABLE product (id BIGINT, name VARCHAR, cnt INT)")
            if self.rows:
                values = [[row, name, cnt] for row, (name, cnt) in self.rows.items()]
                database.executemany("INSERT INTO product VALUES (?, ?, ?)", values)
            found = database.execute(QUERY).fetchall()
        names = ("name", "sum_cnt", "top", "n")
        return ordered([dict(zip(names, row, strict=True)) for row in found])

    def _change(self) -> None:
        choice = self._random.random()
        if choice < 0.55 or len(self.rows) < 5:
            row, self._next = self._next, self._next + 1
            self._send("INSERT", row, self._values())
        elif choice < 0.85:
            row = self._any_row()
            self._send("UPDATE", row, self._values(), self.rows[row])
        else:
            row = self._any_row()
            self._send("DELETE", row, self.rows[row])

    def _any_row(self) -> int:
        """Return one of the rows; most numbers below the next one are rows."""
        while (row := self._random.randrange(self._next)) not in self.rows:
            pass
        return row

    def _values(self) -> tuple[str | None, int | None]:
        cnt = None if self._random.random() < 0.05 else self._random.randint(-20, 99)
        return self._random.choice(NAMES), cnt

    def _send(
        self,
        kind: str,
        row: int,
        values: tuple[str | None, int | None],
        before: tuple[str | None, int | None] | None = None,
    ) -> None:
        if kind == "DELETE":
            del self.rows[row]
        else:
            self.rows[row] = values
        message = {
            "type": kind,
            "database": "shop",
            "table": "product",
            "isDdl": False,
            "es": 1_700_000_000_000 + row,
            "ts": 1_700_000_000_001,
            "data": [{"id": str(row), **_texts(values)}],
            "old": None if before is None else [_texts(before)],
        }
        value = json.dumps(message).encode()
        self._producer.send(self.topic, value, partition=row % PARTITIONS)


def _texts(values: tuple[str | None, int | None]) -> dict[str, str | None]:
    name, cnt = values
    return {"name": name, "cnt": None if cnt is None else str(cnt)}


def ordered(rows: Result) -> Result:
    return sorted(rows, key=lambda row: (row["name"] is not None, row["name"] or ""))


def spec_text(name: str, topic: str, sink: str | None, max_rows: int = 100) -> str:
    lines = [
        f"name: {name}",
        f"source: {{topic: {topic}}}",
        f"columns: {COLUMNS}",
        f"query: {QUERY}",
        f"minibatch: {{size: 40, latency: 100ms, max_rows: {max_rows}}}",
    ]
    if sink is not None:
        lines.append(f"sink: {{topic: {sink}}}")
    return "\n".join(lines) + "\n"
