"""The scanner finds in maxwell-json and debezium-json what their decoders find."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.formats.debezium_fields import UNAVAILABLE, Modes
from jobs.core.formats.registry import MessageRules
from jobs.core.kernels.codes import FILTERED, GOOD, UNUSUAL
from jobs.core.plan.tree import Column
from schemas.types.sql_types import SqlType
from tests.support.message_scans import (
    DEBEZIUM_COLUMNS,
    DEBEZIUM_ROW,
    DEBEZIUM_SOURCE,
    DEBEZIUM_USUAL,
    MAXWELL_ROW,
    MAXWELL_USUAL,
    check,
    check_mutants,
    debezium_decoder,
    debezium_message,
    maxwell_decoder,
    maxwell_message,
    mutate,
    rows_of,
)

FILTERS: list[dict[str, str]] = [{}, {"table": "product"}, {"database": "shop", "table": "gr.*"}]
TABLES = st.sampled_from(["product", "product", "other", "größe"])


@st.composite
def maxwell_messages(draw: st.DrawFn) -> bytes:
    kinds = ["insert", "update", "update", "delete", "bootstrap-insert"]
    changed = st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(each) for name, each in MAXWELL_USUAL.items()}
    )
    members = {
        "database": "shop",
        "table": draw(TABLES),
        "type": draw(st.sampled_from(kinds)),
        "ts": draw(st.sampled_from([None, 0, -5, 1_700_000_000])),
        "data": draw(rows_of(MAXWELL_USUAL)) | {"undeclared": {"deep": [1, None, "x"]}},
        "old": draw(changed),
        "es": "not of this format",
        "isDdl": True,
    }
    order = draw(st.permutations(list(members)))
    indent = draw(st.sampled_from([None, None, 1]))
    text = json.dumps({name: members[name] for name in order}, indent=indent, ensure_ascii=False)
    return text.encode()


@st.composite
def debezium_messages(draw: st.DrawFn) -> bytes:
    op = draw(st.sampled_from(["c", "r", "u", "u", "d"]))
    row = rows_of(DEBEZIUM_USUAL)
    source = DEBEZIUM_SOURCE | {"table": draw(TABLES)}
    source["ts_ms"] = draw(st.sampled_from([None, 0, -5, 1_700_000_000_000]))
    order = draw(st.permutations(list(source)))
    members = {
        "before": draw(row) if op in "ud" else None,
        "op": op,
        "ts_ms": 17,
        "after": None if op == "d" else draw(row) | {"undeclared": {"deep": [1, None]}},
        "source": draw(st.sampled_from([{name: source[name] for name in order}] * 4 + [{}, None])),
    }
    order = draw(st.permutations(list(members)))
    indent = draw(st.sampled_from([None, None, 1]))
    text = json.dumps({name: members[name] for name in order}, indent=indent, ensure_ascii=False)
    return text.encode()


@settings(deadline=None)
@given(st.lists(maxwell_messages(), max_size=12), st.sampled_from(FILTERS), st.booleans())
def test_usual_maxwell_messages_are_scanned_as_they_are_decoded(
    values: list[bytes], tables: dict[str, str], continues: bool
) -> None:
    assert not check(maxwell_decoder(missing_is_null=continues, **tables), list(values)).unusual


@settings(deadline=None)
@given(st.lists(debezium_messages(), max_size=12), st.sampled_from(FILTERS), st.booleans())
def test_usual_debezium_messages_are_scanned_as_they_are_decoded(
    values: list[bytes], tables: dict[str, str], continues: bool
) -> None:
    scanned = check(debezium_decoder(missing_is_null=continues, **tables), list(values))
    # Without `source` a message does not name its table.
    assert all(tables and b'"table"' not in values[number] for number in scanned.unusual)


UNUSUAL_MAXWELL = {
    "a mark of a bootstrap": maxwell_message(type="bootstrap-start"),
    "DDL": maxwell_message(type="table-alter", sql="ALTER TABLE t ADD x INT"),
    "a type in capitals": maxwell_message(type="INSERT"),
    "an unknown type": maxwell_message(type="upsert"),
    "rows in an array": maxwell_message(data=[MAXWELL_ROW]),
    "no row": maxwell_message(data=None),
    "an update without old values": maxwell_message(type="update"),
    "seconds beyond 64 bits": maxwell_message(ts=10**18 - 1),
    "a column that is gone": maxwell_message(data={"id": 1}),
}


@pytest.mark.parametrize("unusual", UNUSUAL_MAXWELL.values(), ids=UNUSUAL_MAXWELL)
def test_a_maxwell_message_that_is_not_usual_goes_to_the_decoder(unusual: bytes) -> None:
    assert check(maxwell_decoder(), [maxwell_message(), unusual, maxwell_message()]).unusual == [1]


def with_value(name: str, value: Any) -> bytes:
    return debezium_message(after=DEBEZIUM_ROW | {name: value})


UNUSUAL_DEBEZIUM = {
    "a payload with a schema": b'{"schema": {}, "payload": %b}' % debezium_message(),
    "an update without the row before": debezium_message(op="u"),
    "a delete without the row before": debezium_message(op="d"),
    "an insert without a row": debezium_message(after=None),
    "TRUNCATE": debezium_message(op="t", after=None),
    "a message of the database": debezium_message(op="m"),
    "no op": debezium_message(op=None),
    "a column that is gone": debezium_message(after={"id": 1}),
    "a column that is gone from the row before": debezium_message(op="u", before={"id": 1}),
    "source twice": debezium_message().replace(b'"op"', b'"source": {}, "op"'),
    "a value that was not sent": with_value("name", UNAVAILABLE),
    "a decimal that may be base64 or not": with_value("price", "1234"),
    "a decimal that is neither": with_value("price", "AJY"),
    "bits after the last byte": with_value("price", "AJZ="),
    "a decimal out of its type": with_value("price", "D0JA"),
    "a wide decimal out of its type": with_value("unsigned", "BWvHXi1jEAAA"),
    "more bytes than it has": with_value("unsigned", "AAAAAAAAAAAAAA=="),
    "no bytes": with_value("unsigned", ""),
    "a wide number that may be base64": with_value("unsigned", 1234),
    "nanoseconds beyond 64 bits": with_value("nanos", 2**63),
    "a day out of the calendar": with_value("day", 2_932_897),
    "an instant out of the calendar": with_value("at", 253_402_300_800_000),
    "an instant before it": with_value("at", -62_135_596_800_001),
    "an instant with a fraction": with_value("at", 1.5),
    "an instant as text": with_value("at", "2026-01-02 03:04:05"),
    "a zone": with_value("zoned", "2026-01-02T03:04:05+01:00"),
}


@pytest.mark.parametrize("unusual", UNUSUAL_DEBEZIUM.values(), ids=UNUSUAL_DEBEZIUM)
def test_a_debezium_message_that_is_not_usual_goes_to_the_decoder(unusual: bytes) -> None:
    assert check(debezium_decoder(), [debezium_message(), unusual, debezium_message()]).unusual == [
        1
    ]


def test_a_job_that_keeps_last_images_needs_no_row_before() -> None:
    values: list[bytes | None] = [debezium_message(op="u"), debezium_message(op="u", before=7)]
    assert check(debezium_decoder(last_images=True), values).unusual == [1]


def test_of_another_table_only_the_json_matters() -> None:
    other = DEBEZIUM_SOURCE | {"table": "other"}
    values: list[bytes | None] = [
        debezium_message(source=other, op="?", after=7),
        debezium_message(),
        debezium_message(source=None),
    ]
    assert check(debezium_decoder(table="product"), values).outcomes.tolist() == [
        FILTERED,
        GOOD,
        UNUSUAL,
    ]


DECIMALS = ["auto", "precise", "string", "double"]
TIMES = ["adaptive", "connect", "microseconds", "nanoseconds", "isostring"]
MODES = [("price", Modes(decimals=each)) for each in DECIMALS]
MODES += [("wide", Modes(decimals=each)) for each in DECIMALS]
TIMED = ("at", "micros", "nanos", "zoned", "zoned_nanos", "day")
MODES += [(name, Modes(times=each)) for name in TIMED for each in TIMES]


@pytest.mark.parametrize(("name", "modes"), MODES)
def test_values_are_read_by_the_modes_of_the_connector(name: str, modes: Modes) -> None:
    (column,) = (column for column in DEBEZIUM_COLUMNS if column.name == name)
    milliseconds = 1_700_000_000_123
    numbers = [0, 1, -1, 20_455, milliseconds, milliseconds * 1_000, milliseconds * 1_000_000]
    texts = [
        "AJY=",
        "1.50",
        "-2",
        "12",
        "123",
        "1234",
        "2026-01-02",
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05.123456",
        "2026-01-02 03:04:05",
    ]
    values: list[bytes | None] = [
        debezium_message(after={name: value}) for value in [*numbers, *texts]
    ]
    scanned = check(
        MessageRules("debezium-json", modes=modes).decoder((column,), (column,)), values
    )
    assert 0 < len(scanned.unusual) < len(values)


def test_a_time_of_day_of_debezium_is_left_to_the_decoder() -> None:
    columns = (*DEBEZIUM_COLUMNS, Column("noon", SqlType.parse("TIME")))
    assert MessageRules("debezium-json").decoder(columns, columns).make_scanner() is None


@pytest.mark.parametrize("digits", range(19, 39))
@pytest.mark.parametrize("decimals", ["auto", "precise"])
def test_wide_decimals_in_base64_are_scanned_as_they_are_decoded(
    digits: int, decimals: str
) -> None:
    dice = random.Random(f"{digits} {decimals}")
    column = Column("n", SqlType.parse(f"DECIMAL({digits}, {digits % 7})"))
    values: list[bytes | None] = []
    limit = 10**digits
    edges = [0, -1, limit - 1, limit, -limit, -limit + 1, limit >> 8 << 8, -limit >> 8 << 8]
    for number in edges + [
        dice.randrange(-limit, limit) >> dice.randrange(130) for _ in range(300)
    ]:
        size = (number.bit_length() + 8) // 8 + dice.choice([0, 0, 0, 0, 1, 3])
        text = base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()
        values.append(debezium_message(after={"n": text}))
    count = len(values)
    values += [mutate(dice, [each for each in values if each]) for _ in range(600)]
    rules = MessageRules("debezium-json", modes=Modes(decimals=decimals))
    unusual = check(rules.decoder((column,), (column,)), values).unusual
    assert sum(number < count for number in unusual) < count // 5


@pytest.mark.parametrize("source_format", ["debezium", "maxwell"])
def test_damaged_messages_are_scanned_as_they_are_decoded(source_format: str) -> None:
    assert check_mutants(source_format, 10_000, seed=7) > 300
