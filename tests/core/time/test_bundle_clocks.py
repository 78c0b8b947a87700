"""Mini-batch assigners: the marks of a clock, and input watermarks thinned to boundaries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.core.time.bundle_clocks import WATERMARK_MAX, EventTimeAssigner, ProcessingTimeAssigner
from schemas.table.epoch import END_OF_TIME
from tests.support.examples import examples


def test_processing_time_marks_of_flinks_own_test() -> None:
    """Interval 100: records, the clock at 100 and at 200."""
    assigner = ProcessingTimeAssigner(100)
    assert assigner.pass_time(0) is None  # a record asks as well
    assert assigner.pass_time(100) == 100
    assert assigner.pass_time(100) is None
    assert assigner.pass_time(200) == 200


def test_a_row_that_crosses_a_boundary_brings_the_mark_before_the_timer() -> None:
    assigner = ProcessingTimeAssigner(100, now=30)
    assert assigner.next_timer == 130
    assert assigner.pass_time(117) == 100
    assert assigner.pass_time(131) is None
    assert assigner.next_timer == 200
    assert assigner.pass_time(555) == 500
    assert assigner.next_timer == 600


def test_event_time_marks_of_flinks_own_test() -> None:
    """Interval 5: a watermark goes on as it is when it has reached 4, 9, 14, ...; then the end."""
    assigner = EventTimeAssigner(5)
    came = (2, 3, 4, 5, 6, 10, 12, 15, 16, 19, 20, 21)
    went = [on for time in came if (on := assigner.pass_watermark(time)) is not None]
    assert went == [4, 10, 15, 19]
    assert assigner.finish() == 21


def test_the_end_of_time_ends_a_bundle_wherever_its_boundary_is() -> None:
    assigner = EventTimeAssigner(7_000_000)
    assert assigner.pass_watermark(12) is None
    for _ in range(2):  # rows that come after the end are not withheld either
        assert assigner.pass_watermark(END_OF_TIME) == END_OF_TIME
    assert assigner.finish() is None


def test_at_4_with_interval_5_the_next_boundary_is_9() -> None:
    assigner = EventTimeAssigner(5)
    assert assigner.pass_watermark(4) == 4
    assert [assigner.pass_watermark(time) for time in (8, 9)] == [None, 9]


def test_the_maximum_goes_on_once_and_drops_what_was_held_back() -> None:
    assigner = EventTimeAssigner(50)
    assert assigner.pass_watermark(2) is None
    assert assigner.pass_watermark(WATERMARK_MAX) == WATERMARK_MAX
    assert assigner.pass_watermark(WATERMARK_MAX) is None
    assert assigner.pass_watermark(77) is None
    assert assigner.finish() is None


def test_lower_watermarks_and_an_end_without_any_say_nothing() -> None:
    assert EventTimeAssigner(5).finish() is None
    assigner = EventTimeAssigner(5)
    assert assigner.pass_watermark(10) == 10
    assert assigner.pass_watermark(7) is None
    assert assigner.finish() is None
    assert EventTimeAssigner(1).pass_watermark(0) == 0  # every millisecond is a boundary


@examples(100)
@given(st.integers(1, 20), st.lists(st.integers(-30, 200), max_size=30))
def test_what_goes_on_rises_and_no_boundary_is_passed_over(interval: int, came: list[int]) -> None:
    assigner = EventTimeAssigner(interval)
    last: int | None = None
    for time in came:
        on = assigner.pass_watermark(time)
        kept = EventTimeAssigner(interval)
        kept.restore(assigner.snapshot())
        assigner = kept
        if on is not None:
            assert on == time
            assert last is None or on > last
            last = on
        if last is not None and time > last:  # swallowed: no boundary lies between
            assert (time + 1) // interval <= (last + 1) // interval
    end = assigner.finish()
    assert end is None or last is None or end > last
