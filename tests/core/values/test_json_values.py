from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.values.change import Value
from jobs.core.values.float_values import NAN, canonical_float
from jobs.core.values.json_text import JsonNumber, UnreadableError, read_json
from jobs.core.values.json_values import converter, parse, parser, render, renderer
from schemas.types.sql_types import SqlType, integer_range
from tests.support.examples import examples

number = JsonNumber


def convert(sql_type: str, field: object, timestamp_format: str = "sql") -> Value:
    return converter(SqlType.parse(sql_type), timestamp_format)(field)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sql_type", "field", "value"),
    [
        ("INT", " 12 ", 12),
        ("INT", "+7", 7),
        ("INT", "-0", 0),
        ("INT", "0" * 900 + "5", 5),
        ("INT", number("1e3"), 1000),
        ("INT", number("3.0"), 3),
        ("INT", 5, 5),
        ("TINYINT", "-128", -128),
        ("BIGINT", number("9223372036854775807"), 2**63 - 1),
        ("BOOLEAN", "1", True),
        ("BOOLEAN", number("1"), True),
        ("BOOLEAN", number("1.0"), True),
        ("BOOLEAN", "0", False),
        ("BOOLEAN", number("0"), False),
        ("BOOLEAN", " TRUE ", True),
        ("BOOLEAN", "False", False),
        ("BOOLEAN", True, True),
        ("BOOLEAN", "2", True),
        ("BOOLEAN", "-1", True),
        ("BOOLEAN", "00", False),
        ("BOOLEAN", number("2"), True),
        ("BOOLEAN", number("-128"), True),
        ("BOOLEAN", number("1e999999999"), True),
        ("BOOLEAN", number("0.0"), False),
        ("DECIMAL(10,2)", "1.005", 101),
        ("DECIMAL(10,2)", "-1.005", -101),
        ("DECIMAL(10,2)", "1.004", 100),
        ("DECIMAL(10,2)", "1e3", 100_000),
        ("DECIMAL(10,2)", "99999999.994", 9_999_999_999),
        ("DECIMAL(10,2)", "0." + "0" * 5000 + "1", 0),
        ("DECIMAL(10,2)", "1e-999999999", 0),
        ("DECIMAL(10,2)", "0e999999999", 0),
        ("DECIMAL(38,0)", "9" * 38, 10**38 - 1),
        ("DECIMAL(2,2)", ".5", 50),
        ("DOUBLE", " 1.5 ", 1.5),
        ("DOUBLE", "-Infinity", -math.inf),
        ("DOUBLE", "1.7976931348623157e308", 1.7976931348623157e308),
        ("DOUBLE", math.inf, math.inf),
        ("FLOAT", "Infinity", math.inf),
        ("FLOAT", -math.inf, -math.inf),
        ("FLOAT", "3.4028235e38", 3.4028234663852886e38),
        ("FLOAT", "3.14", 3.140000104904175),
        ("STRING", "", ""),
        ("STRING", "a\x00b", "a\x00b"),
        ("STRING", number("1.50"), "1.5"),
        ("STRING", number("12"), "12"),
        ("STRING", number("-0"), "0"),
        ("STRING", number("9007199254740993"), "9007199254740993"),
        ("STRING", number("1e2"), "100.0"),
        ("STRING", number("12345678.5"), "1.23456785E7"),
        ("STRING", number("0.0001"), "1.0E-4"),
        ("STRING", number("0.12345678901234567890"), "0.12345678901234567890"),
        ("STRING", number("1e400"), "1e400"),
        ("STRING", True, "true"),
        (
            "STRING",
            {"q": number("1"), "r": [None, 'é"', number("1.50")]},
            '{"q":1,"r":[null,"é\\"",1.5]}',
        ),
        ("DATE", "2020-02-29", 18_321),
        ("DATE", "1969-12-31", -1),
        ("TIME", "12:38:35.999", "12:38:35.999"),
        ("TIME", "12:38:35.000", "12:38:35"),
        ("TIME(3)", "12:38:35.100200300", "12:38:35.1002003"),
        ("TIME", "24:00:00", "00:00:00"),
        ("TIME", "24:00:00.000", "00:00:00"),
        ("TIMESTAMP(0)", "1970-01-01 00:00:00.9", 900_000),
        ("TIMESTAMP(3)", "1970-01-01 00:00:01.5", 1_500_000),
        ("TIMESTAMP(3)", "1970-01-01 00:00:00.477123", 477_123),
        ("TIMESTAMP(3)", "1970-01-01 00:00:00.477123000", 477_123),
        ("TIMESTAMP(6)", "1969-12-31 23:59:59.999999", -1),
        ("TIMESTAMP(6)", "1970-01-01 24:00:00", 86_400_000_000),
        ("TIMESTAMP(9)", "2020-05-13 12:38:35.1", "2020-05-13 12:38:35.100000000"),
        ("TIMESTAMP_LTZ(3)", "1970-01-01 00:00:00.001Z", 1_000),
        ("BINARY", "AQI=", b"\x01\x02"),
        ("BINARY", "", b""),
    ],
)
def test_a_field_becomes_a_value(sql_type: str, field: object, value: Value) -> None:
    got = convert(sql_type, field)
    assert (got, type(got)) == (value, type(value))


@pytest.mark.parametrize(
    ("sql_type", "field", "reason"),
    [
        ("INT", "3.9", "'3.9' is not a valid INT"),
        ("INT", number("3.9"), "3.9 has a fraction; INT has none"),
        ("INT", number("1e-999999999"), "has a fraction"),
        ("INT", number("1e999999999"), "does not fit INT"),
        ("INT", "", "'' is not a valid INT"),
        ("INT", "1_000", "'1_000' is not a valid INT"),
        ("INT", True, "true is not a valid INT"),
        ("INT", {}, "an object is not a valid INT"),
        ("INT", "2147483648", "does not fit INT (-2147483648 to 2147483647)"),
        ("BIGINT", number("9223372036854775808"), "does not fit BIGINT"),
        ("BIGINT", number("9" * 1_000_000), "the number has 1000000 characters; the limit is 1000"),
        ("SMALLINT", "40000", "does not fit SMALLINT"),
        ("BOOLEAN", [], "an array is not a valid BOOLEAN"),
        ("BOOLEAN", "yes", "'yes' is not a valid BOOLEAN"),
        ("BOOLEAN", "Y", "'Y' is not a valid BOOLEAN"),
        ("BOOLEAN", "on", "'on' is not a valid BOOLEAN"),
        ("BOOLEAN", "t", "'t' is not a valid BOOLEAN"),
        ("BOOLEAN", "", "'' is not a valid BOOLEAN"),
        ("BOOLEAN", "1.0", "'1.0' is not a valid BOOLEAN"),
        ("BOOLEAN", number("0.5"), "0.5 is not a valid BOOLEAN"),
        ("BOOLEAN", number("1e-999999999"), "is not a valid BOOLEAN"),
        ("DECIMAL(10,2)", " 1.5", "' 1.5' is not a valid DECIMAL(10, 2)"),
        ("DECIMAL(10,2)", "123456789.12", "'123456789.12' does not fit DECIMAL(10, 2)"),
        ("DECIMAL(10,2)", "99999999.995", "does not fit"),
        ("DECIMAL(10,2)", "1e999999999", "does not fit"),
        ("DECIMAL(10,2)", "NaN", "'NaN' is not a valid DECIMAL(10, 2)"),
        ("DOUBLE", "nan", "'nan' is not a valid DOUBLE"),
        ("DOUBLE", "1e400", "'1e400' does not fit DOUBLE"),
        ("DOUBLE", number("-1e400"), "-1e400 does not fit DOUBLE"),
        ("FLOAT", "1e39", "'1e39' does not fit FLOAT"),
        ("FLOAT", number("-1e39"), "-1e39 does not fit FLOAT"),
        ("FLOAT", "3.4028236e38", "does not fit FLOAT"),
        ("FLOAT", 1e39, "1e+39 does not fit FLOAT"),
        ("DOUBLE", "1_0", "'1_0' is not a valid DOUBLE"),
        ("FLOAT", "", "'' is not a valid FLOAT"),
        ("STRING", "a\ud800b", "lone surrogate U+D800 at character 1"),
        ("STRING", {"a": "\udc00"}, "lone surrogate U+DC00"),
        ("DATE", "2020-02-30", "'2020-02-30' is not a day of the calendar"),
        ("DATE", "20200230", "is not a valid DATE such as 2020-05-13"),
        ("DATE", " 2020-02-29", "is not a valid DATE"),
        ("TIME", "24:00:01", "is not a time of day"),
        ("TIME", "24:00:00.1", "is not a time of day"),
        ("TIME", "12:60:00", "is not a time of day"),
        ("TIME", "12:30", "is not a valid TIME such as 12:38:35"),
        ("TIMESTAMP(3)", "2020-05-13T12:38:35", "such as 2020-05-13 12:38:35.477"),
        ("TIMESTAMP(3)", "0000-00-00 00:00:00", "is not a day of the calendar"),
        ("TIMESTAMP(3)", "2020-05-13 12:38:35Z", "is not a valid TIMESTAMP(3)"),
        ("TIMESTAMP(3)", "1970-01-01 00:00:00.1234567", "declare TIMESTAMP(9)"),
        ("TIMESTAMP(6)", "9999-12-31 24:00:00", "outside the years 1 to 9999"),
        ("TIMESTAMP_LTZ(3)", "2020-05-13 12:38:35", "such as 2020-05-13 12:38:35.477Z"),
        ("BINARY", "AQI", "is not base64"),
        ("BINARY", "AQ I=", "is not base64"),
        ("BINARY", number("12"), "12 is not a valid BINARY"),
    ],
)
def test_a_field_that_does_not_fit_is_refused_with_a_reason(
    sql_type: str, field: object, reason: str
) -> None:
    with pytest.raises(ValueError) as caught:
        convert(sql_type, field)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 250


def test_iso_timestamps_have_a_t_and_may_leave_the_seconds_out() -> None:
    assert convert("TIMESTAMP(3)", "1970-01-01T00:00:01.5", "iso") == 1_500_000
    assert convert("TIMESTAMP(3)", "1970-01-01T00:01", "iso") == 60_000_000
    assert convert("TIMESTAMP_LTZ(9)", "2020-05-13T12:38:35Z", "iso") == (
        "2020-05-13 12:38:35.000000000"
    )
    with pytest.raises(ValueError, match=r"2020-05-13T12:38:35\.477"):
        convert("TIMESTAMP(3)", "1970-01-01 00:00:01", "iso")


def test_there_is_one_nan_and_no_negative_zero() -> None:
    for field in ("NaN", "+NaN", float("nan")):
        assert convert("DOUBLE", field) is NAN
        assert convert("FLOAT", field) is NAN
    assert canonical_float(float("nan")) is NAN
    for field in ("-0.0", number("-0.0"), "-1e-999", -0.0):
        for sql_type in ("FLOAT", "DOUBLE"):
            value = convert(sql_type, field)
            assert isinstance(value, float) and math.copysign(1, value) == 1


def test_a_float_is_rounded_once_and_not_by_way_of_a_double() -> None:
    # Just above the middle of two 32-bit floats, by less than a double can tell.
    middle = Decimal(2**24 + 1)
    assert convert("FLOAT", str(middle)) == 2.0**24
    assert convert("FLOAT", str(middle + Decimal("1e-12"))) == 2.0**24 + 2
    assert convert("FLOAT", str(-middle - Decimal("1e-12"))) == -(2.0**24) - 2


@pytest.mark.parametrize(
    ("sql_type", "value", "rendered"),
    [
        ("BIGINT", 2**63 - 1, 2**63 - 1),
        ("DECIMAL(10,2)", -5, "-0.05"),
        ("DECIMAL(10,2)", 100_000, "1000.00"),
        ("DECIMAL(10,0)", 12, "12"),
        ("DATE", 18_321, "2020-02-29"),
        ("TIME", "12:38:35", "12:38:35"),
        ("TIME", "12:38:35.5", "12:38:35.5"),
        ("TIMESTAMP(3)", 1_589_373_515_477_000, "2020-05-13 12:38:35.477"),
        ("TIMESTAMP(3)", 1_589_373_515_000_000, "2020-05-13 12:38:35"),
        ("TIMESTAMP(6)", -1, "1969-12-31 23:59:59.999999"),
        ("TIMESTAMP(9)", "2020-05-13 12:38:35.100000000", "2020-05-13 12:38:35.1"),
        ("TIMESTAMP_LTZ(0)", 0, "1970-01-01 00:00:00Z"),
        ("TIMESTAMP_LTZ(9)", "2020-05-13 12:38:35.000000001", "2020-05-13 12:38:35.000000001Z"),
        ("BINARY", b"\x01\x02", "AQI="),
        ("DOUBLE", 0.1, 0.1),
        ("DOUBLE", math.inf, "Infinity"),
        ("FLOAT", -math.inf, "-Infinity"),
        ("FLOAT", NAN, "NaN"),
        ("FLOAT", 3.140000104904175, 3.14),
        ("FLOAT", 2.0**-149, 1e-45),
        ("STRING", None, None),
        ("DECIMAL(10,2)", None, None),
        ("BOOLEAN", True, True),
    ],
)
def test_a_value_is_rendered(sql_type: str, value: Value, rendered: object) -> None:
    assert render(value, SqlType.parse(sql_type)) == rendered


@pytest.mark.parametrize(
    ("sql_type", "field"),
    [("STRING", 5), ("STRING", number("5")), ("BOOLEAN", "true"), ("BOOLEAN", 1), ("INT", "x")],
)
def test_typed_json_is_not_guessed(sql_type: str, field: object) -> None:
    with pytest.raises(ValueError, match="is not a valid"):
        parse(field, SqlType.parse(sql_type))


# --- properties -----------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1)
_MICROS = st.datetimes().map(lambda moment: (moment - _EPOCH) // timedelta(microseconds=1))
_NANOS = st.builds(
    lambda moment, nanos: f"{moment.strftime('%Y').zfill(4)}{moment:-%m-%d %H:%M:%S}.{nanos:09d}",
    st.datetimes(),
    st.integers(0, 999_999_999),
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def _typed_values() -> st.SearchStrategy[tuple[SqlType, Value]]:
    def of(sql_type: str, values: st.SearchStrategy[Value]) -> st.SearchStrategy[Any]:
        return st.tuples(st.just(SqlType.parse(sql_type)), st.none() | values)

    integers = [
        of(kind, st.integers(*integer_range(SqlType.parse(kind))))
        for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT")
    ]
    return st.one_of(
        *integers,
        of("BOOLEAN", st.booleans()),
        of("STRING", _TEXT),
        of("BINARY", st.binary()),
        of("DECIMAL(38,38)", st.integers(-(10**38) + 1, 10**38 - 1)),
        of("DECIMAL(10,2)", st.integers(-(10**10) + 1, 10**10 - 1)),
        of("DECIMAL(20,0)", st.integers(-(10**20) + 1, 10**20 - 1)),
        of("DOUBLE", st.floats().map(canonical_float)),
        of("FLOAT", st.floats(width=32).map(canonical_float)),
        of("DATE", st.dates().map(lambda day: (day - date(1970, 1, 1)).days)),
        of("TIME", st.times().map(lambda moment: f"{moment:%H:%M:%S.%f}".rstrip("0").rstrip("."))),
        of("TIMESTAMP(3)", _MICROS),
        of("TIMESTAMP(6)", _MICROS),
        of("TIMESTAMP(9)", _NANOS),
        of("TIMESTAMP_LTZ(3)", _MICROS),
        of("TIMESTAMP_LTZ(9)", _NANOS),
    )


@examples(300)
@given(_typed_values())
def test_what_is_rendered_is_parsed_back_to_the_same_value(typed: tuple[SqlType, Value]) -> None:
    sql_type, value = typed
    text = json.dumps(renderer(sql_type)(value), allow_nan=False)
    back = parser(sql_type)(json.loads(text))
    exact = parser(sql_type)(json.loads(text, parse_float=JsonNumber, parse_int=JsonNumber))
    assert back is exact is NAN if value is NAN else (back, exact) == (value, value)
    assert type(back) is type(value)


@examples(150)
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-99, max_value=99))
def test_a_decimal_is_the_nearest_one_of_its_scale(exact: Decimal) -> None:
    units = convert("DECIMAL(10,2)", str(exact))
    assert isinstance(units, int)
    assert abs(Decimal(units).scaleb(-2) - exact) <= Decimal("0.005")


@examples(150)
@given(
    st.sampled_from(["INT", "DECIMAL(10,2)", "DOUBLE", "FLOAT", "DATE", "TIME", "TIMESTAMP(3)"]),
    st.text(max_size=30) | st.text("0123456789.eE+-: TZ", max_size=30),
)
def test_any_text_is_a_value_or_a_reason(sql_type: str, text: str) -> None:
    for field in (text, number(text)):
        try:
            convert(sql_type, field)
        except ValueError as error:
            assert str(error)


def test_text_that_breaks_off_is_refused_at_its_character() -> None:
    with pytest.raises(UnreadableError, match=r"Unterminated string starting at character 6$"):
        read_json(b'{"a": "b', 1_000)
