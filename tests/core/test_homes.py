"""Homes of buckets: even, kept, and moved once if executors die, join or leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.homes import Homes, Placement, Slot, assign_homes
from schemas.limits import SMALL_EPOCHS_IN_HOMES_MAX

NAMES = "abcdefgh"
CLUSTERS = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 4), min_size=1)
BUCKETS = st.integers(1, 70)


def slots_of(executors: Mapping[str, int]) -> list[Slot]:
    return [Slot(number, name) for name, count in executors.items() for number in range(count)]


@given(BUCKETS, st.lists(CLUSTERS, min_size=1, max_size=6))
def test_homes_are_even_and_alive_and_move_only_if_they_must(
    buckets: int, clusters: list[dict[str, int]]
) -> None:
    homes: tuple[Slot, ...] = ()
    for executors in clusters:
        before, slots = homes, slots_of(executors)
        homes = assign_homes(before, slots, buckets)
        assert len(homes) == buckets and set(homes) <= set(slots)
        sizes = Counter(homes)
        counts = [sizes[slot] for slot in slots]
        assert max(counts) - min(counts) <= 1
        assert assign_homes(homes, slots, buckets) == homes, "nothing moves without a reason"
        old = set(before)
        for left, now in zip(before, homes, strict=False):
            # From a slot that is gone, or to one that had nothing: never between two that stay.
            assert left == now or left not in slots or now not in old


@given(BUCKETS, CLUSTERS, st.data())
def test_only_the_buckets_of_a_dead_executor_move(
    buckets: int, executors: dict[str, int], data: st.DataObject
) -> None:
    dead = data.draw(st.sampled_from(sorted(executors)))
    left = {name: count for name, count in executors.items() if name != dead}
    if not left:
        return
    before = assign_homes((), slots_of(executors), buckets)
    after = assign_homes(before, slots_of(left), buckets)
    moved = {bucket for bucket in range(buckets) if before[bucket] != after[bucket]}
    assert moved == {bucket for bucket in range(buckets) if before[bucket].executor == dead}
    # One of another name takes the place: what moves now goes there, and no more than its share.
    back = assign_homes(after, slots_of(left | {"new": executors[dead]}), buckets)
    came = [now for was, now in zip(after, back, strict=True) if was != now]
    assert all(slot.executor == "new" for slot in came)
    assert len(came) <= executors[dead] * -(-buckets // sum(executors.values()))


@given(BUCKETS, CLUSTERS)
def test_a_placement_runs_each_bucket_in_one_task_of_its_executor(
    buckets: int, executors: dict[str, int]
) -> None:
    homes = Homes(buckets)
    homes.observe(executors)
    placement = homes.place(5)
    if len(executors) == 1:
        assert placement == Placement(5)
        return
    divided = placement.divide(range(buckets))
    assert sorted(bucket for own in divided for bucket in own) == list(range(buckets))
    assert len(placement.executors) == placement.tasks == min(buckets, sum(executors.values()))
    tasks = placement.find_tasks(np.arange(buckets)).tolist()
    for number, own in enumerate(divided):
        assert own and [tasks[bucket] for bucket in own] == [number] * len(own)
        assert {homes.slots[bucket].executor for bucket in own} == {placement.executors[number]}
    running = Counter(placement.executors)
    assert all(running[name] <= count for name, count in executors.items())


def test_small_epochs_share_one_executor_unless_large_ones_come_between() -> None:
    homes = Homes(8)
    assert homes.place(2) == Placement(2), "no executor is known: any task runs anywhere"
    homes.observe({"a": 1, "b": 1})
    many = homes.place(2)
    assert (many.tasks, many.executors) == (2, ("a", "b"))
    for _ in range(SMALL_EPOCHS_IN_HOMES_MAX - 1):
        assert homes.place(1) == many == homes.current
    one = homes.place(1)
    assert one == homes.current == Placement(1, (), ("a",))
    homes.observe({})  # a moment in which Spark knows none
    assert homes.place(1) == one
    homes.observe({"a": 1, "b": 1, "c": 1})
    assert homes.place(1) == one, "its home stays"
    assert set(homes.place(3).executors) == {"a", "b", "c"}
    homes.observe({"b": 1})
    assert homes.place(3) == Placement(3), "with one executor there is nothing to choose"


def test_a_new_job_of_small_epochs_begins_with_one_task() -> None:
    homes = Homes(8)
    homes.observe({"a": 2, "b": 2})
    assert homes.place(1).tasks == 1
    assert homes.place(4).tasks == 4
