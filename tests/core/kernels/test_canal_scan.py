"""The scanner finds what the decoder finds, or calls a message unusual."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.formats.metadata import MetadataDecoder
from jobs.core.formats.registry import MessageRules
from jobs.core.kernels.codes import FILTERED, GOOD, UNUSUAL
from jobs.core.plan.tree import Column
from schemas.spec.source import METADATA_TYPES
from tests.support.message_scans import (
    COLUMNS,
    MYSQL_TYPES,
    ROW,
    USUAL,
    canal_decoder,
    canal_message,
    check,
    check_mutants,
    escaped,
    read_all_types,
    rows_of,
)

# Each is read another way, or refused: the scanner leaves it to the decoder.
RARE: dict[str, list[Any]] = {
    "id": ["x", "", " 1", "+1", "9223372036854775808", "1.0", 1e3, "\u0661", True, [1], {"a": 1}],
    "name": ["\ud800", "\udc00x", 1.5, [1], {"a": [None]}],
    "cnt": ["2147483648", "-2147483649", "1e3", 1.5],
    "price": [".25", "7.", "1.005", "10000", "x", "", "-", "1.2.3", 1.005],
    "whole": ["1000", "1.5"],
    "wide": ["123456789012345678901", "0.12345678901", "1e3", "", "."],
    "at": [
        "noon",
        "2026-02-29 00:00:00",
        "2026-01-02T03:04:05",
        "2026-01-02 24:00:00",
        "2026-01-02 03:04:05.1234567",
        "2026-01-02 03:04:05Z",
        "0000-01-01 00:00:00",
    ],
    "zoned": ["2024-02-29 23:59:59", "Z"],
    "ok": ["2", "yes", "-1", 2, 0.5, ""],
    "rate": ["1e308", "NaN", "0.0e-309", "", "x", "1.", "e5", "1e", "1e+", "+1", " 1", "0" * 41],
    "single": [1.5, "1e38", "1e-39", "Infinity", ""],
    "raw": ["\u0100", "日", 5, True],
    "day": ["2026-13-01", "2026-04-31", "2026-1-2", "0000-01-01", "1900-02-29", 20260102],
    "noon": ["12:38:35.1234567", "12:38:35.", "12:38:35,5", "24:00:00", "12:60:00", "1:00:00"],
    "tiny": ["128"],
    "größe": ["32768"],
}


# What `mysqlType` may have without a label for a STRING.
TYPES_WITHOUT_LABELS: list[Any] = [
    MYSQL_TYPES,
    MYSQL_TYPES | {"name": "enumeration"},
    MYSQL_TYPES | {"name": ["enum('a')"]},
    {},
    None,
    "enum('a')",
]
# And with one.
TYPES_WITH_LABELS: list[Any] = [
    MYSQL_TYPES | {"name": "enum('new','paid')"},
    MYSQL_TYPES | {"name": "SET('a','b')"},
    {"name": "Enum('it''s')"},
]


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    rows = draw(st.lists(rows_of(USUAL), max_size=3))
    kind = draw(st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE", "INIT"]))
    changed = st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(each) for name, each in USUAL.items()}
    )
    old = [draw(changed) for _ in rows] + draw(st.sampled_from([[], [], [{"name": "more"}]]))
    members = {
        "data": [row | {"undeclared": {"deep": [1, None, "x"]}} for row in rows],
        "type": kind,
        "old": old if kind == "UPDATE" else None,
        "isDdl": False,
        "es": draw(st.sampled_from([None, 0, -5, 1_700_000_000_000])),
        "ts": 17,
        "table": draw(st.sampled_from(["product", "product", "other", "größe"])),
        "database": "shop",
        "sqlType": {"id": -5, "x": 1.5e-3},
        "mysqlType": draw(st.sampled_from(TYPES_WITHOUT_LABELS)),
    }
    order = draw(st.permutations(list(members)))
    indent = draw(st.sampled_from([None, None, 1]))
    ordered = {name: members[name] for name in order}
    text = json.dumps(ordered, indent=indent, ensure_ascii=False)
    return (escaped(text) if draw(st.booleans()) else text).encode()


@settings(deadline=None)  # the first one loads the kernel
@given(
    st.lists(messages(), max_size=12),
    st.sampled_from([{}, {"table": "product"}, {"database": "shop", "table": "gr.*"}]),
    st.booleans(),
)
def test_usual_messages_are_scanned_as_they_are_decoded(
    values: list[bytes], tables: dict[str, str], continues: bool
) -> None:
    scanned = check(canal_decoder(missing_is_null=continues, **tables), list(values))
    assert not scanned.unusual


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in RARE.items() for value in values]
)
@pytest.mark.parametrize("place", ["data", "old"])
def test_a_rare_value_makes_its_message_unusual_and_no_other(
    name: str, value: Any, place: str
) -> None:
    rare = {"data": [ROW | {name: value}]} if place == "data" else {"old": [{name: value}]}
    unusual = canal_message(type="UPDATE" if place == "old" else "INSERT", **rare)
    scanned = check(canal_decoder(), [canal_message(), unusual, canal_message()])
    assert scanned.unusual == [1]


UNUSUAL_MESSAGES: dict[str, bytes | None] = {
    "a tombstone": None,
    "nothing": b"",
    "no JSON": b"{",
    "an empty object": b"{}",
    "two messages in one": canal_message() + canal_message(),
    "a byte order mark": b"\xef\xbb\xbf" + canal_message(),
    "DDL": canal_message(isDdl=True, type="ALTER", sql="ALTER TABLE t ADD x INT"),
    "a heartbeat": canal_message(type="MHEARTBEAT"),
    "an unknown type": canal_message(type="MERGE"),
    "a type that begins like one": canal_message(type="INSERTED"),
    "no rows": canal_message(data=None),
    "rows that are none": canal_message(data=[1]),
    "too few old rows": canal_message(type="UPDATE", old=[]),
    "no old rows": canal_message(type="UPDATE", old=None),
    "a column that is gone": canal_message(data=[{"id": "1"}]),
    "a column twice": canal_message().replace(b'"id": "1"', b'"id": "1", "id": "2"'),
    "a member twice": canal_message().replace(b'"es": 1000', b'"es": 1000, "es": 2000'),
    "a name with an escape": canal_message().replace(b'"id"', b'"\\u0069d"'),
    "a member's name with an escape": canal_message().replace(b'"ts"', b'"\\u0074s"'),
    "a time that is text": canal_message(es="1000"),
    "a time with a fraction": canal_message(es=1.5),
    "an overlong byte": canal_message(sql="").replace(b'"sql": ""', b'"sql": "\xc0\x80"'),
    "half a character": canal_message(sql="").replace(b'"sql": ""', b'"sql": "\xe2\x82"'),
    "a raw tab": canal_message(sql="x").replace(b"x", b"\t"),
    "a bad escape": canal_message(sql="x").replace(b'"x"', b'"\\x"'),
    "deep nesting": canal_message(deep=json.loads("[" * 40 + "]" * 40)),
    "a trailing comma": canal_message()[:-1] + b",}",
    "a number with a zero before it": canal_message(id=7).replace(b'"id": 7', b'"id": 07'),
    "a byte 0": canal_message() + b"\0",
    "too large": canal_message(blank=" " * (9 << 20)),
}


@pytest.mark.parametrize("unusual", UNUSUAL_MESSAGES.values(), ids=UNUSUAL_MESSAGES)
def test_a_message_that_is_not_usual_goes_to_the_decoder(unusual: bytes | None) -> None:
    assert check(canal_decoder(), [canal_message(), unusual, canal_message()]).unusual == [1]


@pytest.mark.parametrize("types", TYPES_WITH_LABELS)
def test_a_number_with_a_label_is_scanned_as_its_label(types: Any) -> None:
    rows = [ROW | {"name": each} for each in ("1", "0", 1, "", None, "ä", "-1")]
    plain, labelled = (canal_message(mysqlType=each, data=rows) for each in (MYSQL_TYPES, types))
    changed = canal_message(mysqlType=types, type="UPDATE", data=rows[:1], old=[{"name": "0"}])
    values: list[bytes | None] = [plain, labelled, changed, labelled, plain]
    assert not check(canal_decoder(), values).unusual


@pytest.mark.parametrize("number", ["9", 9, "1" * 18, "9" * 30])
@pytest.mark.parametrize("types", TYPES_WITH_LABELS)
def test_a_number_without_a_label_makes_its_message_unusual(types: Any, number: Any) -> None:
    plain, wrong = (
        canal_message(mysqlType=types, data=[ROW | {"name": each}]) for each in ("1", number)
    )
    assert check(canal_decoder(), [plain, wrong, plain]).unusual == [1]


def test_a_set_of_64_labels_is_scanned_as_far_as_a_word_goes() -> None:
    labels = ",".join(f"'{number}'" for number in range(64))
    numbers = ["1", str(2**59), str(2**63)]
    values: list[bytes | None] = [
        canal_message(mysqlType={"name": f"set({labels})"}, data=[ROW | {"name": number}])
        for number in numbers
    ]
    assert check(canal_decoder(), values).unusual == [2]


@pytest.mark.parametrize(
    "types", [{"name": "enum('\ud800')"}, {"name": "enum('a')", "more": "x" * 70_000}]
)
def test_labels_that_cannot_be_remembered_make_their_message_unusual(types: Any) -> None:
    value = json.dumps(json.loads(canal_message()) | {"mysqlType": types}).encode()
    assert check(canal_decoder(), [canal_message(), value]).unusual == [1]


def test_more_labels_than_are_remembered_are_still_told_apart() -> None:
    values: list[bytes | None] = [
        canal_message(mysqlType={"name": f"enum('{number % 50}')"}, data=[ROW | {"name": "1"}])
        for number in range(150)
    ]
    made = canal_decoder()
    for _ in range(3):
        assert not check(made, values).unusual


@pytest.mark.parametrize(
    ("plain", "escaped_text", "unusual"),
    [('"name"', '"\\u006eame"', [0]), ('"enum(', '"\\u0065num(', [])],
)
def test_labels_behind_an_escape_are_not_missed(
    plain: str, escaped_text: str, unusual: list[int]
) -> None:
    labelled = canal_message(mysqlType={"name": "enum('new')"}, data=[ROW | {"name": "1"}])
    head, tail = labelled.decode().split('"mysqlType"')
    value = f'{head}"mysqlType"{tail.replace(plain, escaped_text)}'.encode()
    assert value != labelled
    assert check(canal_decoder(), [value]).unusual == unusual


def test_what_canal_sent_of_a_table_of_all_types_is_scanned() -> None:
    values, made = read_all_types()
    assert values and not check(made, list(values)).unusual


def test_labels_of_columns_that_are_no_text_do_not_matter() -> None:
    numbers = tuple(each for each in COLUMNS if each.name in ("id", "cnt"))
    labelled = canal_message(mysqlType={"id": "enum('a')", "cnt": "set('a')", "name": "enum('a')"})
    assert not check(MessageRules("canal-json").decoder(numbers, numbers), [labelled]).unusual


@settings(deadline=None)
@given(st.lists(messages(), max_size=12), st.sampled_from([None, "product", "gr.*"]))
def test_metadata_is_scanned_as_it_is_decoded(values: list[bytes], table: str | None) -> None:
    metadata = tuple(Column(name, kind) for name, kind in METADATA_TYPES.items())
    rules = MessageRules("canal-json", table=table)
    made = rules.decoder(COLUMNS, (metadata[1], *COLUMNS[:2], *metadata[2:], metadata[0]))
    assert isinstance(made, MetadataDecoder)
    check(made, list(values))


def test_of_another_table_only_the_json_matters() -> None:
    made = canal_decoder(table="product")
    values: list[bytes | None] = [
        canal_message(table="other", data=[{"id": "none"}], type="?"),
        canal_message(table="other", data="none"),
        canal_message(table="product"),
        canal_message(),  # without a name
        canal_message(table="product", data=[{"id": "none"}]),
    ]
    assert check(made, values).outcomes.tolist() == [FILTERED, FILTERED, GOOD, UNUSUAL, UNUSUAL]


def test_more_tables_than_are_remembered_are_still_told_apart() -> None:
    values: list[bytes | None] = [canal_message(table=f"t{number % 100}") for number in range(300)]
    assert not check(canal_decoder(table="t[0-4].*"), values).unusual


def test_a_name_too_long_to_be_remembered_makes_its_message_unusual() -> None:
    values: list[bytes | None] = [canal_message(table="x" * 600), canal_message(table="x")]
    assert check(canal_decoder(table="x.*"), values).unusual == [0]


def test_more_rows_than_there_is_room_for_are_scanned_in_several_steps() -> None:
    many = canal_message(data=[ROW | {"name": "x" * size} for size in range(3_000)])
    assert not check(canal_decoder(), [canal_message(), many, canal_message()]).unusual


def test_damaged_messages_are_scanned_as_they_are_decoded() -> None:
    assert check_mutants("canal", 10_000, seed=7) > 500
