"""Values of conditions and keys: they are compared as they are written, never rounded."""

from __future__ import annotations

import pytest

from jobs.core.values.json_text import JsonNumber
from jobs.core.values.json_values import parser
from jobs.reading.listing import exact_parser, parse_conditions
from schemas.types.sql_types import SqlType

number = JsonNumber


@pytest.mark.parametrize("field", ["1.005", number("-0.001"), "1e-999999999", 1.125])
def test_a_decimal_to_compare_with_is_not_rounded(field: object) -> None:
    kind = SqlType.parse("DECIMAL(10,2)")
    assert isinstance(parser(kind)(field), int)
    with pytest.raises(ValueError, match="has more digits after the point than DECIMAL"):
        exact_parser(kind)(field)


@pytest.mark.parametrize("field", ["1.500", number("1.5"), "15e-1", None, 1.5])
def test_a_decimal_to_compare_with_may_have_zeros_at_its_end(field: object) -> None:
    kind = SqlType.parse("DECIMAL(10,2)")
    assert exact_parser(kind)(field) == (None if field is None else 150)


@pytest.mark.parametrize(
    ("kind", "value"), [("STRING", "a b "), ("DECIMAL(10, 2)", "1.50"), ("DATE", "2026-01-31")]
)
def test_blanks_around_an_operator_are_none_of_the_value(kind: str, value: str) -> None:
    columns = {"c": SqlType.parse(kind)}
    tight, wide = parse_conditions(columns, [f"c>={value}", f"c >=  {value}"])
    assert wide == tight


def test_blanks_only_behind_an_operator_are_of_the_text() -> None:
    texts = ["c= a", "c = a", "c=a"]
    padded, *plain = parse_conditions({"c": SqlType.parse("STRING")}, texts)
    assert plain[0] == plain[1] != padded
