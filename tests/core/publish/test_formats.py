"""The formats of the published changelog: the records of each op, and their shared values."""

from __future__ import annotations

import json

import pytest

from jobs.core.publish.formats import (
    CANAL_JSON,
    DEBEZIUM_JSON,
    FORMATS,
    EpochFacts,
    PublishFormat,
    Slot,
    object_template,
)
from jobs.core.values.change import Op

FACTS = EpochFacts(
    job="items",
    topic="items.changes",
    epoch=7,
    event_ms=1_589_373_515_000,
    commit_ms=1_589_373_515_477,
    key_columns=('na"me', "größe", "@epoch@"),
)
PARTS = {
    Slot.WORD: "word",
    Slot.SEQ: "42",
    Slot.ROW: '{"n":"1"}',
    Slot.BEFORE: "null",
    Slot.AFTER: '{"n":"1"}',
    Slot.OLD: "null",
}


def record(publish_format: PublishFormat) -> dict[str, object]:
    parts = publish_format.fill(FACTS)
    text = "".join(PARTS[part] if isinstance(part, Slot) else str(part) for part in parts)
    value = json.loads(text)
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("name", [name for name, each in FORMATS.items() if not each.avro])
def test_a_filled_template_is_one_json_object(name: str) -> None:
    assert record(FORMATS[name])


def test_canal_records_name_job_topic_and_key_columns_as_canal_names_tables() -> None:
    assert record(CANAL_JSON) == {
        "data": [{"n": "1"}],
        "database": "items",
        "es": 1_589_373_515_000,
        "id": 7,
        "isDdl": False,
        "old": None,
        "pkNames": ['na"me', "größe", "@epoch@"],
        "sql": "",
        "table": "items.changes",
        "ts": 1_589_373_515_477,
        "type": "word",
    }


def test_debezium_records_carry_their_position_in_source() -> None:
    source = record(DEBEZIUM_JSON)["source"]
    assert isinstance(source, dict)
    assert (source["epoch"], source["seq"], source["db"]) == (7, 42, "items")


@pytest.mark.parametrize("name", FORMATS)
def test_an_update_is_one_record_except_where_rows_have_an_op(name: str) -> None:
    assert FORMATS[name].paired is (name not in ("changelog-json", "avro"))


@pytest.mark.parametrize("name", FORMATS)
def test_every_op_that_makes_a_record_has_a_word(name: str) -> None:
    made = set(Op) - {Op.UPDATE_BEFORE} if FORMATS[name].paired else set(Op)
    assert made <= set(FORMATS[name].words)


def test_only_a_topic_of_latest_rows_is_compacted() -> None:
    compacted = [each.name for each in FORMATS.values() if each.cleanup_policy == "compact"]
    assert compacted == ["upsert-json", "upsert-avro"]


def test_no_columns_are_an_empty_object() -> None:
    assert object_template(()) == ("{}",)


def test_column_names_are_escaped_and_values_have_slots() -> None:
    assert object_template(('a"b', "c")) == ('{"a\\"b":', 0, ',"c":', 1, "}")
