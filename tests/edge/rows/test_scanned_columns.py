"""Scanned columns in Arrow have the values that the decoder reads from the same messages."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes
from jobs.edge.rows.scanned_columns import scanned_to_arrow
from schemas.types.arrow_values import from_arrow
from schemas.types.sql_types import SqlType
from tests.support.message_scans import (
    DEBEZIUM_USUAL,
    MAXWELL_USUAL,
    USUAL,
    canal_decoder,
    canal_message,
    debezium_decoder,
    debezium_message,
    maxwell_decoder,
    maxwell_message,
    read_all_types,
    rows_of,
    scanner,
)


def must_be_decoded(made: MessageDecoder, values: list[bytes]) -> None:
    scanned = scanner(made).scan(values)
    assert not scanned.unusual
    wanted: list[tuple[Any, ...]] = []
    for value in values:
        decoded = made.decode(value)
        assert isinstance(decoded, Changes)
        wanted += [row for _, row in decoded.changes]
    columns = [from_arrow(scanned_to_arrow(each), each.type) for each in scanned.columns]
    # As text: -0.0 is not like 0.0.
    assert str(list(zip(*columns, strict=True))) == str(wanted)


def test_what_canal_sent_of_a_table_of_all_types() -> None:
    values, made = read_all_types()
    must_be_decoded(made, values)


@settings(deadline=None)  # the first one loads the kernel
@given(st.lists(rows_of(USUAL), min_size=1, max_size=8))
def test_rows_of_canal(rows: list[dict[str, Any]]) -> None:
    must_be_decoded(canal_decoder(), [canal_message(data=rows)])


@settings(deadline=None)
@given(st.lists(rows_of(MAXWELL_USUAL), min_size=1, max_size=8))
def test_rows_of_maxwell(rows: list[dict[str, Any]]) -> None:
    must_be_decoded(maxwell_decoder(), [maxwell_message(data=row) for row in rows])


@settings(deadline=None)
@given(st.lists(rows_of(DEBEZIUM_USUAL), min_size=1, max_size=8))
def test_rows_of_debezium(rows: list[dict[str, Any]]) -> None:
    must_be_decoded(debezium_decoder(), [debezium_message(after=row) for row in rows])


@pytest.mark.parametrize("others", [[None], [None, "1.5", "-17", 2.5]], ids=["all", "some"])
@pytest.mark.parametrize("digits", [20, 29, 38])
def test_wide_decimals_of_which_all_or_some_are_base64(digits: int, others: list[Any]) -> None:
    dice, column = random.Random(digits), Column("n", SqlType.parse(f"DECIMAL({digits}, 3)"))
    fields = list(others)
    for _ in range(100):
        number = dice.randrange(-(10**digits), 10**digits) * 9 // 10 >> dice.randrange(128)
        octets = number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
        fields.append(base64.b64encode(octets).decode())
    dice.shuffle(fields)
    made = MessageRules("debezium-json").decoder((column,), (column,))
    usual = [each for each in fields if not str(each).isdigit()]  # which could be a number too
    must_be_decoded(made, [debezium_message(after={"n": each}) for each in usual])


# A text is rounded once to 32 bits, and a number of JSON after it has become a double.
MIDDLE = "1.00000005960464477540"


@pytest.mark.parametrize("text", [MIDDLE, f"-{MIDDLE}", "0.1", "16777217", "123456.789e-10"])
def test_a_float_is_rounded_as_the_decoder_rounds_it(text: str) -> None:
    must_be_decoded(canal_decoder(), [canal_message(data=[_with(USUAL, text)])])
    number = maxwell_message(data=_with(MAXWELL_USUAL, 77)).replace(b": 77", f": {text}".encode())
    must_be_decoded(maxwell_decoder(), [number])


def _with(usual: dict[str, list[Any]], single: Any) -> dict[str, Any]:
    return {name: values[0] for name, values in usual.items()} | {"single": single}
