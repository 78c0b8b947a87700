"""Combining watermarks: who counts, what is flushed, and when a status goes on.

Flink's own outputs are in tests/oracle/test_watermark_vectors.py; here is what they do not show.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.core.time.combine import Multiplexer, Signal, Status, StatusWatermarkValve
from tests.support.examples import examples

ACTIVE, IDLE = Status.ACTIVE, Status.IDLE


def multiplexer(*names: str) -> Multiplexer[str]:
    found: Multiplexer[str] = Multiplexer()
    for name in names:
        found.register(name)
    return found


def test_two_inputs_are_the_minimum_of_both() -> None:
    inputs = multiplexer("left", "right")
    assert inputs.advance_at_once("left", 10) == []
    assert inputs.advance_at_once("right", 4) == [4]
    assert inputs.advance_at_once("right", 12) == [10]
    assert inputs.advance_at_once("left", 11) == [11]


def test_a_partition_that_comes_back_behind_makes_the_source_active_at_once() -> None:
    """FLINK-40504: there neither a watermark nor ACTIVE went out, and its rows looked late."""
    partitions = multiplexer("a", "b")
    assert partitions.advance_at_once("a", 5) == []
    partitions.advance("b", 9)
    assert partitions.combine() == [5]
    partitions.mark_idle("a")
    partitions.mark_idle("b")
    assert partitions.combine() == [9, IDLE]
    assert partitions.combine() == []  # once
    assert partitions.advance_at_once("a", 7) == [ACTIVE]
    assert partitions.last == 9
    assert partitions.advance_at_once("a", 12) == [12]


def test_a_partition_that_comes_back_behind_holds_the_others() -> None:
    partitions = multiplexer("a", "b")
    partitions.advance("a", 5)
    partitions.mark_idle("a")
    partitions.advance("b", 100)
    assert partitions.combine() == [100]
    partitions.mark_active("a")
    partitions.advance("b", 200)
    assert partitions.combine() == []
    assert partitions.find_slowest() == ["a"]
    assert partitions.advance_at_once("a", 150) == [150]


def test_an_input_that_comes_back_behind_does_not_count_until_it_has_caught_up() -> None:
    valve = StatusWatermarkValve(["a", "b"])
    valve.advance("a", 5)
    assert valve.apply("a", [IDLE]) == []
    assert valve.apply("b", [100]) == [100]
    assert valve.apply("a", [ACTIVE, 50]) == []
    assert valve.find_slowest() == ["b"]
    assert valve.advance("b", 200) == [200]
    assert valve.advance("a", 200) == []
    assert valve.advance("b", 300) == []
    assert valve.find_slowest() == ["a"]


def test_no_members_say_nothing_and_the_next_one_makes_it_active() -> None:
    """FLINK-39586: there the source stayed idle for ever."""
    partitions = multiplexer("a")
    partitions.advance("a", 5)
    partitions.mark_idle("a")
    assert partitions.combine() == [5, IDLE]
    partitions.unregister("a")
    assert partitions.combine() == []
    partitions.register("b")
    assert partitions.combine() == [ACTIVE]
    assert partitions.find_slowest() == ["b"]


steps = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2), st.integers(0, 30)),
        st.tuples(st.integers(0, 2), st.sampled_from(Status)),
    ),
    max_size=40,
)


@examples(150)
@given(steps)
def test_the_valve_is_monotone_below_the_active_minimum_and_says_each_status_once(
    history: list[tuple[int, Signal]],
) -> None:
    valve = StatusWatermarkValve(range(3))
    own: dict[int, int] = {}
    idle: set[int] = set()
    out: list[Signal] = []
    for channel, what in history:
        if isinstance(what, Status):
            given_out = valve.set_status(channel, what)
            (idle.add if what is IDLE else idle.discard)(channel)
        else:
            given_out = valve.advance(channel, what)
            if channel not in idle:
                own[channel] = max(what, own.get(channel, what))
        for watermark in given_out:
            if not isinstance(watermark, Status) and len(idle) < 3:
                counting = [c for c in range(3) if c not in idle and valve.members[c].counts]
                assert watermark <= min(own[c] for c in counting)
        out += given_out
    watermarks = [each for each in out if not isinstance(each, Status)]
    statuses = [each for each in out if isinstance(each, Status)]
    assert watermarks == sorted(set(watermarks))
    assert statuses == [IDLE, ACTIVE] * (len(statuses) // 2) + [IDLE] * (len(statuses) % 2)
    assert (valve.status is IDLE) == (len(idle) == 3)
    if len(idle) == 3 and own:
        assert valve.last == max(own.values())
