"""Suggestions: what some messages look like becomes a spec that is valid and reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from jobs.core.job.job_plan import plan_of
from jobs.demo.shop import TABLE_COLUMNS, Shop
from schemas.spec.file import load_spec
from service.answers.samples import Sample
from service.console.editor.suggestion import suggest_spec
from service.console.editor.trial import run_trial


def values(*messages: Any) -> list[bytes | None]:
    return [json.dumps(message).encode() for message in messages]


def shop_messages() -> list[bytes]:
    shop = Shop(seed=3, partitions=2)
    return [
        value for _, value in [*shop.insert_stock(1_000), *(shop.change(2_000) for _ in range(40))]
    ]


def test_canal_tells_the_types_of_its_columns() -> None:
    text = suggest_spec("shop.product", "default", shop_messages())
    assert text is not None
    spec = load_spec(text)
    assert spec.name == "shop-product"
    assert spec.source.format == "canal-json"
    output = {name: str(kind) for name, kind in spec.columns.items()}
    output.pop("shelf", None)  # which comes and goes
    assert output == TABLE_COLUMNS
    assert "GROUP BY name" in spec.query


def test_what_is_suggested_takes_the_messages_that_it_was_read_off() -> None:
    messages = shop_messages()
    text = suggest_spec("shop.product", "default", messages)
    assert text is not None
    spec = load_spec(text)
    samples = [Sample("t", 0, i, None, None, value) for i, value in enumerate(messages[:50])]
    found = run_trial(spec, plan_of(spec), samples)
    assert found.no_changelog is None
    assert found.changelog
    assert sum(each.outcome == "rows" for each in found.messages) > 40


@pytest.mark.parametrize(
    ("mysql", "kind"),
    [
        ("bigint(20)", "BIGINT"),
        ("bigint(20) unsigned", "DECIMAL(20, 0)"),
        ("int(10) unsigned zerofill", "BIGINT"),
        ("tinyint(1)", "BOOLEAN"),
        ("tinyint(4)", "TINYINT"),
        ("decimal(12,4)", "DECIMAL(12, 4)"),
        ("datetime", "TIMESTAMP(0)"),
        ("timestamp(6)", "TIMESTAMP(6)"),
        ("varchar(255)", "STRING"),
        ("enum('a','b')", "STRING"),
        ("json", "STRING"),
    ],
)
def test_types_of_mysql_become_ours(mysql: str, kind: str) -> None:
    message = {"type": "INSERT", "data": [{"v": "1"}], "mysqlType": {"v": mysql}}
    text = suggest_spec("t", "default", values(message))
    assert text is not None
    assert str(load_spec(text).columns["v"]) == kind


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        ([1, 2], "INT"),
        ([1, 3_000_000_000], "BIGINT"),
        ([1, 2.5], "DOUBLE"),
        ([True, None], "BOOLEAN"),
        (["1.50", "2"], "DECIMAL(18, 2)"),
        (["2026-01-31 12:00:00.123"], "TIMESTAMP(3)"),
        (["2026-01-31"], "DATE"),
        (["2026-99-31"], "STRING"),
        (["12", "x"], "STRING"),
        ([{"a": 1}], "STRING"),
        ([None], "STRING"),
    ],
)
def test_types_that_nobody_tells_are_read_off_the_values(seen: list[Any], kind: str) -> None:
    output = values(*({"op": "+I", "row": {"v": value}} for value in seen))
    text = suggest_spec("t", "default", output)
    assert text is not None
    assert str(load_spec(text).columns["v"]) == kind


def test_the_format_is_that_of_the_envelope() -> None:
    debezium = {"op": "c", "after": {"n": "a"}, "source": {"db": "d", "table": "t"}}
    maxwell = {"type": "insert", "database": "d", "table": "t", "data": {"n": "a"}}
    for message, format in (
        (debezium, "debezium-json"),
        ({"schema": {}, "payload": debezium}, "debezium-json"),
        (maxwell, "maxwell-json"),
        ({"op": "+I", "row": {"n": "a"}}, "changelog-json"),
        ({"n": "a", "user": {"id": 1}}, "json"),
    ):
        text = suggest_spec("t", "default", values(message))
        assert text is not None
        assert load_spec(text).source.format == format


def test_one_envelope_is_enough_to_know_that_the_others_are_no_events() -> None:
    ddl, row = {"type": "ALTER", "data": None}, {"type": "INSERT", "data": [{"n": "a"}]}
    text = suggest_spec("t", "default", values(ddl, row))
    assert text is not None
    assert load_spec(text).source.format == "canal-json"


@pytest.mark.parametrize("topic", ["a: b", "'", "no", "0x10", "- x", "#", "ü" * 200, "x\ny: z"])
def test_no_name_of_a_topic_becomes_something_else(topic: str) -> None:
    text = suggest_spec(topic, "other", values({"op": "+I", "row": {"n": "a"}}))
    assert text is not None
    document = yaml.safe_load(text)
    assert document["source"] == {"topic": topic, "connection": "other", "format": "changelog-json"}
    assert set(document) == {"name", "source", "columns", "query"}


def test_names_that_could_not_be_columns_are_left_out() -> None:
    message = {"op": "+I", "row": {"ok": 1, "not ok": 2, "x: y\nz": 3}}
    text = suggest_spec("t", "default", values(message))
    assert text is not None
    assert list(load_spec(text).columns) == ["ok"]


def test_what_is_no_format_suggests_nothing() -> None:
    assert (
        suggest_spec("t", "default", [None, b"", b"x", b"[]", b"{}", b"\xff", b"[" * 99_999])
        is None
    )
