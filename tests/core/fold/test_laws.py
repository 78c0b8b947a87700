"""Each law lets through what is right, unchanged, and stops at what breaks it."""

from __future__ import annotations

import math

import pytest

from jobs.core.fold.laws import (
    BrokenLaw,
    messages_conserved,
    repeats_the_last_row,
    rows_conserved,
    well_formed,
)
from jobs.core.values.change import Op

INSERT, BEFORE, AFTER, DELETE = Op.INSERT, Op.UPDATE_BEFORE, Op.UPDATE_AFTER, Op.DELETE
Changelog = list[tuple[Op, str, int]]


def test_a_well_formed_bundle_passes_unchanged() -> None:
    changelog: Changelog = [(INSERT, "a", 1), (BEFORE, "b", 1), (AFTER, "b", 2), (DELETE, "c", 3)]
    assert list(well_formed(changelog)) == changelog
    assert list(well_formed([])) == []


@pytest.mark.parametrize(
    ("changelog", "message"),
    [
        ([(AFTER, "a", 1)], "without a -U directly before"),
        ([(BEFORE, "a", 1)], "ends the bundle without its"),
        ([(BEFORE, "a", 1), (AFTER, "b", 2)], r"followed by \+U of 'b'"),
        ([(BEFORE, "a", 1), (DELETE, "a", 1)], "followed by -D of 'a'"),
        ([(BEFORE, "a", 1), (INSERT, "b", 1), (AFTER, "a", 2)], r"followed by \+I of 'b'"),
        ([(INSERT, "a", 1), (DELETE, "a", 1)], "changes twice"),
        ([(DELETE, "a", 1), (INSERT, "a", 1)], "changes twice"),
        ([(BEFORE, "a", 1), (AFTER, "a", 2), (DELETE, "a", 2)], "changes twice"),
    ],
)
def test_a_bundle_that_is_not_well_formed_is_stopped(changelog: Changelog, message: str) -> None:
    with pytest.raises(BrokenLaw, match=message):
        list(well_formed(changelog))


def test_a_retraction_repeats_the_last_row_of_its_key() -> None:
    table = {"b": (1.5, math.nan), "c": (2.0, None)}
    changelog = [
        (INSERT, "a", (1.0, 1.0)),
        (BEFORE, "b", (1.5, float("nan"))),  # another NaN, the same row
        (AFTER, "b", (0.0, 0.0)),
        (DELETE, "c", (2.0, None)),
    ]
    assert list(repeats_the_last_row(table.get, changelog)) == changelog


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((INSERT, "there", 2), "already exists"),
        ((DELETE, "there", 2), "the last row is 1"),
        ((BEFORE, "there", 2), "the last row is 1"),
        ((DELETE, "nowhere", 1), "the last row is None"),
        ((DELETE, "there", True), "the last row is 1"),  # equal in Python, not the same row
    ],
)
def test_a_row_that_contradicts_the_last_one_is_stopped(
    change: tuple[Op, str, int], message: str
) -> None:
    with pytest.raises(BrokenLaw, match=message):
        list(repeats_the_last_row({"there": 1}.get, [change]))


def test_every_message_and_every_row_is_accounted_for() -> None:
    messages_conserved("t/0", 10, decoded=6, skipped=1, filtered=1, quarantined=2)
    assert rows_conserved(10, 7, filters=True) == 3
    assert rows_conserved(10, 20, filters=False, copies=2) == 0
    with pytest.raises(BrokenLaw, match="t/0: 10 messages were read"):
        messages_conserved("t/0", 10, decoded=6, skipped=1, filtered=1, quarantined=1)
    for arrived, filters, copies in ((11, True, 1), (9, False, 1), (19, True, 2)):
        with pytest.raises(BrokenLaw, match=f"10 weighted rows were sent, {arrived} arrived"):
            rows_conserved(10, arrived, filters=filters, copies=copies)
