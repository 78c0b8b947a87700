"""Generators: what one partition's times make of its watermark."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.time.watermark_generators import (
    Automatic,
    Bounded,
    Lag,
    PartitionGenerator,
    Punctuated,
    make_generator,
)
from schemas.spec.watermark import Watermark
from tests.support.examples import examples

# Flink's own tests of BoundedOutOfOrderness (delay 10) and of ascending timestamps (delay 0).
FLINKS = [
    (10, [1337], 1326),
    (10, [12345, 12300, 12340, 12280], 12334),
    (10, [723456], 723445),
    (0, [1337], 1336),
    (0, [12345, 12340], 12344),
]
DAY = 1_551_169_000_000
TIMES = [DAY + at for at in (50000, 64001, 54000, 64002, 100000, 79003, 79004, 108000)]


@pytest.mark.parametrize(("delay", "times", "watermark"), FLINKS)
def test_a_bounded_watermark_is_the_greatest_time_less_the_delay_and_one(
    delay: int, times: list[int], watermark: int
) -> None:
    bounded = Bounded(delay)
    assert all(bounded.event(time) is None for time in times)
    assert bounded.emit(0) == watermark
    assert bounded.emit(0) is None  # the same again is no news


def test_nothing_comes_before_the_first_event() -> None:
    for each in (Bounded(10), Bounded(0, exact=True), Punctuated(0)):
        assert each.emit(10**12) is None
        assert each.event(None) is None  # an event without a time says nothing either
        assert each.emit(10**12) is None


def test_periodic_emission_of_the_worked_example() -> None:
    """Asked after each event: max - 0, and what repeats does not go out again."""
    exact = Bounded(0, exact=True)
    found = []
    for time in TIMES:
        exact.event(time)
        found += [exact.emit(0), exact.emit(0)]
    risen = [at - DAY for at in found if at is not None]
    assert risen == [50000, 64001, 64002, 100000, 108000]


def test_punctuation_of_the_worked_example() -> None:
    punctuated = Punctuated(3_000)
    found = [punctuated.event(time, marked=True) for time in TIMES]
    assert [at and at - DAY for at in found] == [
        47000,
        61001,
        None,
        61002,
        97000,
        None,
        None,
        105000,
    ]
    assert punctuated.emit(DAY) is None


def test_only_a_marked_event_speaks_and_it_speaks_for_all_before_it() -> None:
    punctuated = Punctuated(1)
    assert punctuated.event(100) is None
    assert punctuated.event(40, marked=True) == 99
    assert punctuated.event(200) is None
    assert punctuated.event(99, marked=True) == 199


def test_the_last_mark_of_a_range_does_not_speak_for_what_follows_it() -> None:
    punctuated = Punctuated(0)
    assert punctuated.observe(latest=500, marked=300, now=0) == 300
    assert punctuated.observe(latest=None, marked=None, now=0) is None
    assert punctuated.event(1, marked=True) == 500


def test_lag_follows_the_clock_and_no_event() -> None:
    lag = Lag(1_000)
    assert lag.emit(5_000) == 4_000
    assert lag.event(99_999) is None
    assert lag.emit(5_000) is None
    assert lag.emit(4_000) is None  # nor a clock that goes back
    assert lag.emit(5_001) == 4_001


def test_ingestion_times_move_in_steps_and_never_include_the_present() -> None:
    """Sources with clocks of their own step together, and a row of this millisecond is not late."""
    automatic = Automatic(200)
    assert automatic.emit(150) == 0
    assert automatic.emit(200) is None
    assert automatic.emit(201) == 200
    assert automatic.event(7, now=650) == 600  # a record need not wait for the timer
    assert automatic.emit(700) is None


@pytest.mark.parametrize(
    ("section", "kind", "watermark"),
    [
        ({}, Bounded, 9_999),
        ({"delay": "2s"}, Bounded, 7_999),
        ({"delay": "2s", "exact": True}, Bounded, 8_000),
        ({"generator": "monotonous"}, Bounded, 9_999),
        ({"generator": "punctuated", "marker": "TRUE", "delay": "2s"}, Punctuated, None),
        ({"generator": "lag", "delay": "3s"}, Lag, 17_000),
        ({"time": "ingestion"}, Automatic, 19_800),
        ({"time": "ingestion", "generator": "bounded"}, Bounded, 9_999),
    ],
)
def test_the_spec_names_the_generator(
    section: dict[str, object], kind: type[PartitionGenerator], watermark: int | None
) -> None:
    made = make_generator(Watermark.model_validate(section))
    assert type(made) is kind
    made.event(10_000)
    assert made.emit(20_000) == watermark


events = st.tuples(st.integers(-(10**6), 10**6) | st.none(), st.booleans())


@examples(100)
@given(
    st.sampled_from(
        [lambda: Bounded(5), lambda: Punctuated(5), lambda: Lag(5), lambda: Automatic(7)]
    ),
    st.lists(events, max_size=30),
)
def test_no_generator_goes_backwards_and_a_snapshot_goes_on(
    make: Callable[[], PartitionGenerator], history: list[tuple[int | None, bool]]
) -> None:
    made = make()
    given_out: list[int] = []
    for number, (time, marked) in enumerate(history):
        for watermark in (made.event(time, marked, number), made.emit(number)):
            given_out += [] if watermark is None else [watermark]
        before, made = made.snapshot(), make()
        made.restore(before)
        assert made.snapshot() == before
    assert given_out == sorted(set(given_out))
