"""The time of a job, as the driver uses it: ranges observed, time passed, signals out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.time.combine import Signal, Status
from jobs.core.time.job_time import JobTime
from schemas.spec.watermark import Watermark
from schemas.table.epoch import END_OF_TIME, TimeSnapshot
from tests.support.examples import examples

ACTIVE, IDLE = Status.ACTIVE, Status.IDLE


def job_time(*partitions: int, topics: Sequence[str] = ("t",), **section: Any) -> JobTime:
    time = JobTime(dict.fromkeys(topics, Watermark.model_validate(section)))
    for topic in topics:
        for partition in partitions:
            time.add(topic, partition)
    return time


def stored(time: JobTime) -> TimeSnapshot:
    """Return the snapshot as a restarted driver reads it."""
    return msgspec.json.decode(msgspec.json.encode(time.snapshot()), type=TimeSnapshot)


def pass_all(time: JobTime, *moments: int) -> list[Signal]:
    return [signal for now in moments for signal in time.pass_time(now)]


# --- epochs ---------------------------------------------------------------------------------------


def test_the_watermark_is_the_minimum_over_the_partitions_at_the_end_of_the_epoch() -> None:
    time = job_time(0, 1, delay="1s")
    assert time.observe("t", 0, 9_000, 5) == []
    assert time.pass_time(1_000) == []
    assert time.observe("t", 1, 7_000, 1) == []
    assert time.pass_time(2_000) == [5_999]
    assert (time.watermark, time.status) == (5_999, ACTIVE)
    assert time.pass_time(3_000) == []


def test_a_partition_that_appears_joins_and_is_waited_for() -> None:
    time = job_time(0)
    time.observe("t", 0, 100, 1)
    assert time.pass_time(1_000) == [99]
    time.observe("t", 1, 50, 1)
    time.observe("t", 0, 300, 1)
    assert time.pass_time(2_000) == []
    time.observe("t", 1, 200, 1)
    assert time.pass_time(3_000) == [199]


def test_marks_speak_at_once_and_the_periodic_emission_stays_silent() -> None:
    time = job_time(0, generator="punctuated", marker="TRUE", delay="1s")
    assert time.observe_row("t", 0, 8_000, {}, 8_000, marked=True) == [7_000]
    assert time.observe_row("t", 0, 9_000, {}, None, marked=False) == []
    assert time.pass_time(5_000) == []


def test_emission_keeps_its_beat_however_often_time_passes() -> None:
    time = job_time(0, emit_every="1s")
    seen = []
    for now in (100, 600, 1_099, 1_100, 1_900, 2_400, 3_100):
        time.observe("t", 0, now, 1)
        seen.append(time.pass_time(now))
    assert seen == [[99], [], [], [1_099], [], [2_399], [3_099]]
    assert time.wakes_at == 4_100


def test_a_clock_that_goes_back_stands_still() -> None:
    time = job_time(generator="lag", delay="1s")
    time.add("t", 0)
    assert time.pass_time(5_000) == [4_000]
    assert time.pass_time(1_000) == []
    assert time.now == 5_000


def test_records_without_a_time_are_heard_and_say_nothing() -> None:
    time = job_time(0, idle_after="1s")
    assert pass_all(time, 0, 1_001) == [IDLE]
    assert time.observe("t", 0, None, 3) == [ACTIVE]
    assert pass_all(time, 2_000, 2_200) == []
    assert time.watermark is None


# --- idleness -------------------------------------------------------------------------------------


def test_a_silent_partition_is_let_go_and_its_next_record_makes_it_active() -> None:
    time = job_time(0, 1, idle_after="1s")
    time.observe("t", 1, 500, 1)
    signals = []
    for now in range(0, 2_001, 200):
        time.observe("t", 0, now, 1)
        signals += time.pass_time(now)
    assert signals == [-1, 199, 399, 499, 1_399, 1_599, 1_799, 1_999]
    assert [each.idle for each in time.list_partitions()] == [False, True]
    time.observe("t", 1, 600, 1)
    time.observe("t", 0, 9_999, 1)
    assert time.pass_time(2_200) == []  # it holds the others again
    assert [each.partition for each in time.list_holding()] == [1]


def test_a_partition_with_unread_records_is_not_idle_and_wakes_up_for_them() -> None:
    time = job_time(0, idle_after="1s")
    time.observe("t", 0, 10, 1)
    assert time.pass_time(0) == [9]
    time.observe("t", 0, None, 0, unread=True)
    assert pass_all(time, 200, 5_000, 9_000) == []
    time.observe("t", 0, None, 0)
    assert pass_all(time, 9_200, 10_201) == [IDLE]
    assert time.observe("t", 0, None, 0, unread=True) == [ACTIVE]


def test_a_paused_partition_does_not_turn_idle() -> None:
    time = job_time(0, idle_after="1s")
    time.observe("t", 0, 10, 1)
    assert pass_all(time, 0, 200) == [9]
    time.pause("t", 0)
    assert pass_all(time, 5_000, 10_000) == []
    time.resume("t", 0)
    assert pass_all(time, 10_500, 11_001) == [IDLE]


def test_topics_meet_in_a_valve() -> None:
    """A topic that comes back behind does not hold the others, as a partition would."""
    time = job_time(0, topics=("a", "b"), idle_after="1s")
    time.observe("a", 0, 100, 1)
    time.observe("b", 0, 200, 1)
    assert time.pass_time(0) == [99]
    for now in (200, 400, 1_000, 1_401):
        time.observe("b", 0, 1_000 + now, 1)
        time.pass_time(now)
    assert time.watermark == 2_400
    time.observe("a", 0, 150, 1)
    time.observe("b", 0, 5_000, 1)
    assert time.pass_time(1_600) == [4_999]


# --- alignment ------------------------------------------------------------------------------------

ALIGN = {"group": "g", "max_drift": "1s", "every": "1s"}


def test_who_is_ahead_is_not_read_until_the_others_have_caught_up() -> None:
    time = job_time(0, 1, align=ALIGN)
    time.observe("t", 0, 10_000, 1)
    time.observe("t", 1, 1_000, 1)
    assert time.pass_time(900) == [999]
    assert time.paused == frozenset()  # no maximum was told yet
    time.pass_time(1_000)
    assert time.paused == {("t", 0)}
    time.observe("t", 1, 9_500, 1)
    assert time.pass_time(1_500) == [9_499]
    assert time.paused == {("t", 0)}  # until the next maximum
    time.pass_time(2_000)
    assert time.paused == frozenset()


def test_other_jobs_of_the_group_limit_this_one() -> None:
    time = job_time(0, align=ALIGN)
    time.observe("t", 0, 10_000, 1)
    time.pass_time(1_000, others={"g": [42]})
    assert time.active_watermarks("g") == [9_999]
    assert time.paused == {("t", 0)}
    time.pass_time(2_000)  # nobody else is there any more
    assert time.paused == frozenset()


def test_who_waits_for_the_group_is_not_idle_and_who_is_idle_holds_nobody() -> None:
    time = job_time(0, 1, align=ALIGN, idle_after="3s")
    time.observe("t", 0, 90_000, 1)
    time.observe("t", 1, 1_000, 1)
    pass_all(time, 0, 200)
    for now in range(1_000, 20_000, 200):
        time.observe("t", 1, 1_000 + now // 10, 1)
        time.pass_time(now)
    ahead, slow = time.list_partitions()
    assert (ahead.paused, ahead.idle, slow.paused) == (True, False, False)
    for now in range(20_000, 26_000, 200):
        time.pass_time(now)
    assert [each.idle for each in time.list_partitions()] == [False, True]
    assert time.paused == frozenset()
    assert time.watermark == 89_999


# --- what a person is told ------------------------------------------------------------------------


def test_it_says_what_the_watermark_waits_for() -> None:
    time = job_time(0, 1, 2, idle_after="60s")
    for partition in (0, 1):
        time.observe("t", partition, 1_000, 1)
    pass_all(time, 1_000, 1_200)
    assert [str(each) for each in time.list_holding()] == [
        "t partition 2, no record yet, idle in 60 s"
    ]
    time.observe("t", 2, 5_000, 1)
    time.observe("t", 0, 6_000, 1)
    pass_all(time, 1_400, 42_000)
    assert [str(each) for each in time.list_holding()] == [
        "t partition 1, silent for 41 s, idle in 19 s"
    ]
    time.observe("t", 1, None, 0, unread=True)
    assert str(time.list_holding()[0]) == "t partition 1, silent for 41 s, with unread records"
    assert str(job_time(0).list_holding()[0]) == (
        "t partition 0, no record yet, never idle (there is no idle_after)"
    )


def test_never_is_like_no_idle_after() -> None:
    time = job_time(0, 1, idle_after="never")
    time.observe("t", 0, 5_000, 1)
    pass_all(time, 1_000, 10_000_000)
    assert [each.idle for each in time.list_partitions()] == [False, False]
    assert time.watermark is None


# --- restarts -------------------------------------------------------------------------------------


def test_silence_goes_on_after_a_restart_without_the_time_in_between() -> None:
    time = job_time(0, idle_after="1s")
    time.observe("t", 0, 10, 1)
    pass_all(time, 0, 200, 900)
    later = job_time(idle_after="1s")
    later.restore(stored(time), now=1_000_000)
    assert pass_all(later, 1_000_300, 1_000_500) == [IDLE]
    assert later.watermark == 9


def test_a_snapshot_says_what_the_job_said() -> None:
    time = job_time(0, 1, idle_after="1s")
    time.observe("t", 0, 10, 1)
    time.pass_time(7)
    assert msgspec.to_builtins(time.snapshot()) == {
        "now": 7,
        "status": "active",
        "topics": {
            "t": {
                "emitted": 7,
                "partitions": {
                    "0": {"seen": 10, "watermark": 9, "heard_ms": 0},
                    "1": {"silent_ms": 0},
                },
            }
        },
    }


# --- laws -----------------------------------------------------------------------------------------

SECTIONS: list[dict[str, Any]] = [
    {"delay": "3ms"},
    {"idle_after": "5ms", "emit_every": "2ms"},
    {"idle_after": "4ms", "align": {"group": "g", "max_drift": "6ms", "every": "3ms"}},
    {"generator": "punctuated", "marker": "TRUE", "delay": "2ms", "idle_after": "7ms"},
    {"generator": "lag", "delay": "5ms", "emit_every": "3ms"},
    {"time": "ingestion", "emit_every": "3ms", "idle_after": "9ms"},
]
places = st.tuples(st.sampled_from("ab"), st.integers(0, 1))
actions = st.one_of(
    st.tuples(st.just("observe"), places, st.integers(0, 60), st.booleans()),
    st.tuples(st.just("unread"), places, st.booleans()),
    st.tuples(st.sampled_from(["pause", "resume", "remove", "add"]), places),
    st.tuples(st.just("pass"), st.integers(0, 6)),
    st.just(("end",)),
)


def act(time: JobTime, action: tuple[Any, ...]) -> list[Signal]:
    there = {(each.topic, each.partition) for each in time.list_partitions()}
    match action:
        case ("pass", ms):
            return time.pass_time(time.now + ms)
        case ("end",):
            return time.end()
        case ("add", place):
            return time.add(place[0], place[1])
        case (_, place, *_) if place not in there:
            return []
        case ("observe", place, latest, marked):
            return time.observe_row(place[0], place[1], latest, {}, latest, marked=marked)
        case ("unread", place, unread):
            return time.observe(place[0], place[1], None, 0, unread=unread)
        case (name, place):
            getattr(time, name)(*place)
    return []


@examples(80)
@given(st.sampled_from(SECTIONS), st.lists(actions, max_size=40))
def test_a_restart_after_any_step_changes_nothing(
    section: dict[str, Any], history: list[tuple[Any, ...]]
) -> None:
    steady = job_time(0, 1, topics=("a", "b"), **section)
    restarted = job_time(0, 1, topics=("a", "b"), **section)
    for action in history:
        assert act(steady, action) == act(restarted, action)
        state = stored(restarted)
        restarted = JobTime(dict.fromkeys("ab", Watermark.model_validate(section)))
        restarted.restore(state)
        assert restarted.list_partitions() == steady.list_partitions()
        assert (restarted.snapshot(), restarted.wakes_at) == (steady.snapshot(), steady.wakes_at)


@examples(80)
@given(st.sampled_from(SECTIONS), st.lists(actions, max_size=40))
def test_watermarks_rise_and_never_pass_an_active_partition(
    section: dict[str, Any], history: list[tuple[Any, ...]]
) -> None:
    time = job_time(0, 1, topics=("t",), **section)
    last: int | None = None
    for action in history:
        moved = [("t", place[1]) if isinstance(place, tuple) else place for place in action]
        for signal in act(time, tuple(moved)):
            if isinstance(signal, Status):
                continue
            assert last is None or signal > last
            last = signal
            views = time.list_partitions()
            active = [each.watermark for each in views if not each.idle]
            known = [each.watermark for each in views if each.watermark is not None]
            if not active:
                assert signal == max(known)
            assert all(at is not None and signal <= at for at in active)
    assert time.watermark == last


@examples(60)
@given(
    st.lists(st.lists(st.integers(0, 1_000), min_size=1, max_size=8), min_size=1, max_size=4),
    st.sampled_from([{}, {"generator": "punctuated", "marker": "TRUE", "delay": "7ms"}]),
    st.data(),
)
def test_any_interleaving_of_partitions_ends_in_the_same_watermark(
    partitions: list[list[int]], section: dict[str, Any], data: st.DataObject
) -> None:
    ends = set()
    for _ in range(2):
        time = job_time(*range(len(partitions)), **section)
        waiting = [list(times) for times in partitions]
        while any(waiting):
            number = data.draw(st.sampled_from([n for n, left in enumerate(waiting) if left]))
            latest = waiting[number].pop(0)
            time.observe_row("t", number, latest, {}, latest, marked=True)
            if data.draw(st.booleans()):
                time.pass_time(time.now + 200)
        time.pass_time(time.now + 200)
        ends.add(time.watermark)
    assert len(ends) == 1


@examples(40)
@given(
    st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=4),
    st.sampled_from([None, "3s"]),
)
def test_alignment_never_comes_to_a_standstill(steps: list[list[int]], idle: str | None) -> None:
    """Whoever is not paused is read; so all is read in the end, whatever the distances, be it
    between the partitions of a topic or between topics."""
    align = {"group": "g", "max_drift": "10ms", "every": "1s"}
    section: dict[str, Any] = {"align": align} | ({"idle_after": idle} if idle else {})
    places = [("ab"[number % 2], number) for number in range(len(steps))]
    time = job_time(topics=sorted({topic for topic, _ in places}), **section)
    waiting = [[sum(each[: n + 1]) for n in range(len(each))] for each in steps]
    # A partition that ends holds the others for good, and rightly; so all end at the same time.
    end = 10 + max((times[-1] for times in waiting if times), default=0)
    waiting = [[*times, end] for times in waiting]
    for place in places:
        time.add(*place)
    for _ in range(sum(map(len, waiting)) * 3 + 10):
        if not any(waiting):
            break
        for (topic, number), left in zip(places, waiting, strict=True):
            if left and (topic, number) not in time.paused:
                time.observe(topic, number, left.pop(0), 1, unread=bool(left))
        time.pass_time(time.now + 500)
    assert not any(waiting)
    assert time.watermark == end - 1


def test_a_generator_of_ones_own_takes_part() -> None:
    from jobs.core.time.watermark_generators import PartitionGenerator

    class EveryTenth(PartitionGenerator):
        __slots__ = ()

        def _candidate(self, now: int) -> int | None:
            return None if self.seen is None else self.seen // 10 * 10

    spec = Watermark.model_validate({"generator": {"class": "my.marks:EveryTenth"}})
    time = JobTime({"t": spec}, make=lambda _: EveryTenth())
    time.observe("t", 0, 57, 1)
    assert time.pass_time(0) == [50]
    with pytest.raises(ValueError, match=r"my\.marks:EveryTenth"):
        JobTime({"t": spec}).add("t", 0)


def two_strategies(**other: Any) -> JobTime:
    """Return the time of a job whose topics a and b have strategies of their own."""
    first = Watermark.model_validate({"delay": "1ms", "exact": True})
    time = JobTime({"a": first, "b": Watermark.model_validate(other)})
    time.add("a", 0)
    time.add("b", 0)
    return time


def test_each_topic_has_its_generator_and_the_job_their_minimum() -> None:
    marker = {"generator": "punctuated", "marker": "TRUE", "delay": "5ms"}
    time = two_strategies(**marker)
    time.observe("a", 0, 100, 1)
    assert time.emit() == []  # b has no mark yet
    assert time.observe_row("b", 0, 80, {}, 80, marked=True) == [75]
    assert time.observe_row("b", 0, 120, {}, 120, marked=True) == [99]


def test_only_the_topic_with_idleness_becomes_idle() -> None:
    time = two_strategies(idle_after="1s")
    time.observe("a", 0, 100, 1)
    time.observe("b", 0, 10, 1)
    assert pass_all(time, 0, 200, 1_000) == [9]
    assert pass_all(time, 1_400) == [99]  # a would wait for ever
    assert [(each.topic, each.idle) for each in time.list_partitions()] == [
        ("a", False),
        ("b", True),
    ]


def test_each_topic_emits_as_often_as_its_section_says() -> None:
    time = two_strategies(emit_every="1s", exact=True)
    time.observe("a", 0, 10, 1)
    time.observe("b", 0, 10, 1)
    assert (time.pass_time(0), time.wakes_at) == ([9], 200)
    time.observe("a", 0, 90, 1)
    time.observe("b", 0, 90, 1)
    assert (time.pass_time(200), time.wakes_at) == ([10], 400)  # b has emitted 10 only
    assert pass_all(time, 400, 600, 800, 1_000) == [89]


def test_each_topic_may_be_ahead_of_its_group_by_a_drift_of_its_own() -> None:
    near, far = ({"group": "g", "max_drift": ms, "every": "1s"} for ms in ("10ms", "1m"))
    sections = {"a": {"align": near}, "b": {"align": far}, "c": {"align": near}, "d": {}}
    time = JobTime({topic: Watermark.model_validate(each) for topic, each in sections.items()})
    for topic, latest in {"a": 100, "b": 100, "c": 10, "d": 5_000}.items():
        time.observe(topic, 0, latest, 1)
    pass_all(time, 0, 1_000)
    assert time.paused == {("a", 0)}
    time.observe("c", 0, 95, 1)
    pass_all(time, 2_000, 3_000)
    assert time.paused == frozenset()


def test_topics_of_different_groups_do_not_wait_for_each_other() -> None:
    sections = {
        topic: Watermark.model_validate(
            {"align": {"group": topic, "max_drift": "10ms", "every": "1s"}}
        )
        for topic in "ab"
    }
    time = JobTime(sections)
    time.observe("a", 0, 5_000, 1)
    time.observe("b", 0, 10, 1)
    time.pass_time(1_000)
    assert time.paused == frozenset()
    time.pass_time(2_000, others={"a": [100]})
    assert time.paused == {("a", 0)}


# --- the progress of another job ------------------------------------------------------------------


def test_a_topic_follows_the_job_that_writes_it_and_not_its_rows() -> None:
    time = two_strategies(**{"from": "progress", "delay": "5ms"})
    time.observe("a", 0, 100, 1)
    time.observe("b", 0, 1_000, 1)
    assert time.emit() == []
    assert time.follow("b", 60, idle=False) == [55]
    assert time.follow("b", 50, idle=False) == []  # the other job was rewound
    assert time.follow("b", 200, idle=False) == [99]


def test_a_followed_topic_is_idle_while_its_job_is_and_records_do_not_wake_it() -> None:
    time = two_strategies(**{"from": "progress"})
    time.observe("a", 0, 100, 1)
    time.emit()
    assert time.follow("b", 60, idle=True) == [60, 99]
    time.observe("b", 0, 70, 1)
    time.observe("a", 0, 200, 1)
    assert time.emit() == [199], "its job says that it is idle"
    assert time.follow("b", 70, idle=False) == []
    time.observe("a", 0, 300, 1)
    assert time.emit() == [299], "it counts again when it has caught up"
    time.follow("b", 310, idle=False)
    time.observe("a", 0, 400, 1)
    assert time.emit() == [310]


def test_a_followed_topic_goes_on_after_a_restart() -> None:
    time = two_strategies(**{"from": "progress"})
    time.observe("a", 0, 100, 1)
    time.follow("b", 60, idle=True)
    time.emit()
    restarted = two_strategies(**{"from": "progress"})
    restarted.restore(stored(time))
    assert restarted.list_partitions() == time.list_partitions()
    assert restarted.follow("b", 60, idle=True) == []


# --- the end of time ------------------------------------------------------------------------------


def test_after_the_end_no_watermark_follows_also_after_a_restart() -> None:
    time = job_time(0, 1, idle_after="20ms", delay="5ms")
    time.observe("t", 0, 100, 1)
    assert time.end() == [END_OF_TIME], "partition 1 had no record"
    restarted = job_time(idle_after="20ms", delay="5ms")
    restarted.restore(stored(time))
    for each in (time, restarted):
        each.observe("t", 1, 300, 1)
        pass_all(each, 10, 60, 120)
        assert each.list_holding() == []
        assert each.watermark == END_OF_TIME


def test_a_followed_topic_passes_the_end_on_without_its_delay() -> None:
    time = two_strategies(**{"from": "progress", "delay": "5ms"})
    time.observe("a", 0, 100, 1)
    time.emit()
    assert time.follow("b", END_OF_TIME, idle=False) == [99]
    time.observe("a", 0, 200, 1)
    assert time.emit() == [199], "the other topic goes on"
    assert time.end() == [END_OF_TIME]


def test_what_has_ended_neither_waits_for_its_group_nor_holds_it() -> None:
    align = {"group": "g", "max_drift": "10ms", "every": "1ms"}
    time = two_strategies(**{"from": "progress"}, align=align)
    time.follow("b", END_OF_TIME, idle=False)
    assert time.active_watermarks("g") == []
    time.advance(5, {"g": [100]})
    assert time.paused == frozenset()
