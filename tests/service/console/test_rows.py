"""Rows on pages: addresses that lead back to their groups, and directions of changes."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import unquote

import pytest

from jobs.core.explain.extreme_changes import source_text
from jobs.core.sql.select import parse_query
from jobs.reading.group_key import parse_key_text
from jobs.reading.row_shape import RowShape
from schemas.types.sql_types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, decimal, timestamp
from service.console.pages.quarantine import dump_hex
from service.console.pictures.value_chart import draw_value
from service.console.rows import compare_rows, encode_key, label_key

COLUMNS = {
    "s": STRING,
    "i": INT,
    "b": BIGINT,
    "f": DOUBLE,
    "d": decimal(30, 2),
    "o": BOOLEAN,
    "at": timestamp(3),
    "day": DATE,
}


def shape(*group: str) -> RowShape:
    names = ", ".join(group)
    return RowShape(
        parse_query(f"SELECT {names}, MAX(i) AS top FROM t GROUP BY {names}", COLUMNS), safe=True
    )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("s", "bolt"),
        ("s", ""),
        ("s", None),
        ("s", "."),
        ("s", ".."),
        ("s", "{}"),
        ("s", "a/b?#%"),
        ("s", "<b>&amp;"),
        ("s", "ü 中"),
        ("s", '"'),
        ("s", "null"),
        ("i", -7),
        ("i", None),
        ("b", 2**60),
        ("f", -0.5),
        ("f", math.inf),
        ("d", 123456789012345678901234567),
        ("o", True),
        ("o", None),
        ("at", 1_767_344_414_380_000),
        ("day", 20_455),
    ],
)
def test_an_address_leads_back_to_its_group(column: str, value: Any) -> None:
    of = shape(column)
    part = encode_key(of.key((value,)))
    assert "/" not in part and part not in ("", ".", "..")
    assert parse_key_text(unquote(part), of.group) == (value,)


def test_a_group_of_several_columns_has_an_address_too() -> None:
    of = shape("s", "i")
    assert parse_key_text(unquote(encode_key(of.key(("a/b", None)))), of.group) == ("a/b", None)
    windowed = shape("s", "at")
    key = ("bolt", 1_767_344_414_380_000)
    assert parse_key_text(unquote(encode_key(windowed.key(key))), windowed.group) == key
    assert label_key(of.key(("a/b", None))) == "s=a/b, i=NULL"


def test_a_group_is_named_by_its_value() -> None:
    named = [label_key({"s": value}) for value in ("bolt", "", None, 7)]
    assert named == ["bolt", "(empty)", "NULL", "7"]
    assert label_key({}) == "all rows"


def test_directions_of_numbers_are_exact() -> None:
    of = RowShape(
        parse_query(
            "SELECT s, MAX(d) AS d, MAX(b) AS b, MIN(i) AS i, MAX(s) AS t FROM t GROUP BY s",
            COLUMNS,
        ),
        safe=True,
    )
    before = {"s": "x", "d": "9.00", "b": str(2**60 + 1), "i": 3, "t": "b"}
    after = {"s": "x", "d": "10.00", "b": str(2**60), "i": None, "t": "a"}
    assert [(each.column, each.direction) for each in compare_rows(of, before, after)] == [
        ("d", "up"),
        ("b", "down"),
        ("i", "other"),
        ("t", "other"),
    ]
    assert compare_rows(of, None, after) == []


def test_source_offsets_are_in_the_order_of_partitions() -> None:
    read = {"shop.product": {"10": [1_200, 1_310], "2": [0, 3]}}
    assert source_text(read) == "shop.product/2 [0, 3), /10 [1200, 1310)"
    assert source_text({}) == ""


def test_a_value_stays_until_an_epoch_changes_it() -> None:
    chart = draw_value("top", [(0, 998), (10, 991)], 20, extremes={10}, here=10)
    assert chart is not None
    high, low = chart.path[len("M0.0 ") :].partition("H")[0], chart.path.rpartition(" ")[2]
    assert chart.path == f"M0.0 {high}H300.0L300.0 {low.partition('H')[0]}H600.0"
    assert float(high) < float(low.partition("H")[0])
    assert chart.extremes.startswith("M300.0 ") and chart.here == "M300.0 0V120"
    assert (chart.least, chart.greatest, chart.now) == (991, 998, 991)


def test_null_is_a_gap_in_a_course() -> None:
    chart = draw_value("top", [(0, "1.50"), (5, None), (8, "2.50")], 10)
    assert chart is not None and chart.path.count("M") == 2
    assert draw_value("top", [(0, None), (5, "NaN")], 10) is None


def test_a_steady_course_is_a_line_in_the_middle() -> None:
    chart = draw_value("top", [(3, 7)], 3)
    assert chart is not None and chart.path == "M0.0 60.0H0.0"


def test_bytes_are_told_as_people_read_them() -> None:
    assert dump_hex(b"\xffbolt" + bytes(14)).splitlines() == [
        "00000000  ff 62 6f 6c 74 00 00 00 00 00 00 00 00 00 00 00  .bolt...........",
        "00000010  00 00 00                                         ...",
    ]
