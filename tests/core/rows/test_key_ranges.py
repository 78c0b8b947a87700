"""The ranges of a snapshot have each key once, whatever tasks read them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.rows.key_ranges import KeyRange, cut_part, is_plain

KEYS = st.integers(-(2**40), 2**40)
COUNTS = st.integers(1, 9)


@given(KEYS, st.integers(0, 50), COUNTS, COUNTS, st.lists(KEYS | st.integers(-60, 60), max_size=30))
def test_each_key_is_in_one_range_of_one_part(
    low: int, width: int, parts: int, tasks: int, keys: list[int]
) -> None:
    ranges = [
        each for part in range(parts) for each in cut_part(low, low + width, parts, part, tasks)
    ]
    inside = [*keys, low, low + width, low - 1, low + width + 1]
    for key in inside:
        holding = [each for each in ranges if _has(each, key)]
        assert len(holding) == 1, (key, ranges)


@given(KEYS, st.integers(0, 1_000), COUNTS, COUNTS, COUNTS)
def test_a_part_has_the_same_keys_with_other_tasks(
    low: int, width: int, parts: int, tasks: int, others: int
) -> None:
    def bounds(tasks: int) -> list[tuple[Any, Any]]:
        found = []
        for part in range(parts):
            ranges = cut_part(low, low + width, parts, part, tasks)
            found.append((ranges[0].after, ranges[-1].until) if ranges else (0, 0))
        return found

    keys = range(low - 1, low + width + 2)
    for one, other in zip(bounds(tasks), bounds(others), strict=True):
        assert [key for key in keys if _has(KeyRange(*one), key)] == [
            key for key in keys if _has(KeyRange(*other), key)
        ]


def test_the_conditions_of_all_ranges_select_each_row_once() -> None:
    """Also one without a key, which must be found so that the job can refuse it."""
    rows = "SELECT NULL::BIGINT AS id UNION ALL SELECT range FROM range(-5, 30)"
    ranges = [each for part in range(3) for each in cut_part(0, 20, 3, part, 2)]
    found = [
        id
        for each in ranges
        for (id,) in duckdb.execute(
            f"SELECT id FROM ({rows}) WHERE {each.condition('id')}"
        ).fetchall()
    ]
    assert sorted(found, key=str) == sorted([None, *range(-5, 30)], key=str)
    (whole,) = cut_part(1, 9, 1, 0, 1)
    assert duckdb.execute(f"SELECT * FROM ({rows}) WHERE {whole.condition('id')}").fetchall()


@pytest.mark.parametrize("collation", ["", "COLLATE NOCASE", "COLLATE NOACCENT", "COLLATE de"])
def test_ranges_of_texts_have_each_key_once_whatever_the_order_of_the_database_is(
    collation: str,
) -> None:
    keys = ["", " ", "a", "A", "Ä", "ab", "a b", "b", "B'b", "z\\", "日", "😀", None, "a", "B"]
    database = duckdb.connect()
    if collation.endswith("de"):
        try:
            database.execute("LOAD icu")
        except duckdb.Error as absent:
            pytest.skip(f"no ICU in this DuckDB: {absent}")
    database.execute(f"CREATE TABLE t (place INT, k VARCHAR {collation})")
    database.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(keys)))
    for bounds in (["A", "b"], ["a", "b", "z"], [" "], []):
        assert all(map(is_plain, bounds))
        found = [
            at
            for each in pairwise([None, *bounds, None])
            for (at,) in database.execute(
                f"SELECT place FROM t WHERE {KeyRange(*each).condition('k')}"
            ).fetchall()
        ]
        assert sorted(found) == list(range(len(keys))), bounds


@pytest.mark.parametrize(
    "text", ["", "o'clock", "a\\", "a?", "{d}", "ä", "a\n", "\x7f", "x" * 1_001]
)
def test_a_text_that_databases_read_differently_is_no_bound(text: str) -> None:
    assert not is_plain(text)
    assert is_plain("x" * 1_000) and is_plain('A-9_.:"@/ +~')


def _has(each: KeyRange, key: int) -> bool:
    after, until = each
    assert not isinstance(after, str) and not isinstance(until, str)
    return (after is None or key > after) and (until is None or key <= until)
