"""Joins of Flink SQL: one spec of several sources, and a sentence for every other kind of join."""

from __future__ import annotations

import pytest

from jobs.core.job.job_plan import plan_of
from jobs.core.plan.relations import list_joins
from jobs.migrating.conversion import convert
from schemas.spec.job import JobSpec

_KAFKA = "'connector' = 'kafka', 'properties.bootstrap.servers' = 'b:9092', 'format' = 'canal-json'"
TABLES = f"""
CREATE TABLE orders (
  id BIGINT, customer_id BIGINT, amount INT, doubled AS amount * 2, at TIMESTAMP(3),
  WATERMARK FOR at AS at - INTERVAL '5' SECOND
) WITH ({_KAFKA}, 'topic' = 'shop', 'canal-json.table.include' = 'orders');
CREATE TABLE customers (id BIGINT, region STRING, active BOOLEAN, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = 'customers', 'key.format' = 'json',
  'properties.bootstrap.servers' = 'b:9092', 'value.format' = 'json');
CREATE TABLE shipped (order_id BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at)
WITH ({_KAFKA}, 'topic' = 'shipped');
CREATE TABLE people (id BIGINT, who ROW<city STRING>) WITH
  ('connector' = 'kafka', 'properties.bootstrap.servers' = 'b:9092', 'format' = 'json',
  'topic' = 'people');
CREATE TABLE rates (id BIGINT, rate INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:x');
CREATE TABLE sink (name STRING, total BIGINT) WITH ('connector' = 'print');
CREATE VIEW sold AS
  SELECT c.region AS place, o.amount - 1 AS net, o.customer_id
  FROM orders AS o JOIN customers AS c ON o.customer_id = c.id WHERE c.active;
CREATE VIEW cheap AS SELECT place, net FROM sold WHERE net < 5;
CREATE VIEW totals AS SELECT customer_id, SUM(amount) AS total FROM orders GROUP BY customer_id;
"""
ON = "o.customer_id = c.id"


def spec_of(query: str) -> JobSpec:
    conversion = convert(f"{TABLES}INSERT INTO sink {query};")
    assert list(conversion.problems) == []
    (draft,) = conversion.drafts
    return draft.spec


def test_the_tables_of_a_join_are_the_sources_of_one_spec() -> None:
    spec = spec_of(
        "SELECT c.region, SUM(o.amount) FROM orders AS o "
        f"LEFT JOIN customers AS c ON {ON} AND c.active GROUP BY c.region"
    )
    assert spec.topics_by_source == {"orders": ("shop",), "customers": ("customers",)}
    orders, customers = spec.source_specs.values()
    assert (orders.source.table, orders.watermark.delay_ms) == ("orders", 5_000)
    assert (customers.primary_key, customers.dedupe) == (("id",), "pk")
    assert spec.early_retractions == "keep"
    (join,) = list_joins(plan_of(spec).relation)
    assert join.kind == "LEFT"


@pytest.mark.parametrize(
    ("joined", "kinds"),
    [
        (f"orders o INNER JOIN customers c ON {ON}", ["INNER"]),
        (f"orders o RIGHT OUTER JOIN customers c ON {ON}", ["RIGHT"]),
        (f"orders o FULL JOIN customers c ON {ON}", ["FULL"]),
        (f"orders o CROSS JOIN customers c WHERE {ON}", ["INNER"]),
        (f"orders o, customers c WHERE {ON}", ["INNER"]),
        ("orders o JOIN (SELECT id, region FROM customers) AS c USING (id)", ["INNER"]),
        (f"orders o JOIN customers c ON {ON} LEFT JOIN orders p ON p.id = o.id", ["INNER", "LEFT"]),
        ("orders o JOIN customers c ON LEFT(c.region, 1) = 'a' AND " + ON, ["INNER"]),
    ],
)
def test_joins_keep_their_kind(joined: str, kinds: list[str]) -> None:
    spec = spec_of(f"SELECT c.region, SUM(o.amount) FROM {joined} GROUP BY c.region")
    assert [join.kind for join in list_joins(plan_of(spec).relation)] == kinds
    assert list(spec.topics_by_source) == ["orders", "customers"]


def test_a_computed_column_is_one_of_a_derived_table() -> None:
    spec = spec_of(
        f"SELECT c.region, SUM(doubled) FROM orders o JOIN customers c ON {ON} GROUP BY c.region"
    )
    assert "FROM (SELECT *, amount * 2 AS doubled FROM orders) AS o JOIN customers" in spec.query


def test_a_query_over_a_view_that_joins_is_one_over_the_join() -> None:
    query = "SELECT {}, SUM({}) FROM {} WHERE {} > 3 GROUP BY {}"
    for words in (
        ("place", "net", "sold", "net", "place"),
        ("s.place", "s.net", "sold AS s", "s.net", "s.place"),
    ):
        assert " ".join(spec_of(query.format(*words)).query.split()) == (
            "SELECT c.region AS name, SUM((o.amount - 1)) AS total "
            f"FROM orders AS o JOIN customers AS c ON {ON} "
            "WHERE (c.active) AND ((o.amount - 1) > 3) GROUP BY c.region"
        )
    nested = spec_of("SELECT place, COUNT(*) FROM cheap GROUP BY place")
    assert "WHERE (c.active) AND ((o.amount - 1) < 5)" in nested.query


@pytest.mark.parametrize(
    ("joined", "reason"),
    [
        (
            "orders o JOIN customers FOR SYSTEM_TIME AS OF o.at AS c ON o.customer_id = c.id",
            "temporal joins have no counterpart",
        ),
        (
            "orders o JOIN rates FOR SYSTEM_TIME AS OF o.at AS c ON o.id = c.id",
            "lookup joins have no counterpart: rates is not a table of Kafka",
        ),
        (
            "orders o JOIN shipped c ON o.id = c.order_id AND c.at BETWEEN o.at AND "
            "o.at + INTERVAL '4' HOUR",
            "interval joins have no counterpart",
        ),
        (
            "orders o, shipped c WHERE o.id = c.order_id AND c.at < o.at + INTERVAL '4' HOUR",
            "interval joins have no counterpart",
        ),
        (
            "orders o JOIN TABLE(TUMBLE(TABLE shipped, DESCRIPTOR(at), INTERVAL '1' HOUR)) c "
            "ON o.id = c.order_id",
            "window joins have no counterpart",
        ),
        ("orders o NATURAL JOIN customers c", "NATURAL JOIN is not supported"),
        ("orders o CROSS JOIN UNNEST(o.tags) AS c (tag)", "UNNEST has no counterpart"),
        (
            "customers c JOIN totals t ON c.id = t.customer_id",
            "a join with the results of a GROUP BY is not supported; write a job for totals",
        ),
        ("customers c JOIN sold s ON c.id = s.customer_id", "a join in a derived table"),
        (
            "orders o JOIN people c ON o.id = c.id AND c.who.city = 'x'",
            "fields of a ROW in a join are not supported",
        ),
        ("orders o JOIN rates c ON o.id = c.id", "the connector 'jdbc' has no counterpart"),
        ("orders o JOIN customers c ON o.id > c.id", "a join needs an equality"),
    ],
)
def test_other_joins_are_not_taken_with_the_reason(joined: str, reason: str) -> None:
    sql = f"{TABLES}INSERT INTO sink SELECT 'a', COUNT(*) FROM {joined};"
    (problem,) = convert(sql).problems
    assert problem.reason.startswith(reason)
    assert sql.index("INSERT") < problem.offset or "connector" in reason


@pytest.mark.parametrize("item", ["sold AS s (a, b, c)", "sold TABLESAMPLE (10)", "orders FOR x"])
def test_a_part_of_from_is_never_left_out(item: str) -> None:
    sql = f"{TABLES}INSERT INTO sink SELECT 'a', COUNT(*) FROM {item};"
    (problem,) = convert(sql).problems
    assert problem.reason.startswith(("this part of FROM is not known", "cannot read"))


def test_a_window_over_a_join_and_a_star_of_one_are_not_taken() -> None:
    for items, group, reason in (
        ("'a', COUNT(*)", "GROUP BY TUMBLE(o.at, INTERVAL '1' HOUR)", "windows over a join"),
        ("DISTINCT *", "", "name the columns of a join"),
    ):
        query = f"SELECT {items} FROM orders o JOIN customers c ON {ON} {group}"
        (problem,) = convert(f"{TABLES}INSERT INTO sink {query};").problems
        assert problem.reason.startswith(reason)
