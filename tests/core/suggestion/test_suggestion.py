"""Suggestions: what some messages look like becomes a spec that is valid and reads them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.formats.registry import MessageRules
from jobs.core.job.job_plan import plan_of
from jobs.core.suggestion.spec_text import Suggestion, suggest_spec
from jobs.core.values.change import Changes
from jobs.demo.shop import TABLE_COLUMNS, Shop
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from tests.support.examples import examples


def suggest(*messages: Any, topic: str = "t", connection: str = "default") -> Suggestion:
    encoded = [json.dumps(message).encode() for message in messages]
    return suggest_spec(topic, connection, [(None, value) for value in encoded])


def load(found: Suggestion) -> JobSpec:
    assert found.text is not None, found.reason
    return load_spec(found.text)


def canal(row: dict[str, Any], types: dict[str, str] | None = None, **others: Any) -> Any:
    message = {"type": "INSERT", "database": "shop", "table": "orders", "isDdl": False, "es": 1}
    return {**message, "data": [row], "mysqlType": types, "pkNames": None, **others}


def types_of(spec: JobSpec) -> dict[str, str]:
    return {name: str(kind) for name, kind in spec.columns.items()}


def test_a_table_of_mysql_gets_its_key_dedupe_and_only_the_columns_of_the_query() -> None:
    types = {
        "id": "bigint(20) unsigned",
        "customer_id": "int",
        "note": "varchar(20)",
        "status": "enum('new','paid')",
        "photo": "blob",
        "qty": "int(11)",
        "amount": "decimal(12,2)",
    }
    row = dict.fromkeys(types, "1")
    found = suggest(canal(row, types, pkNames=["id"]), topic="shop.orders")
    spec = load(found)
    assert spec.name == "shop-orders"
    assert (spec.primary_key, spec.dedupe) == (("id",), "pk")
    assert (spec.source.database, spec.source.table) == ("^shop$", "^orders$")
    assert types_of(spec) == {
        "id": "DECIMAL(20, 0)",
        "status": "STRING",
        "qty": "BIGINT",
        "amount": "DECIMAL(12, 2)",
    }
    assert spec.query == (
        "SELECT status, SUM(qty) AS sum_qty, SUM(amount) AS sum_amount, MAX(qty) AS max_qty,\n"
        "       COUNT(*) AS n\n"
        "FROM orders\n"
        "GROUP BY status\n"
    )
    assert "# Other columns: customer_id INT, note STRING, photo BINARY\n" in str(found.text)


@pytest.mark.parametrize(
    ("mysql", "summed"),
    [
        ("tinyint(4)", "SUM(v)"),
        ("int", "SUM(v)"),
        ("int unsigned", "SUM(CAST(v AS DECIMAL(20, 0)))"),
        ("bigint", "SUM(CAST(v AS DECIMAL(20, 0)))"),
        ("bigint unsigned", "SUM(v)"),
        ("float", "SUM(CAST(v AS DOUBLE))"),
        ("decimal(10,2)", "SUM(v)"),
    ],
)
def test_a_sum_has_room_for_the_number_that_mysql_has(mysql: str, summed: str) -> None:
    spec = load(suggest(canal({"v": "1"}, {"v": mysql})))
    assert f"{summed} AS sum_v" in spec.query
    plan = plan_of(spec)
    kind = str(dict(plan.results)["sum_v"])
    assert kind == "DOUBLE" or kind == "BIGINT" or kind.startswith("DECIMAL(38")


def test_a_source_without_a_key_is_warned_of_repeats() -> None:
    found = suggest(canal({"v": "1"}, {"v": "int"}))
    assert load(found).dedupe is None
    assert "# The messages name no primary key" in str(found.text)


def test_the_key_of_a_debezium_record_is_the_key_of_the_rows() -> None:
    value = {"op": "c", "after": {"id": 1, "n": "a"}, "source": {"db": "d", "table": "t"}}
    for key in ({"id": 1}, {"schema": {}, "payload": {"id": 1}}):
        message = (json.dumps(key).encode(), json.dumps(value).encode())
        spec = load(suggest_spec("t", "default", [message]))
        assert (spec.primary_key, spec.dedupe) == (("id",), "pk")
    strange = (b'{"other": 1}', json.dumps(value).encode())
    assert load(suggest_spec("t", "default", [strange])).primary_key is None


def test_the_schema_of_debezium_is_used() -> None:
    decimal = "org.apache.kafka.connect.data.Decimal"
    fields = [
        {"field": "city", "type": "string"},
        {"field": "price", "type": "bytes", "name": decimal, "parameters": {"scale": "4"}},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
    ]
    sides = [{"field": side, "type": "struct", "fields": fields} for side in ("before", "after")]
    row = {"city": "a", "price": "AJY=", "day": 18_395}
    message = {
        "schema": {"type": "struct", "fields": sides},
        "payload": {"op": "c", "before": None, "after": row},
    }
    found = suggest(message)
    assert types_of(load(found)) == {"city": "STRING", "price": "DECIMAL(38, 4)"}
    assert "# Other columns: day DATE" in str(found.text)


def test_messages_of_canal_without_rows_are_never_plain_events() -> None:
    query = {"data": None, "database": "", "es": 1, "id": 3, "isDdl": False, "mysqlType": None}
    query |= {"old": None, "pkNames": None, "sql": "insert", "table": "", "type": "QUERY"}
    found = suggest(query, query)
    assert found.text is None
    assert "canal-json without rows (QUERY): there are no rows yet" in str(found.reason)
    ddl: Any
    for ddl in (
        {**query, "type": "ALTER", "isDdl": True},
        {**query, "type": "TRUNCATE", "data": []},
        {"type": "table-alter", "database": "d", "table": "t", "def": {}},
        {"source": {"db": "d"}, "ddl": "ALTER TABLE t", "tableChanges": []},
    ):
        assert suggest(ddl).text is None
        assert "without rows" in str(suggest(ddl).reason)
    assert load(suggest(query, canal({"n": "a"}))).source.format == "canal-json"


def test_the_messages_of_other_tables_are_left_out_and_counted() -> None:
    found = suggest(canal({"a": "1"}), canal({"b": "x"}, table="other"))
    assert list(load(found).columns) == ["a"]
    assert "# The topic has rows of 1 other table, too.\n" in str(found.text)


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
        assert load(suggest(message)).source.format == format


def shop_messages() -> list[bytes]:
    shop = Shop(seed=3, partitions=2)
    return [
        value for _, value in [*shop.insert_stock(1_000), *(shop.change(2_000) for _ in range(40))]
    ]


def test_a_suggestion_reads_the_messages_that_it_came_from() -> None:
    messages = shop_messages()
    spec = load(suggest_spec("shop.product", "default", [(None, value) for value in messages]))
    assert (spec.name, spec.source.format) == ("shop-product", "canal-json")
    assert set(spec.columns) <= TABLE_COLUMNS.keys()
    assert "GROUP BY name" in spec.query
    assert count_read(spec, messages) > 40


@pytest.mark.parametrize("topic", ["a: b", "'", "no", "0x10", "- x", "#", "ü" * 200, "x\ny: z"])
def test_no_name_of_a_topic_becomes_something_else(topic: str) -> None:
    found = suggest({"op": "+I", "row": {"n": "a"}}, topic=topic, connection="other")
    document = yaml.safe_load(str(found.text))
    assert document["source"] == {"topic": topic, "connection": "other", "format": "changelog-json"}
    assert set(document) == {"name", "source", "columns", "query"}


@pytest.mark.parametrize("table", ["a.b", "a$", "x y", "(a+)+", "é-ß", "\\", "a\nb", "'\""])
def test_a_table_is_matched_by_its_name_whatever_it_is(table: str) -> None:
    spec = load(suggest(canal({"n": "a"}, table=table)))
    decoder = MessageRules.of(spec).decoder(plan_of(spec).columns, plan_of(spec).image)
    message = json.dumps(canal({"n": "a"}, table=table)).encode()
    assert isinstance(decoder.explain(message), Changes)


def test_names_that_could_not_be_columns_are_left_out() -> None:
    found = suggest(
        {"op": "+I", "row": {"ok": 1, "not ok": 2, "x: y\nz": 3, "OK": 4, "__failed": 5}}
    )
    assert list(load(found).columns) == ["ok"]


def test_values_without_a_format_suggest_nothing() -> None:
    strange = [None, b"", b"x", b"[]", b"{}", b"\xff", b"[" * 99_999, b"1" * 5_000]
    found = suggest_spec("t", "default", [(value, value) for value in strange])
    assert (found.text, found.reason) == (
        None,
        "the newest messages have an unknown format; write the columns",
    )
    assert "is empty" in str(suggest_spec("t", "default", []).reason)


@pytest.mark.parametrize(
    "name", ["image_id", "acc_sum_qty", "acc_count_qty", "value_qty", "sum_qty", "n"]
)
def test_a_group_has_no_name_of_the_state_or_of_another_result(name: str) -> None:
    types = {"id": "int", name: "varchar(9)", "qty": "int"}
    plan_of(load(suggest(canal(dict.fromkeys(types, "1"), types, pkNames=["id"]))))


# --- every table ----------------------------------------------------------------------------------

NAMES = st.one_of(
    st.sampled_from(
        [
            *("id", "n", "N", "qty", "sum_qty", "max_qty", "order", "group", "select", "date"),
            *("time", "key", "value", "count", "row_count", "user", "true", "null", "yes", "no"),
            *("bucket", "epoch", "n_2", "a", "__failed", "image_id", "value_qty", "acc_sum_qty"),
        ]
    ),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,62}", fullmatch=True),
    st.text(max_size=20),
)
MYSQL = {
    "int(11)": ["1", "-2147483648"],
    "int unsigned": ["4294967295"],
    "bigint unsigned": ["18446744073709551615"],
    "bigint": ["-9223372036854775808"],
    "tinyint(1)": ["127", "-1", "0"],
    "mediumint": ["8388607"],
    "decimal(20,4)": ["1234.5000"],
    "decimal(10)": ["-5"],
    "float": ["1.5"],
    "double": ["1e300"],
    "bit(8)": ["255"],
    "year(4)": ["2026", "0"],
    "date": ["2026-01-31", "0000-00-00"],
    "time": ["12:00:00", "-01:00:00", "838:59:59"],
    "datetime(3)": ["2026-01-31 12:00:00.123", "0000-00-00 00:00:00"],
    "timestamp": ["2026-01-31 12:00:00"],
    "varchar(9)": ["bolt", ""],
    "enum('a','b')": ["1"],
    "set('a','b')": ["3"],
    "json": ["{}"],
    "longtext": ["x" * 90],
}


@st.composite
def tables(draw: st.DrawFn) -> list[Any]:
    """Messages of canal over a random table."""
    names = draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    types = {name: draw(st.sampled_from(list(MYSQL))) for name in names}
    values = {name: st.sampled_from([*MYSQL[kind], None]) for name, kind in types.items()}
    rows = draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=3))
    key = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    table = draw(st.one_of(st.just("t"), st.just("order"), st.text(max_size=9)))
    return [canal(row, types, pkNames=key or None, table=table) for row in rows]


@given(tables())
@examples(60)
def test_the_suggestion_for_any_table_is_valid_and_reads_its_rows(messages: list[Any]) -> None:
    found = suggest(*messages)
    if found.text is None:
        assert found.reason == "no member of the rows can be the name of a column"
        return
    spec = load(found)
    values = [json.dumps(message).encode() for message in messages]
    assert count_read(spec, values) == len(messages), found.text
    used = {column.name for column in plan_of(spec).used} | set(spec.primary_key or ())
    assert used == set(spec.columns) or len(spec.columns) == 1


@given(st.dictionaries(NAMES, st.none() | st.booleans() | st.integers() | st.floats() | st.text()))
@examples(40)
def test_the_suggestion_for_any_plain_event_is_valid(event: dict[str, Any]) -> None:
    found = suggest(event)
    if found.text is not None:
        plan_of(load(found))


def count_read(spec: JobSpec, values: list[bytes]) -> int:
    """Return how many messages a job with this spec reads without a refusal."""
    plan = plan_of(spec)
    decoder = MessageRules.of(spec).decoder(plan.columns, plan.image)
    return sum(isinstance(decoder.explain(value), Changes) for value in values)
