"""Flink SQL with a join of orders and customers.

orders ────┐
customers ─┴─► mini-batch join ──► two-phase aggregate ──► result topic
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.flink.peer import FlinkJob, source_table, with_options
from bench.joins.orders import CUSTOMERS, ORDERS


@dataclass(slots=True)
class FlinkJoin(FlinkJob):
    """`topic` has the orders. Both tables have a primary key, with which Flink's state is small."""

    customers: str = ""

    def script(self, *, bounded: bool) -> str:
        tables = {"orders": (ORDERS, self.topic), "customers": (CUSTOMERS, self.customers)}
        sources = [
            source_table(columns, self.brokers, topic, bounded=bounded, name=name, key="id")
            for name, (columns, topic) in tables.items()
        ]
        return "".join(sources) + (
            "CREATE TABLE sink (name STRING, total BIGINT, n BIGINT, "
            f"PRIMARY KEY (name) NOT ENFORCED) WITH ({with_options(self._sink_options())});\n"
            f"INSERT INTO sink {self.query};\n"
        )
