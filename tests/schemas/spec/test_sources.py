"""The `sources` of a spec: their keys, their rules, and the short form for one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.limits import SOURCES_MAX
from schemas.spec.file import SpecError, list_keys, load_spec, read_text, validate
from schemas.spec.job import JobSpec
from schemas.spec.watermark import TimeDefaults
from schemas.types.sql_types import BIGINT

ORDERS: dict[str, Any] = {"topic": "shop.orders", "columns": {"id": "BIGINT", "at": "TIMESTAMP(3)"}}
CUSTOMERS: dict[str, Any] = {
    "topics": ["shop.customers"],
    "format": "debezium-json",
    "columns": {"id": "BIGINT"},
    "primary_key": ["id"],
    "dedupe": "pk",
    "watermark": {"delay": "5s"},
}
PUNCTUATED = {"topic": "t", "watermark": {"generator": "punctuated", "marker": "id = 0"}}
QUERY = "SELECT COUNT(*) AS n FROM orders"


def document_of(sources: Any, **keys: Any) -> dict[str, Any]:
    return {"name": "a", "sources": sources, "query": QUERY, **keys}


def problems_of(document: dict[str, Any]) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_spec(document)
    return [f"{each.path}: {each.reason}" for each in caught.value.problems]


def parsed(sources: Any) -> JobSpec:
    return validate(JobSpec, read_text(_json(document_of(sources)), "a"))


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document)


def test_one_entry_is_the_short_form() -> None:
    rows = ("columns", "primary_key", "dedupe", "watermark")
    source = {key: value for key, value in CUSTOMERS.items() if key not in rows}
    short = {"name": "a", "source": source, "query": QUERY, **{k: CUSTOMERS[k] for k in rows}}
    long, expected = load_spec(document_of({"customers": CUSTOMERS})), load_spec(short)
    assert long == expected
    assert long.document() == expected.document()
    assert long.source_specs == {"": long}


def test_each_of_several_sources_has_the_spec_of_a_job_that_reads_it_alone() -> None:
    spec = parsed({"orders": ORDERS, "customers": CUSTOMERS})
    alone = load_spec(document_of({"customers": CUSTOMERS}))
    assert list(spec.source_specs) == ["orders", "customers"]
    assert spec.source_specs["customers"] == alone
    assert spec.source_specs["orders"].columns["id"] == BIGINT
    assert {each.source.group for each in spec.source_specs.values()} == {"retally-a"}


def test_several_sources_are_written_back_as_they_were_read() -> None:
    spec = parsed({"orders": ORDERS, "customers": CUSTOMERS})
    document = spec.document()
    assert "source" not in document
    assert "columns" not in document
    assert document["sources"]["customers"]["dedupe"] == "pk"
    assert parsed(document["sources"]) == spec


def test_a_job_of_several_sources_knows_the_topics_of_all() -> None:
    late = {**CUSTOMERS, "topics": ["shop.customers", {"topic": "t", "watermark": {"delay": "9s"}}]}
    spec = parsed({"orders": ORDERS, "customers": late, "buyers": late})
    assert spec.topics == ("shop.orders", "shop.customers", "t")
    assert spec.sources_of("t") == ("customers", "buyers")
    delays = {topic: each.delay_ms for topic, each in spec.strategies.items()}
    assert delays == {"shop.orders": 0, "shop.customers": 5_000, "t": 9_000}
    assert list(spec.sections)[:3] == [
        ("sources", "orders", "watermark"),
        ("sources", "customers", "watermark"),
        ("sources", "customers", "topics", "1", "watermark"),
    ]


def test_the_operators_idleness_is_that_of_every_source_without_its_own() -> None:
    own = {**CUSTOMERS, "watermark": {"idle_after": "3s"}}
    spec = parsed({"orders": ORDERS, "customers": own}).with_defaults(TimeDefaults(7_000))
    idle = {topic: each.idle_after_ms for topic, each in spec.strategies.items()}
    assert idle == {"shop.orders": 7_000, "shop.customers": 3_000}
    assert spec.watermark.idle_after_ms == 7_000


def test_the_order_of_columns_means_nothing_in_any_source() -> None:
    turned = {**ORDERS, "columns": dict(reversed(ORDERS["columns"].items()))}
    before = parsed({"customers": CUSTOMERS, "orders": ORDERS})
    after = parsed({"customers": CUSTOMERS, "orders": turned}).with_column_order(before)
    assert list(after.source_specs["orders"].columns) == ["id", "at"]
    csv = {"orders": {**turned, "format": "csv"}, "customers": CUSTOMERS}
    fixed = parsed(csv).with_column_order(before)
    assert list(fixed.columns) == ["at", "id"]


def test_two_sources_may_read_one_topic_in_the_same_way() -> None:
    spec = parsed({"orders": {**ORDERS, "table": "o"}, "items": {**ORDERS, "table": "i"}})
    assert spec.topics == ("shop.orders",)


def test_the_editor_knows_the_keys_of_a_source() -> None:
    keys, values = list_keys(JobSpec)
    assert {"topic", "columns", "dedupe", "watermark"} <= set(keys["sources"])
    assert "delay" in keys["sources.watermark"]
    assert values["sources.on_truncate"] == ("stop", "apply", "quarantine")


@pytest.mark.parametrize(
    ("sources", "keys", "problem"),
    [
        ({}, {}, "sources: names no source; write it like {orders: {"),
        ([ORDERS], {}, "sources: must be a mapping"),
        ({"a b": ORDERS}, {}, 'sources."a b": '),
        ({"orders": ORDERS, "Orders": ORDERS}, {}, "sources.Orders: differs from 'orders' only"),
        (
            {f"s{i}": ORDERS for i in range(SOURCES_MAX + 1)},
            {},
            f"sources: has {SOURCES_MAX + 1} sources; use at most {SOURCES_MAX}",
        ),
        ({"orders": {"topic": "t"}}, {}, "sources.orders.columns: is required"),
        ({"orders": {**ORDERS, "topik": "t"}}, {}, "sources.orders: unknown key 'topik'; did you"),
        ({"orders": {**ORDERS, "colums": {}}}, {}, "sources.orders: unknown key 'colums'; did you"),
        ({"orders": {**ORDERS, "query": "x"}}, {}, "sources.orders: unknown key 'query'"),
        ({"orders": {**ORDERS, "dedupe": "pk"}}, {}, "sources.orders.dedupe: needs a primary_key"),
        (
            {"orders": {**ORDERS, "primary_key": ["no"]}},
            {},
            "sources.orders.primary_key.0: 'no' is not one of columns (id, at)",
        ),
        (
            {"orders": {**ORDERS, "watermark": {"time": {"column": "id_"}}}},
            {},
            "sources.orders.watermark.time.column: 'id_' is not one of columns",
        ),
        (
            {
                "orders": {
                    "topics": [{"topic": "t", "watermark": {"time": {"column": "no"}}}],
                    "columns": {"id": "BIGINT"},
                }
            },
            {},
            "sources.orders.topics.0.watermark.time.column: 'no' is not one of columns (id)",
        ),
        (
            {"orders": {**ORDERS, "on_truncate": "apply"}},
            {},
            "sources.orders.on_truncate: apply needs dedupe: pk",
        ),
        (
            {"orders": {**ORDERS, "format": "upsert-json"}},
            {},
            "sources.orders.dedupe: is required by source.format: upsert-json",
        ),
        (
            {"orders": {**ORDERS, "columns": {"__es": "BIGINT"}}},
            {},
            "sources.orders.columns.__es: is metadata of canal-json messages",
        ),
        (
            {"orders": ORDERS},
            {"columns": {"id": "INT"}},
            "columns: belongs to each source; move it into sources.orders",
        ),
        (
            {"orders": ORDERS},
            {"source": {"topic": "t"}},
            "source: belongs to each source; move it into sources.orders",
        ),
        (
            {"orders": ORDERS, "items": {**ORDERS, "connection": "east"}},
            {},
            "sources.items.connection: differs from that of orders, which reads a topic",
        ),
        (
            {"orders": ORDERS, "items": {**ORDERS, "watermark": {"delay": "1s"}}},
            {},
            "sources.items.watermark: differs from that of orders, which reads shop.orders too",
        ),
        (
            {"orders": ORDERS, "items": {**ORDERS, "start": "latest"}},
            {},
            "sources.items.start: differs from that of orders, which reads shop.orders too",
        ),
        (
            {"orders": ORDERS, "customers": {**CUSTOMERS, "watermark": {"within_epoch": True}}},
            {},
            "sources.customers.watermark.within_epoch: needs the rows of the job in their order",
        ),
        (
            {"orders": ORDERS, "customers": {**CUSTOMERS, "topics": [PUNCTUATED]}},
            {},
            "sources.customers.topics.0.watermark.generator: needs the rows of the job in their",
        ),
        (
            {"orders": ORDERS, "customers": CUSTOMERS},
            {"minibatch": {"clock": "event", "interval": "1s"}},
            "minibatch.clock: event needs a single source",
        ),
        (
            {"orders": ORDERS, "customers": CUSTOMERS},
            {"early_retractions": "drop"},
            "early_retractions: drop needs a single source",
        ),
        (
            {"orders": ORDERS, "customers": CUSTOMERS},
            {"sink": {"topic": "shop.customers"}},
            "sink.topic: 'shop.customers' is a source topic too",
        ),
    ],
)
def test_invalid_sources_are_refused_at_their_key(
    sources: Any, keys: dict[str, Any], problem: str
) -> None:
    found = problems_of(document_of(sources, **keys))
    assert [each for each in found if each.startswith(problem)], found
    assert not [each for each in found if each.startswith(("source: is", "columns: is"))]
