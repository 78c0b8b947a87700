"""Durations and sizes, as users write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.limits import COUNT_MAX, DURATION_MS_MAX
from schemas.spec.duration import duration_text, parse_count, parse_duration


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("200ms", 200),
        ("5s", 5_000),
        ("1m", 60_000),
        ("1 min", 60_000),
        ("600 s", 600_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("7 days", 604_800_000),
        ("1.5s", 1_500),
        (" 10 Seconds ", 10_000),
        ("0s", 0),
        ("0", 0),
        (0, 0),
    ],
)
def test_duration_is_read_as_milliseconds(written: object, milliseconds: int) -> None:
    assert parse_duration(written) == milliseconds


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("5 parsecs", "unknown unit 'parsecs'"),
        ("fast", "is not a duration"),
        ("1:30", "is not a duration"),
        ("5s5s", "is not a duration"),
        ("\u0665s", "is not a duration"),
        ("9" * 400 + "d", "is not a duration"),
        ("", "is not a duration"),
        ("0.5ms", "whole number of milliseconds"),
        ("-1s", "must not be negative"),
        (-1, "must not be negative"),
        ("-1", "must not be negative"),
        (5, "5 has no unit; write it like 5s or 5ms"),
        ("250", "250 has no unit; write it like 250s or 250ms"),
        ("0.5", "0.5 has no unit"),
        ("40000d", "must be at most"),
        (True, "must be a duration"),
        (1.5, "must be a duration"),
        (None, "must be a duration"),
        ([5], "must be a duration"),
    ],
)
def test_what_is_no_duration_is_refused_with_the_reason(written: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_duration(written)


@given(st.integers(0, DURATION_MS_MAX))
def test_written_duration_reads_back_as_the_same(milliseconds: int) -> None:
    assert parse_duration(duration_text(milliseconds)) == milliseconds


def test_duration_is_written_in_the_largest_unit_that_holds_it() -> None:
    assert duration_text(604_800_000) == "7d"
    assert duration_text(90_000) == "90s"
    assert duration_text(1_001) == "1001ms"


def test_count_takes_digits_with_underscores() -> None:
    assert parse_count("500_000") == 500_000
    assert parse_count(1) == 1


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (0, "greater than 0"),
        (-5, "greater than 0"),
        ("-5", "greater than 0"),
        (True, "whole number"),
        (1.0, "whole number"),
        ("5k", "whole number"),
        ("1__0", "whole number"),
        (COUNT_MAX + 1, "at most"),
    ],
)
def test_what_is_no_count_is_refused_with_the_reason(written: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_count(written)
