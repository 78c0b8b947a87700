"""Types of columns: from MySQL's types, from a schema of Kafka Connect, and from values alone."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jobs.core.suggestion.column_types import Use, guess_column


@pytest.mark.parametrize(
    ("mysql", "kind", "use"),
    [
        ("bigint(20)", "BIGINT", Use.MEASURE),
        ("bigint(20) unsigned", "DECIMAL(20, 0)", Use.MEASURE),
        ("BIGINT UNSIGNED ZEROFILL", "DECIMAL(20, 0)", Use.MEASURE),
        ("int(10) unsigned zerofill", "BIGINT", Use.MEASURE),
        ("int", "INT", Use.MEASURE),
        ("tinyint(4)", "TINYINT", Use.MEASURE),
        ("tinyint(1)", "TINYINT", Use.FLAG),  # which may be -1, 2 and 127 as well
        ("decimal(12,4)", "DECIMAL(12, 4)", Use.MEASURE),
        ("decimal(65,30)", "DECIMAL(38, 30)", Use.MEASURE),
        ("decimal", "DECIMAL(10, 0)", Use.MEASURE),
        ("double precision", "DOUBLE", Use.MEASURE),
        ("float(7,3) unsigned", "FLOAT", Use.MEASURE),
        ("year(4)", "SMALLINT", Use.FLAG),
        ("bit(1)", "BIGINT", Use.FLAG),
        ("bit(64)", "DECIMAL(20, 0)", Use.FLAG),
        ("varchar(255)", "STRING", Use.LABEL),
        ("enum('a','b')", "STRING", Use.CATEGORY),
        ("enum('" + "a" * 60_000 + "')", "STRING", Use.CATEGORY),
        ("set('a','b')", "STRING", Use.NONE),
        ("json", "STRING", Use.NONE),
        ("mediumtext", "STRING", Use.NONE),
        ("geometry", "STRING", Use.NONE),
        ("blob", "BINARY", Use.NONE),
        ("binary(16)", "BINARY", Use.NONE),
    ],
)
def test_a_type_of_mysql_has_one_that_holds_all_of_its_values(
    mysql: str, kind: str, use: Use
) -> None:
    found = guess_column(mysql, ["1"])
    assert (found.type, found.use) == (kind, use)


@pytest.mark.parametrize(
    ("mysql", "value", "kind"),
    [
        ("datetime", "2026-01-31 12:00:00", "TIMESTAMP(0)"),
        ("timestamp(6)", "2026-01-31 12:00:00.123456", "TIMESTAMP(6)"),
        ("datetime", "0000-00-00 00:00:00", "STRING"),
        ("datetime", "2026-00-31 00:00:00", "STRING"),
        ("date", "2026-01-31", "DATE"),
        ("date", "0000-00-00", "STRING"),
        ("time(3)", "23:59:59.999", "TIME"),
        ("time", "24:00:00", "STRING"),
        ("time", "838:59:59", "STRING"),
        ("time", "-01:00:00", "STRING"),
        ("date", None, "DATE"),
    ],
)
def test_dates_that_no_calendar_has_and_times_beyond_a_day_stay_text(
    mysql: str, value: str | None, kind: str
) -> None:
    assert guess_column(mysql, [value, None]).type == kind


@pytest.mark.parametrize(
    ("name", "plain", "value", "kind"),
    [
        ("org.apache.kafka.connect.data.Decimal", "bytes", "AJY=", "DECIMAL(20, 4)"),
        ("io.debezium.time.Date", "int32", 18_395, "DATE"),
        ("io.debezium.time.Timestamp", "int64", 1_589_373_515_477, "TIMESTAMP(3)"),
        ("io.debezium.time.MicroTimestamp", "int64", 1_589_373_515_477_000, "TIMESTAMP(6)"),
        ("io.debezium.time.NanoTimestamp", "int64", 1_589_373_515_477_000_000, "TIMESTAMP(9)"),
        ("org.apache.kafka.connect.data.Timestamp", "int64", 1, "TIMESTAMP(3)"),
        ("io.debezium.time.ZonedTimestamp", "string", "2020-05-13T12:38:35Z", "TIMESTAMP_LTZ(6)"),
        ("io.debezium.time.MicroTime", "int64", 45_515_000_000, "TIME"),
        ("io.debezium.time.MicroTime", "int64", 90_000_000_000, "BIGINT"),
        ("io.debezium.time.Year", "int32", 2026, "INT"),
        ("io.debezium.data.Enum", "string", "paid", "STRING"),
        ("io.debezium.data.Bits", "bytes", "fA==", "BINARY"),
        (None, "bytes", "fA==", "BINARY"),
        (None, "int16", 7, "SMALLINT"),
        (None, "int64", 7, "BIGINT"),
        (None, "double", 7.5, "DOUBLE"),
        (None, "boolean", True, "BOOLEAN"),
        (None, "string", "x", "STRING"),
        (None, "struct", {"a": 1}, "STRING"),
    ],
)
def test_a_schema_in_the_message_names_the_types(
    name: str | None, plain: str, value: Any, kind: str
) -> None:
    parameters = {"scale": "4", "connect.decimal.precision": "20"}
    described = {"field": "v", "type": plain, "name": name, "parameters": parameters}
    assert guess_column(described, [value]).type == kind


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        ([1, 2], "INT"),
        ([1, 3_000_000_000], "BIGINT"),
        ([1, 2.5], "DOUBLE"),
        ([True, None], "BOOLEAN"),
        (["1.50", "2"], "DECIMAL(18, 2)"),
        (["2026-01-31 12:00:00.123"], "TIMESTAMP(3)"),
        (["2026-01-31T12:00:00"], "TIMESTAMP(0)"),
        (["2026-01-31"], "DATE"),
        (["2026-99-31"], "STRING"),
        (["2026-W01-1"], "STRING"),
        (["0000-00-00"], "STRING"),
        (["12", "x"], "STRING"),
        (["-"], "STRING"),
        (["\u0661"], "STRING"),  # a digit, but not of ASCII
        ([{"a": 1}], "STRING"),
        ([None], "STRING"),
    ],
)
def test_types_without_a_description_come_from_the_values(seen: list[Any], kind: str) -> None:
    assert guess_column(None, seen).type == kind


@pytest.mark.parametrize(
    "text",
    ["int(" + " " * 900_000 + "x", "(" * 900_000, "int(" + "9," * 400_000, "a " * 400_000],
    ids=("blanks", "brackets", "numbers", "words"),
)
def test_a_hostile_description_takes_no_longer_than_reading_it(text: str) -> None:
    began = time.process_time()
    for values in (["1"], [text], [text[::-1]]):
        guess_column(text, values)
        guess_column({"type": text, "name": text, "parameters": {"scale": text}}, values)
    assert time.process_time() - began < 1.0
