"""A source that repeats itself is noticed, and a healthy one is not."""

from __future__ import annotations

import random

import pytest

from jobs.core.rows.source_order import SourceOrder, as_stamps
from schemas.limits import SOURCE_ES_BACK_MS_MAX, SOURCE_ID_AFTER_RESTART_MAX

Stamps = list[tuple[int | None, int | None]]  # id and es of each message

SECOND_MS = 1_000


def order_of(stamps: Stamps, first_offset: int = 0) -> SourceOrder:
    order = SourceOrder()
    offsets = as_stamps(range(first_offset, first_offset + len(stamps)))
    order.observe(offsets, as_stamps(i for i, _ in stamps), as_stamps(es for _, es in stamps))
    return order


REPEATS: dict[str, Stamps] = {
    "a second of messages comes again": [(7, 70), (8, 71), (1, 70), (2, 71)],
    "the messages are of one second": [(7, 70), (8, 70), (1, 70), (2, 70)],
    "they have no time": [(7, None), (8, None), (1, None)],
    "without numbers, time goes back far": [(None, 90_000), (None, 90_000), (None, 1_000)],
    "the number is 0 in each": [(0, 90_000), (0, 95_000), (0, 1_000)],
}
HEALTHY: dict[str, Stamps] = {
    "one after the other": [(7, 70), (7, 70), (8, 71)],
    "canal was stopped, and nothing was repeated": [(7, 70), (8, 71), (1, 72), (2, 72)],
    "a long statement ends": [(7, 900_000), (8, 10_000), (9, 900_000)],
    "two canals that have run for long": [(900_000, 70), (50_000, 70), (900_001, 70)],
    "without numbers, time goes back a little": [(None, 70_000), (None, 70_000 - 10_000)],
    "it begins to number": [(None, 70), (1, 60)],
    "nothing is known": [(None, None), (None, None)],
}


@pytest.mark.parametrize("case", REPEATS)
def test_a_source_that_repeats_itself_is_noticed_at_the_first_repeated_message(case: str) -> None:
    stamps = REPEATS[case]
    order = order_of(stamps)
    assert (order.repeats, order.repeats_from) == (1, 2)
    # However the messages are cut into ranges and epochs.
    for cut in range(len(stamps) + 1):
        parts = order_of(stamps[:cut])
        parts.extend(order_of(stamps[cut:], cut))
        assert parts == order


@pytest.mark.parametrize("case", HEALTHY)
def test_a_healthy_source_raises_no_alarm(case: str) -> None:
    assert order_of(HEALTHY[case]).repeats == 0


def test_messages_that_the_job_reads_again_are_not_repeats_of_the_source() -> None:
    order = order_of([(7, 70), (8, 71), (9, 72)])
    order.extend(order_of([(7, 70), (8, 71)], first_offset=0))  # offsets were moved by hand
    assert order.repeats == 0


def test_each_restart_of_canal_is_counted_and_the_first_is_named() -> None:
    dice, stamps, begins = random.Random(4), Stamps(), list[int]()
    es = 0
    for _ in range(9):
        for number in range(1, dice.randrange(20, 200)):
            stamps += [(number, es // SECOND_MS * SECOND_MS)] * dice.randrange(1, 4)
            es += dice.randrange(200)
        begins.append(len(stamps))
        es -= dice.randrange(1, SECOND_MS)
    order = order_of(stamps)
    assert (order.repeats, order.repeats_from) == (8, begins[0])


def test_the_limits_are_those_of_the_rule() -> None:
    far = SOURCE_ID_AFTER_RESTART_MAX
    assert order_of([(far + 2, 70), (far + 1, 70)]).repeats == 0
    assert order_of([(far + 1, 70), (far, 70)]).repeats == 1
    back = SOURCE_ES_BACK_MS_MAX
    assert order_of([(None, back), (None, 0)]).repeats == 0
    assert order_of([(None, back + 1), (None, 0)]).repeats == 1
