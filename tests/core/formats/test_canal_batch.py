"""A batch has the same changes as its messages one by one, or is None."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.formats.canal import CanalDecoder
from jobs.core.formats.canal_batch import CanalBatch
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Filtered
from schemas import limits
from schemas.types.sql_types import SqlType

TYPES = {
    "id": "BIGINT",
    "name": "STRING",
    "cnt": "INT",
    "price": "DECIMAL(6, 2)",
    "whole": "DECIMAL(3)",
    "at": "TIMESTAMP(3)",
    "ok": "BOOLEAN",
    "rate": "DOUBLE",
}
COLUMNS = tuple(Column(name, SqlType.parse(kind)) for name, kind in TYPES.items())
ROW = {
    "id": "7",
    "name": "a",
    "cnt": "3",
    "price": "12.50",
    "whole": "12",
    "at": "2026-01-02 03:04:05.678",
    "ok": "1",
    "rate": "0.5",
}

# Texts of each column: as databases write them, NULL, and some that are read another way.
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": st.sampled_from(["1", "22", "-3", "007", None, "9223372036854775807"]),
    "name": st.sampled_from(["a", "b", "", "Grüße", "\u0000", None]),
    "cnt": st.sampled_from(["1", "2", "-1", None, 5, "2147483647"]),
    "price": st.sampled_from(["1.00", "-2.50", "9999.99", "1.5", ".25", "7.", "0012.00", None]),
    "whole": st.sampled_from(["1", "999", "-9", None]),
    "at": st.sampled_from(["2026-01-02 03:04:05.678", "2026-01-02 03:04:05", None]),
    "ok": st.sampled_from(["1", "0", "true", "FALSE", "2", "-1", None]),
    "rate": st.sampled_from(["1.5", "NaN", "-0.0", None]),
}
BAD = {
    "id": "x",
    "cnt": "2147483648",
    "price": "\u0663.00",
    "whole": "1000",
    "at": "noon",
    "rate": "",
    "name": {"a": 1},
    "ok": "yes",
}


def decoder(**options: Any) -> CanalDecoder:
    return CanalDecoder(COLUMNS, COLUMNS[1:], **options)


def message(**members: Any) -> bytes:
    envelope = {"data": [ROW], "type": "INSERT", "es": 1_000, "ts": 2_000, "isDdl": False}
    return json.dumps(envelope | members, ensure_ascii=False).encode()


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    rows = draw(st.lists(st.fixed_dictionaries(FIELDS), max_size=3))
    kind = draw(st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE", "INIT"]))
    old = [draw(st.fixed_dictionaries({}, optional=FIELDS)) for _ in rows]
    old += draw(st.sampled_from([[], [], [{"name": "more"}]]))
    return message(
        type=kind,
        data=rows,
        old=old if kind == "UPDATE" else None,
        es=draw(st.sampled_from([None, 0, -5, 1_700_000_000_000])),
        table=draw(st.sampled_from(["product", "product", "other"])),
        mysqlType=draw(st.sampled_from([None, {"name": "varchar(20)"}, {"cnt": "enum('a')"}])),
    )


def one_by_one(made: CanalDecoder, values: list[bytes]) -> tuple[int, list[Changes]]:
    """Return the number of filtered messages, and the changes of the others."""
    found = [made.decode(value) for value in values]
    changes = [each for each in found if isinstance(each, Changes)]
    assert len(changes) + found.count(Filtered()) == len(found)
    return found.count(Filtered()), changes


def must_say_the_same(made: CanalDecoder, values: list[bytes]) -> None:
    plain = made.decode_batch(values)
    assert plain is not None
    filtered, changes = one_by_one(made, values)
    assert (plain.filtered, plain.count) == (filtered, len(changes))
    assert (plain.es, plain.ts) == ([each.es for each in changes], [each.ts for each in changes])
    # As text: NaN is like itself, and -0.0 is not like 0.0.
    assert str(plain.changes()) == str([row for each in changes for row in each.changes])


@given(st.lists(messages(), max_size=12), st.sampled_from([None, "product"]))
def test_messages_say_together_what_they_say_one_by_one(
    values: list[bytes], table: str | None
) -> None:
    must_say_the_same(decoder(table=table), values)


def test_a_message_of_another_table_need_not_look_like_ours() -> None:
    other = message(table="other", data=[{"id": "none"}])
    must_say_the_same(decoder(table="product"), [message(table="product"), other])


LISTS = {"name": "enum('new','paid')", "cnt": "set('a')"}
LABELLED = message(data=[ROW | {"name": "2"}], mysqlType=LISTS)


def test_messages_with_the_same_labels_are_decoded_together() -> None:
    made = decoder()
    updated = message(
        type="UPDATE",
        data=[ROW | {"name": "1"}, ROW | {"name": None}],
        old=[{"name": "2"}, {"cnt": "7"}],
        mysqlType=LISTS | {"other": "int"},
    )
    must_say_the_same(made, [LABELLED, updated, LABELLED])
    plain = made.decode_batch([LABELLED, updated])
    assert plain is not None and plain.columns[0].after == ["paid", "new", None]


def test_messages_with_other_labels_are_decoded_one_by_one() -> None:
    made = decoder()
    altered = message(data=[ROW | {"name": "2"}], mysqlType={"name": "enum('a','b')"})
    assert made.decode_batch([LABELLED, altered]) is None
    _, found = one_by_one(made, [LABELLED, altered, message()])
    assert [each.changes[0][1][0] for each in found] == ["paid", "b", "a"]


def test_a_list_too_long_to_be_remembered_is_read_all_the_same() -> None:
    made = decoder()
    many = ",".join(f"'label {number:06}'" for number in range(20_000))
    long = message(data=[ROW | {"name": "20000"}], mysqlType={"name": f"enum({many})"})
    assert len(long) > limits.CACHED_TYPES_CHARACTERS_MAX
    assert made.decode_batch([long]) is None
    found = made.decode(long)
    assert isinstance(found, Changes) and found.changes[0][1][0] == "label 019999"


UNUSUAL = {
    "a tombstone": b"",
    "no JSON": b"{",
    "two messages in one": message() + message(),
    "DDL": message(isDdl=True, type="ALTER", sql="ALTER TABLE t ADD x INT"),
    "a heartbeat": message(type="MHEARTBEAT"),
    "a type that is not known": message(type="MERGE"),
    "a number that is no DOUBLE": message(data=[ROW | {"rate": "1e400"}]),
    "a number of JSON that is no DOUBLE": message().replace(b'"0.5"', b"1e400"),
    "a truth of JSON that is no whole number": message().replace(b'"ok": "1"', b'"ok": 0.5'),
    "no type": message(type=None),
    "no rows": message(data=None),
    "too few old rows": message(type="UPDATE", old=[]),
    "no old rows": message(type="UPDATE", old=None),
    "a column that is gone": message(data=[{"id": "1"}]),
    "no UTF-8": message(name="\u00fc").replace("\u00fc".encode(), b"\xff"),
    "too long": message(blank=" " * limits.MESSAGE_BYTES_MAX),
    "too deep": message(deep="[" * 600 + "]" * 600).replace(b'"[', b"[").replace(b']"', b"]"),
    **{f"a bad {name}": message(data=[ROW | {name: text}]) for name, text in BAD.items()},
    **{
        f"a bad old {name}": message(type="UPDATE", old=[{name: text}])
        for name, text in BAD.items()
    },
}


@pytest.mark.parametrize("unusual", UNUSUAL.values(), ids=UNUSUAL)
def test_with_an_unusual_message_among_them_they_are_decoded_one_by_one(unusual: bytes) -> None:
    made = decoder()
    assert made.decode_batch([message(), unusual, message()]) is None
    assert made.decode_batch([message(), message()]) is not None


def test_no_message_makes_no_rows() -> None:
    plain = decoder().decode_batch([])
    assert isinstance(plain, CanalBatch)
    assert (plain.count, plain.filtered, plain.changes()) == (0, 0, [])


def test_of_columns_that_no_query_uses_only_the_text_is_checked() -> None:
    made = CanalDecoder(COLUMNS, ())
    plain = made.decode_batch([message(), message(type="UPDATE", old=[{"cnt": "4"}])])
    assert plain is not None
    assert plain.changes() == [(1, ()), (-1, ()), (1, ())]
    assert made.decode_batch([message(data=[ROW | {"price": "dear"}])]) is None
