"""Replays of several sources: each view is what DuckDB says, whatever the order of the steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from jobs.offline.replay import replay
from jobs.offline.steps import StepError
from tests.support.jobs.joined_tables import QUERIES, TableRow, Tables, message_of

SOURCES = {
    "orders": {"topic": "o", "columns": {"customer": "INT", "amount": "INT"}},
    "customers": {"topic": "c", "columns": {"id": "INT", "region": "STRING"}},
}
QUERY = (
    "SELECT region, SUM(100 / amount) AS s, COUNT(*) AS n FROM orders JOIN customers "
    "ON customer = id WHERE region IS NOT NULL GROUP BY region"
)
SPEC = {"name": "j", "sources": SOURCES, "query": QUERY}


def fold(outputs: list[dict[str, Any]]) -> dict[str, Counter[TableRow]]:
    """Return the rows that are left of each view."""
    found: dict[str, Counter[TableRow]] = {}
    for each in outputs:
        if "op" in each:
            weight = 1 if each["op"] in ("+I", "+U") else -1
            found.setdefault(each["view"], Counter())[tuple(each["row"].values())] += weight
    return {view: +rows for view, rows in found.items()}


@pytest.mark.parametrize("by_id", [False, True], ids=["rows", "last images"])
def test_each_view_is_what_duckdb_says(by_id: bool) -> None:
    keyed = {"primary_key": ["id"], "dedupe": "pk"} if by_id else {}
    tables = Tables.make("", "t", QUERIES, seed=7, **keyed)
    steps: list[Mapping[str, Any]] = []
    for _ in range(6):
        changes = tables.change_by_id(25) if by_id else tables.change(25)
        if not by_id:
            tables.rng.shuffle(changes)  # a retraction may come before its row
        for table, weight, row in changes:
            message = {"message": message_of(table, weight, row), "topic": tables.topics[table]}
            steps += [message] * (2 if by_id and tables.rng.random() < 0.3 else 1)
        steps.append({"flush": True})
    found = fold(list(replay({"name": "j", **tables.document}, steps)))
    for view, rows in tables.truth().items():
        assert found.get(view, Counter()) == rows, view


def order(customer: int, amount: int | str, op: str = "+I") -> dict[str, Any]:
    row = {"customer": str(customer), "amount": str(amount)}
    return {"op": op, "row": row, "source": "orders"}


def customer(number: int, region: str | None) -> dict[str, Any]:
    return {"op": "+I", "row": {"id": str(number), "region": region}, "topic": "c"}


def test_a_bundle_joins_the_rows_of_all_sources_in_any_order() -> None:
    spec = {**SPEC, "minibatch": {"size": 3}}
    found = list(replay(spec, [order(1, 5), order(1, 10), customer(1, "north"), order(2, 1)]))
    assert found == [
        {"op": "+I", "row": {"region": "north", "s": 30, "n": 2}},
        {"flushed": 3},
        {"flushed": 1},
        {"watermark": 2**63 - 1},
    ]


def test_a_joined_row_on_which_an_expression_fails_counts_for_nothing() -> None:
    steps = [order(1, 0), order(1, 50), customer(1, "north"), {"flush": True}, order(1, 0, "-D")]
    rows = [each for each in replay(SPEC, steps) if "op" in each]
    assert rows == [{"op": "+I", "row": {"region": "north", "s": 2, "n": 1}}]


def test_a_refused_message_names_its_source() -> None:
    steps = [order(1, "many"), {"message": "{", "topic": "c", "offset": 7}]
    found = [each["rejected"] for each in replay(SPEC, steps) if "rejected" in each]
    assert [(each["source"], each["topic"], each["offset"]) for each in found] == [
        ("customers", "c", 7),
        ("orders", "o", 0),
    ]


def test_the_watermark_is_the_least_of_all_sources() -> None:
    bounded = {"watermark": {"time": "kafka", "delay": "0s"}}
    sources = {name: {**source, **bounded} for name, source in SOURCES.items()}
    steps = [
        {**order(1, 5), "time": 9_000},
        {"flush": True},
        {**customer(1, "north"), "time": 4_000},
    ]
    found = [
        each["watermark"]
        for each in replay({**SPEC, "sources": sources}, steps)
        if "watermark" in each
    ]
    assert found == [3_999, 2**63 - 1]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({**order(1, 5), "source": "others"}, "use orders, customers"),
        ({**order(1, 5), "topic": "c"}, "topic is 'c', which the job does not read; use o"),
    ],
)
def test_a_step_of_no_source_of_the_job_is_named(step: dict[str, Any], reason: str) -> None:
    with pytest.raises(StepError, match=reason):
        list(replay(SPEC, [step]))


def test_a_row_of_a_topic_that_two_sources_read_names_its_source() -> None:
    shared = {name: {**source, "topic": "o", "table": name} for name, source in SOURCES.items()}
    spec = {**SPEC, "sources": shared}
    with pytest.raises(StepError, match="add source: orders"):
        list(replay(spec, [{"op": "+I", "row": {"customer": "1", "amount": "5"}}]))
    both = [order(1, 5), {**customer(1, "north"), "source": "customers", "topic": "o"}]
    assert [each["row"]["s"] for each in replay(spec, both) if "op" in each] == [20]
