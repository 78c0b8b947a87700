"""A job of three sources over a real broker, and the same tables in DuckDB.

random changes of a, b, c ──► canal's messages ──► two topics ──► EpochsByHand
                        └───► DuckDB ──► the same queries
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import duckdb
import pyarrow as pa

from jobs.checking.audit import AuditReport, audit_table
from jobs.checking.source_rows import SourceRows
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.table.reading import open_views
from schemas.spec.connections import load_connections
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand, of_view, spec_of
from tests.support.jobs.running_job import create_topic, produce

COLUMNS = {
    "a": {"id": "INT", "k": "INT", "v": "INT"},
    "b": {"id": "INT", "k": "INT", "w": "STRING"},
    "c": {"id": "INT", "k": "INT", "x": "INT"},
}
KEYS = (None, 0, 1, 1, 2, 3)
QUERIES = [
    "SELECT w, COUNT(*) AS n, SUM(v) AS s FROM a JOIN b ON a.k = b.k GROUP BY w",
    "SELECT w, MAX(v) AS m FROM a JOIN b ON a.k = b.k GROUP BY w",  # joins as the first one does
    "SELECT w, COUNT(*) AS n FROM a LEFT JOIN b ON a.k = b.k AND v > 1 AND w <> 'x' GROUP BY w",
    "SELECT k, COUNT(*) AS n, SUM(v) AS s, COUNT(w) AS c FROM a FULL JOIN b USING (k) GROUP BY k",
    "SELECT k, COUNT(*) AS n FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k) GROUP BY k",
    "SELECT p.v, COUNT(*) AS n, SUM(q.v) AS s FROM a AS p JOIN a AS q ON p.id = q.k GROUP BY p.v",
    "SELECT w, COUNT(*) AS n, SUM(x) AS s FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c "
    "ON c.k = b.id GROUP BY w",
    "SELECT x, COUNT(*) AS n FROM c GROUP BY x",
    "SELECT COUNT(*) AS n FROM a JOIN b ON a.k = b.k HAVING COUNT(*) > 0",
    "SELECT w, COUNT(DISTINCT v) AS d, COUNT(*) FILTER (WHERE v > 1) AS n FROM a JOIN b USING (k) "
    "GROUP BY w HAVING COUNT(*) > 1",
    "SELECT UPPER(w) || '!' AS u, SUM(v * b.id) AS s FROM a JOIN b ON a.k + 1 = b.k + 1 "
    "WHERE v + b.id > 2 GROUP BY UPPER(w) || '!'",
    # begins as the first one
    "SELECT w, SUM(x) AS s FROM a JOIN b ON a.k = b.k JOIN c ON c.x = a.v GROUP BY w",
    # looks like the first one
    "SELECT w, COUNT(*) AS n FROM a JOIN (SELECT id AS k, w FROM b) AS b ON a.k = b.k GROUP BY w",
]
PARTITIONS = 2
TableRow = tuple[Any, ...]
Change = tuple[str, int, TableRow]  # table, weight, row


@dataclass(slots=True)
class Tables:
    """The tables, their topics, and the spec of a job over them."""

    brokers: str
    document: dict[str, Any]
    topics: dict[str, str]  # of each table; a and b share one
    rng: random.Random
    live: dict[str, list[TableRow]] = field(default_factory=lambda: {t: [] for t in COLUMNS})

    @classmethod
    def make(
        cls,
        brokers: str,
        topic: str,
        queries: Sequence[str],
        seed: int = 0,
        *,
        without: Sequence[str] = (),
        **sections: Any,
    ) -> Self:
        """Create the topics, unless there is no broker; `sections` are keys of each source.

        The job does not read the tables in `without`."""
        topics = {"a": topic, "b": topic, "c": f"{topic}-c"}
        for name in dict.fromkeys(topics.values()) if brokers else ():
            create_topic(brokers, name, PARTITIONS)
        sources = {
            table: {"topic": topics[table], "columns": columns, "table": table, **sections}
            for table, columns in COLUMNS.items()
            if table not in without
        }
        views = {f"q{n}": of_view(query) for n, query in enumerate(queries)}
        return cls(brokers, {"sources": sources, "views": views}, topics, random.Random(seed))

    def change(self, count: int, keys: Sequence[int | None] = KEYS) -> list[Change]:
        """Insert, update and delete rows at random; a row may be in a table twice."""
        rng, changes = self.rng, list[Change]()
        for _ in range(count):
            table, rows = rng.choice(list(self.live.items()))
            removed = rows and rng.random() < 0.55
            if removed:
                changes.append((table, -1, rows.pop(rng.randrange(len(rows)))))
            if not removed or rng.random() < 0.6:
                key = rng.choice(keys)
                last = rng.choice([None, "x", "y"]) if table == "b" else rng.choice([None, 1, 2, 3])
                rows.append((rng.randint(0, 3), key, last))
                changes.append((table, 1, rows[-1]))
        return changes

    def change_by_id(self, count: int) -> list[Change]:
        """Insert, update and delete rows whose ids are unique."""
        rng, changes = self.rng, list[Change]()
        for _ in range(count):
            table, rows = rng.choice(list(self.live.items()))
            number = rng.randrange(9)
            for row in [row for row in rows if row[0] == number]:
                rows.remove(row)
                changes.append((table, -1, row))
            if rng.random() < 0.7:
                last = rng.choice("xy") if table == "b" else rng.randint(1, 3)
                rows.append((number, rng.choice([None, 0, 1, 2]), last))
                changes.append((table, 1, rows[-1]))
        return changes

    def send(self, changes: Iterable[Change], *, by_id: bool = False) -> None:
        """Write changes to partitions at random: the order of rows that join is unknown.

        With `by_id` a partition has all changes of an id, some of them twice."""
        by_topic: dict[str, list[tuple[int, bytes]]] = {}
        for table, weight, row in changes:
            message = message_of(table, weight, row)
            partition = row[0] % PARTITIONS if by_id else self.rng.randrange(PARTITIONS)
            times = 2 if by_id and self.rng.random() < 0.3 else 1
            by_topic.setdefault(self.topics[table], []).extend([(partition, message)] * times)
        for topic, messages in by_topic.items():
            produce(self.brokers, topic, messages)

    def truth(self) -> dict[str, Counter[TableRow]]:
        """Return what DuckDB says of each query."""
        connection = duckdb.connect()
        for table, columns in COLUMNS.items():
            types = [pa.string() if kind == "STRING" else pa.int32() for kind in columns.values()]
            values = list(zip(*self.live[table], strict=True)) or [()] * len(types)
            arrays = [pa.array(each, kind) for each, kind in zip(values, types, strict=True)]
            connection.register(table, pa.Table.from_arrays(arrays, list(columns)))
        views = self.document["views"].items()
        return {name: Counter(connection.execute(view["query"]).fetchall()) for name, view in views}


@dataclass(slots=True)
class JoinedTables(Tables):
    """The same, with a job by hand."""

    job: EpochsByHand = field(kw_only=True)

    @classmethod
    def create(
        cls, by_hand: ByHand, queries: Sequence[str], seed: int = 0, **sections: Any
    ) -> JoinedTables:
        made = Tables.make(by_hand.brokers, by_hand.topic, queries, seed, **sections)
        spec = spec_of(made.document, buckets=None)
        job = EpochsByHand(by_hand.spark, by_hand.brokers, by_hand.home, spec)
        return cls(made.brokers, made.document, made.topics, made.rng, made.live, job=job)

    def results(self) -> dict[str, Counter[TableRow]]:
        """Return what the job says of each query, once all laws hold."""
        return {
            name: Counter((*key, *row) for key, row in self.job.at_view(name).results().items())
            for name in self.job.spec.view_specs
        }

    def audit(self) -> dict[str, AuditReport]:
        """Return the report of each view."""
        readers, connections = open_views(self.job.place), load_connections(None, self.job.brokers)
        source = SourceRows(lambda: self.job.spark, connections, readers.values())
        with KafkaAdmin({"bootstrap_servers": [self.job.brokers]}) as admin:
            return {name: audit_table(each, admin, source) for name, each in readers.items()}


def message_of(table: str, weight: int, row: TableRow) -> bytes:
    """Return a change as canal writes it."""
    named = zip(COLUMNS[table], row, strict=True)
    data = {name: None if value is None else str(value) for name, value in named}
    kind = "INSERT" if weight > 0 else "DELETE"
    return json.dumps({"database": "shop", "table": table, "type": kind, "data": [data]}).encode()
