"""The stream of orders and customers is well-formed, and its truth is that of the join."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from bench.generator import Batches, Truth
from bench.joins.orders import OrdersShape, OrdersTables
from bench.topic import PARTITIONS

SMALL = OrdersShape(changes=6_000, live_orders=1_000, customers=200, regions=20)


def apply(batches: Batches, tables: dict[str, dict[str, Any]]) -> Counter[tuple[str, str]]:
    """Hold every message against the row that it changes; return the number of each kind."""
    kinds: Counter[tuple[str, str]] = Counter()
    for number, batch in enumerate(batches):
        for message in map(json.loads, batch):
            (row,), kind = message["data"], message["type"]
            assert message["table"] == ("orders" if number < PARTITIONS else "customers")
            assert int(row["id"]) % PARTITIONS == number % PARTITIONS
            kinds[message["table"], kind] += 1
            table = tables[message["table"]]
            if kind == "DELETE":
                assert table.pop(row["id"]) == row
                continue
            if kind == "INSERT":
                assert row["id"] not in table
            else:
                (old,) = message["old"]
                assert table[row["id"]] == row | old != row
            table[row["id"]] = row
    return kinds


def test_replaying_the_messages_and_joining_gives_the_truth() -> None:
    made = OrdersTables(SMALL)
    batches: Batches = [[] for _ in range(2 * PARTITIONS)]
    for number, lines in made.stream():
        batches[number] += lines
    for number, lines in enumerate(made.add_probes(2)):
        batches[number] += lines
    region, partition, message = made.probe(now_ms=1)
    batches[partition].append(message)
    for number, lines in enumerate(made.changes(3_000)):  # more than there are orders
        batches[number] += lines
    tables: dict[str, dict[str, Any]] = {"orders": {}, "customers": {}}
    kinds = apply(batches, tables)

    truth: Truth = {}
    for order in tables["orders"].values():
        name = tables["customers"][order["customer_id"]]["region"]
        total, _, n = truth.get(name, (0, 0, 0))
        truth[name] = (total + int(order["amount"]), 0, n + 1)
    assert truth == made.truth()
    assert truth[region] == (1, 0, 1)
    assert made.sequence == kinds.total() == SMALL.changes + SMALL.customers + 3 + 3_000
    moved = kinds["customers", "UPDATE"] / (SMALL.changes + 3_000)
    assert 0.005 < moved < 0.015, "a hundredth of all changes are of customers"
    assert len(tables["orders"]) == 1_000 + 1 or kinds["orders", "DELETE"]
