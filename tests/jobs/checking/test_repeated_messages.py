"""An audit finds the messages that a source sent twice, however its numbers and times go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from jobs.checking.dedupe_audit import POSITION, format_position
from jobs.checking.source_rows import CONTENT, find_repeated_messages
from jobs.core.rows.source_order import number_content

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CANAL: dict[str, Any] = {
    "data": [{"id": "7", "name": '"id":1', "ts": "5"}],
    "es": 70_000,
    "id": 12,
    "pkNames": ["id"],
    "sqlType": {"id": -5},
    "ts": 70_123,
    "type": "INSERT",
}
DEBEZIUM: dict[str, Any] = {
    "after": {"id": 7, "ts": 5},
    "source": {"ts_ms": 70_000, "file": "binlog.000001", "pos": 400, "row": 0},
    "op": "c",
    "ts_ms": 70_123,
    "ts_us": 70_123_000,
}


def number(
    message: dict[str, Any], format: str = "canal-json", key: bytes | None = b"7"
) -> int | None:
    return number_content(format, key, json.dumps(message).encode())


def test_canal_says_the_same_under_another_number_at_another_time() -> None:
    content = number(CANAL)
    assert content is not None
    assert number(CANAL | {"id": 522, "ts": 99_456}) == content
    others: list[dict[str, Any]] = [
        {"es": 71_000},
        {"type": "DELETE"},
        {"data": [{"id": "8", "name": '"id":1', "ts": "5"}]},
        {"data": [{"id": "7", "name": '"id":2', "ts": "5"}]},
        {"data": [{"id": "7", "name": '"id":1', "ts": "6"}]},
    ]
    assert content not in [number(CANAL | other) for other in others]


def test_debezium_says_the_same_at_another_time() -> None:
    content = number(DEBEZIUM, "debezium-json")
    assert content is not None
    assert number(DEBEZIUM | {"ts_ms": 99_000, "ts_us": 99_000_000}, "debezium-json") == content
    next_row = {"source": DEBEZIUM["source"] | {"row": 1}}
    assert number(DEBEZIUM | next_row, "debezium-json") != content
    other_row = {"after": {"id": 8, "ts": 5}}
    assert number(DEBEZIUM | other_row, "debezium-json") != content


def test_maxwell_says_the_same_in_the_same_transaction() -> None:
    row, key = (
        {"data": {"id": 7}, "ts": 70, "type": "insert", "xid": 23},
        b'{"table":"t","pk.id":7}',
    )
    content = number(row, "maxwell-json", key)
    assert content is not None
    assert number(row | {"xid": 24}, "maxwell-json", key) != content
    assert number(row, "maxwell-json", b'{"table":"t","_uuid":"5"}') is None


def test_two_equal_messages_may_be_two_rows_of_a_table_without_a_key() -> None:
    assert number(CANAL | {"pkNames": None}) is None
    assert number(DEBEZIUM, "debezium-json", key=None) is None
    assert number({"id": 7}, "json") is None
    assert number_content("canal-json", None, None) is None


@pytest.mark.spark
def test_messages_with_the_content_of_another_are_counted_and_named(spark: SparkSession) -> None:
    contents = [5, None, 6, 7, 5, None, 6]  # None: a further row of a message, or no key
    rows = [(content, format_position("t", 1, at, 0)) for at, content in enumerate(contents)]
    table = spark.createDataFrame(rows, f"{CONTENT} long, {POSITION} string")
    found = find_repeated_messages(table)
    assert found.counts == {"repeated_messages": 2}
    assert found.named == [
        "t/1 offset 4 says what an earlier one does",
        "t/1 offset 6 says what an earlier one does",
    ]
    once = find_repeated_messages(table.limit(4))
    assert (once.counts, once.named) == ({}, [])
