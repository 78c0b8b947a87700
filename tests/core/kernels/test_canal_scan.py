"""The scanner finds what the decoder finds, or calls a message odd."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.formats.canal import CanalDecoder
from jobs.core.formats.canal_scanner import CanalScanner
from jobs.core.formats.scanned import Scanned
from jobs.core.kernels.codes import FILTERED, GOOD, NO_TIME, ODD
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Filtered
from schemas.types.sql_types import SqlType

TYPES = {
    "id": "BIGINT",
    "name": "STRING",
    "cnt": "INT",
    "price": "DECIMAL(6, 2)",
    "whole": "DECIMAL(3)",
    "wide": "DECIMAL(30, 10)",
    "at": "TIMESTAMP(3)",
    "zoned": "TIMESTAMP_LTZ(6)",
    "ok": "BOOLEAN",
    "rate": "DOUBLE",
    "day": "DATE",
    "noon": "TIME",
    "tiny": "TINYINT",
    "größe": "SMALLINT",
}
COLUMNS = tuple(Column(name, SqlType.parse(kind)) for name, kind in TYPES.items())
USUAL: dict[str, list[Any]] = {
    "id": ["1", "22", "-3", "007", None, "999999999999999999", 5, -7, 0, -0],
    "name": [
        "a",
        "",
        "Grüße",
        "日本",
        "\U0001f600",
        None,
        "tab\t",
        "/",
        7,
        'a "quoted" \\ word',
        "\u0000",
        -3,
        True,
        False,
        "x" * 100,
        "null",
    ],
    "cnt": ["1", "2147483647", "-2147483648", None, 5],
    "price": ["1.00", "-2.50", "9999.99", "1.5", "7", "0012.00", "-0.00", None],
    "whole": ["1", "999", "-9", None],
    "wide": ["12345678.0123456789", "1.5", None],
    "at": ["2026-01-02 03:04:05.678", "2026-01-02 03:04:05", "0001-01-01 00:00:00", None],
    "zoned": ["2024-02-29 23:59:59.999999Z", "1969-12-31 00:00:00Z", None],
    "ok": ["1", "0", "true", "FALSE", True, False, 1, 0, None],
    "rate": ["1.5", "-0.0", "12345.678", "3", None],
    "day": ["2026-01-02", "2000-02-29", "9999-12-31", "0001-01-01", "1970-01-01", None],
    "noon": ["12:38:35", "00:00:00", None],
    "tiny": ["127", "-128", None],
    "größe": ["1", None],
}
# Each is read another way, or refused: the scanner leaves it to the decoder.
RARE: dict[str, list[Any]] = {
    "id": ["x", "", " 1", "+1", "9223372036854775807", "1.0", 1e3, "\u0661", True, [1], {"a": 1}],
    "name": ["\ud800", "\udc00x", 1.5, [1], {"a": [None]}],
    "cnt": ["2147483648", "-2147483649", "1e3", 1.5],
    "price": [".25", "7.", "1.005", "10000", "x", "", "-", "1.2.3", 1.005],
    "whole": ["1000", "1.5"],
    "wide": ["12345678901234567890.5"],
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
    "rate": ["1e5", "NaN", "1234567890.1234567", "", "x", 1e300],
    "day": ["2026-13-01", "2026-04-31", "2026-1-2", "0000-01-01", "1900-02-29", 20260102],
    "noon": ["12:38:35.5", "24:00:00", "12:60:00"],
    "tiny": ["128"],
    "größe": ["32768"],
}
ROW = {name: values[0] for name, values in USUAL.items()}


def escaped(text: str) -> str:
    """Return the text with escapes in values, and none in names of columns and tables."""
    for character in "ü日\U0001f600":
        text = text.replace(character, json.dumps(character)[1:-1])
    return text


def decoder(**options: Any) -> CanalDecoder:
    return CanalDecoder(COLUMNS, COLUMNS[1:], **options)


def scanner(made: CanalDecoder) -> CanalScanner:
    found = made.make_scanner()
    assert found is not None
    return found


def message(**members: Any) -> bytes:
    envelope = {"data": [ROW], "type": "INSERT", "es": 1_000, "ts": 2_000, "isDdl": False}
    return json.dumps(envelope | members, ensure_ascii=False).encode("utf-8", "surrogatepass")


def check(made: CanalDecoder, values: list[bytes | None]) -> Scanned:
    """Compare a scan with the decoder, message by message."""
    scanned = scanner(made).scan(values)
    changes = scanned.changes()
    for number, value in enumerate(values):
        own = [changes[place] for place in (scanned.owners == number).nonzero()[0]]
        outcome = scanned.outcomes[number]
        if outcome == ODD:
            assert not own
            continue
        wanted = made.decode(value)
        if outcome == FILTERED:
            assert isinstance(wanted, Filtered) and not own
            continue
        assert isinstance(wanted, Changes), (value, wanted)
        # As text: -0.0 is not like 0.0.
        assert str(own) == str(wanted.changes), value
        for found, time in ((scanned.es, wanted.es), (scanned.ts, wanted.ts)):
            assert found[number] == (NO_TIME if time is None else time)
    return scanned


def rows_of(values: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: st.sampled_from(each) for name, each in values.items()})


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
    scanned = check(decoder(missing_is_null=continues, **tables), list(values))
    assert not scanned.odd


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in RARE.items() for value in values]
)
@pytest.mark.parametrize("place", ["data", "old"])
def test_a_rare_value_makes_its_message_odd_and_no_other(name: str, value: Any, place: str) -> None:
    rare = {"data": [ROW | {name: value}]} if place == "data" else {"old": [{name: value}]}
    odd = message(type="UPDATE" if place == "old" else "INSERT", **rare)
    scanned = check(decoder(), [message(), odd, message()])
    assert scanned.odd == [1]


ODD_MESSAGES: dict[str, bytes | None] = {
    "a tombstone": None,
    "nothing": b"",
    "no JSON": b"{",
    "an empty object": b"{}",
    "two messages in one": message() + message(),
    "a byte order mark": b"\xef\xbb\xbf" + message(),
    "DDL": message(isDdl=True, type="ALTER", sql="ALTER TABLE t ADD x INT"),
    "a heartbeat": message(type="MHEARTBEAT"),
    "an unknown type": message(type="MERGE"),
    "a type that begins like one": message(type="INSERTED"),
    "no rows": message(data=None),
    "rows that are none": message(data=[1]),
    "too few old rows": message(type="UPDATE", old=[]),
    "no old rows": message(type="UPDATE", old=None),
    "a column that is gone": message(data=[{"id": "1"}]),
    "a column twice": message().replace(b'"id": "1"', b'"id": "1", "id": "2"'),
    "a member twice": message().replace(b'"es": 1000', b'"es": 1000, "es": 2000'),
    "a name with an escape": message().replace(b'"id"', b'"\\u0069d"'),
    "a member's name with an escape": message().replace(b'"ts"', b'"\\u0074s"'),
    "a time that is text": message(es="1000"),
    "a time with a fraction": message(es=1.5),
    "an overlong byte": message(sql="").replace(b'"sql": ""', b'"sql": "\xc0\x80"'),
    "half a character": message(sql="").replace(b'"sql": ""', b'"sql": "\xe2\x82"'),
    "a raw tab": message(sql="x").replace(b"x", b"\t"),
    "a bad escape": message(sql="x").replace(b'"x"', b'"\\x"'),
    "deep nesting": message(deep=json.loads("[" * 40 + "]" * 40)),
    "a trailing comma": message()[:-1] + b",}",
    "a number with a zero before it": message(id=7).replace(b'"id": 7', b'"id": 07'),
    "a byte 0": message() + b"\0",
    "too large": message(blank=" " * (9 << 20)),
}


@pytest.mark.parametrize("odd", ODD_MESSAGES.values(), ids=ODD_MESSAGES)
def test_a_message_that_is_not_usual_is_odd(odd: bytes | None) -> None:
    assert check(decoder(), [message(), odd, message()]).odd == [1]


def test_of_another_table_only_the_json_matters() -> None:
    made = decoder(table="product")
    values: list[bytes | None] = [
        message(table="other", data=[{"id": "none"}], type="?"),
        message(table="other", data="none"),
        message(table="product"),
        message(),  # without a name
        message(table="product", data=[{"id": "none"}]),
    ]
    assert check(made, values).outcomes.tolist() == [FILTERED, FILTERED, GOOD, ODD, ODD]


def test_more_tables_than_are_remembered_are_still_told_apart() -> None:
    values: list[bytes | None] = [message(table=f"t{number % 100}") for number in range(300)]
    assert not check(decoder(table="t[0-4].*"), values).odd


def test_a_name_too_long_to_be_remembered_makes_its_message_odd() -> None:
    values: list[bytes | None] = [message(table="x" * 600), message(table="x")]
    assert check(decoder(table="x.*"), values).odd == [0]


def test_more_rows_than_there_is_room_for_are_scanned_in_several_steps() -> None:
    many = message(data=[ROW | {"name": "x" * size} for size in range(3_000)])
    assert not check(decoder(), [message(), many, message()]).odd


MUTATED = [
    message(),
    message(type="UPDATE", old=[{"cnt": "4", "name": "ü\U0001f600\n"}]),
    message(type="DELETE", data=[ROW, ROW], table="product", sqlType={"a": [1, -2.5e7, True]}),
    escaped(message(data=[ROW | {"name": "\U0001f600ü"}]).decode()).replace(",", " ,\n").encode(),
]
BYTES = b'{}[]",:\\ \x00\x1f0123456789-+.eEtfnu\xc3\xed\xf0\x80\xa0\xbf\xff'


def mutate(dice: random.Random) -> bytes:
    """Return a message with some bytes replaced, removed, repeated or moved."""
    value = bytearray(dice.choice(MUTATED))
    for _ in range(dice.choice([1, 1, 1, 2, 3, 8])):
        at = dice.randrange(len(value))
        how = dice.randrange(6)
        if how == 0:
            value[at] = dice.choice(BYTES)
        elif how == 1:
            value[at] ^= 1 << dice.randrange(8)
        elif how == 5 and 48 <= value[at] <= 57:
            value[at] = dice.choice(b"0123456789")
        elif how == 2:
            del value[at : at + dice.choice([1, 1, 2, 10, 100])]
        elif how == 3:
            value[at:at] = value[at : at + dice.choice([1, 2, 10])]
        else:
            del value[at:]
        if not value:
            return b""
    return bytes(value)


def check_mutants(count: int, seed: int) -> int:
    """Compare so many damaged messages, and return how many of them are still usual."""
    dice = random.Random(seed)
    made = [decoder(), decoder(table="product"), decoder(missing_is_null=True)]
    usual = 0
    for start in range(0, count, 500):
        values: list[bytes | None] = [mutate(dice) for _ in range(500)]
        scanned = check(made[start // 500 % len(made)], values)
        usual += len(values) - len(scanned.odd)
    return usual


def test_damaged_messages_are_scanned_as_they_are_decoded() -> None:
    assert check_mutants(10_000, seed=7) > 500
