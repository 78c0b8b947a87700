"""A source that repeats itself is noticed, and a healthy one is not."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from jobs.core.rows.source_order import OrderWatch, SourceOrder, as_stamps
from schemas.limits import SOURCE_ID_AFTER_RESTART_MAX, SOURCE_MESSAGES_SEEN_MAX
from schemas.table.epoch import SourceMemory
from tests.support.recordings import DIRECTORY, Recording

SECOND_MS = 1_000
Sent = tuple[int | None, int | None, str]  # id, seconds of es, and the row


def read(
    messages: Sequence[Sent], memory: SourceMemory | None = None, first: int = 0
) -> SourceOrder:
    """Return the order of a range of messages of canal."""
    watch = OrderWatch("canal-json", memory, first)
    times = [es and es * SECOND_MS for _, es, _ in messages]
    values = [
        json.dumps({"data": [row], "es": es, "id": id, "ts": at}).encode()
        for at, ((id, _, row), es) in enumerate(zip(messages, times, strict=True), first + 10_000)
    ]
    watch.observe(
        as_stamps(range(first, first + len(messages))),
        as_stamps(id for id, _, _ in messages),
        as_stamps(times),
        as_stamps(map(len, values)),
        values.__getitem__,
    )
    order = watch.finish()
    assert order is not None
    return order


def repeats(messages: list[Sent]) -> tuple[int, int | None]:
    """Return how often and from where the messages repeat themselves, however they are cut.

    A range may follow in a later epoch, or be read at the same time by another task.
    """
    whole = read(messages)
    for cut in range(1, len(messages)):
        first = read(messages[:cut])
        later = read(messages[cut:], first.memory, cut).follow(first.memory)
        assert first.repeats + later.repeats == whole.repeats
        assert (first.repeats_from or later.repeats_from) == whole.repeats_from
        stored = msgspec.json.decode(msgspec.json.encode(later.memory), type=SourceMemory)
        assert stored == later.memory
    return whole.repeats, whole.repeats_from


REPEATS: dict[str, list[Sent]] = {
    "a second comes again after a crash": [
        (7, 70, "a"),
        (8, 71, "b"),
        (1, 70, "a"),
        (2, 71, "b"),
        (3, 72, "c"),
    ],
    "it is all of one second": [(7, 70, "a"), (8, 70, "b"), (1, 70, "a"), (1, 70, "b")],
    "the last message of a partition": [(7, 70, "a"), (8, 71, "b"), (1, 71, "b")],
    "an older position after a short run, so that id goes on": [
        (44, 10, "a"),
        (45, 90, "b"),
        (139, 10, "a"),
        (140, 90, "b"),
    ],
    "a source without numbers": [
        (None, 10, "a"),
        (None, 90, "b"),
        (None, 10, "a"),
        (None, 90, "b"),
    ],
}
HEALTHY: dict[str, list[Sent]] = {
    "one after the other": [(7, 70, "a"), (7, 70, "b"), (8, 71, "c")],
    "canal was stopped, and nothing was repeated": [(7, 70, "a"), (1, 71, "b"), (2, 71, "c")],
    "it was stopped within a second": [(7, 70, "a"), (1, 70, "b"), (2, 71, "c"), (3, 72, "a")],
    "a long statement ends": [(7, 90, "a"), (8, 10, "b"), (8, 10, "c"), (9, 90, "d"), (9, 91, "e")],
    "one statement after the other is late": [(7, 70, "a"), (7, 69, "b"), (7, 70, "a")],
    "two canals that have run for long": [(90_000, 70, "a"), (50_000, 70, "b"), (90_001, 70, "a")],
    "the same row later": [(7, 90, "a"), (8, 10, "b"), (9, 91, "a")],
    "it begins to number": [(None, 70, "a"), (1, 70, "b")],
    "nothing is known of one": [(None, 70, "a"), (None, None, "b"), (None, 71, "c")],
}


@pytest.mark.parametrize("case", REPEATS)
def test_a_source_that_repeats_itself_is_noticed_from_the_first_repeated_message(case: str) -> None:
    assert repeats(REPEATS[case]) == (1, 2)


@pytest.mark.parametrize("case", HEALTHY)
def test_a_healthy_source_raises_no_alarm(case: str) -> None:
    assert repeats(HEALTHY[case]) == (0, None)


def test_messages_that_the_job_reads_again_are_not_repeats_of_the_source() -> None:
    order = read([(7, 70, "a"), (8, 90, "b"), (9, 90, "c")])
    again = read([(7, 70, "a"), (8, 90, "b")], order.memory)  # offsets were moved by hand
    assert (again.repeats, again.follow(order.memory)) == (0, again)


def test_a_long_repeat_is_noticed_before_it_ends() -> None:
    history: list[Sent] = [(number, number // 10, str(number)) for number in range(1, 2_000)]
    memory: SourceMemory | None = None
    first = 0
    for size in (500, 500, 500, 499):
        memory = read(history[first : first + size], memory, first).follow(memory).memory
        first += size
    for start in (0, 600):
        again = [((id or 0) + 10_000, es, row) for id, es, row in history[start : start + 1_000]]
        order = read(again, memory, first)
        assert (order.repeats, order.repeats_from) == (1, first)


def test_a_job_remembers_few_messages_from_all_of_the_history() -> None:
    memory: SourceMemory | None = None
    for epoch in range(1_000):
        memory = read([(epoch, epoch, "a")], memory, epoch).memory
    assert memory is not None
    times = [each.es // SECOND_MS for each in memory.seen]
    assert (len(times), times[0], times[-1]) == (SOURCE_MESSAGES_SEEN_MAX, 0, 999)
    assert max(b - a for a, b in pairwise(times)) < 900


def test_each_restart_of_canal_is_counted_and_the_first_is_named() -> None:
    dice = random.Random(4)
    binlog = [(at // 50, str(at)) for at in range(3_000)]
    sent: list[Sent] = []
    begins: list[int] = []
    position = 0
    for _ in range(9):
        end = position + dice.randrange(100, 300)
        sent += [(at + 1, *binlog[position + at]) for at in range(end - position)]
        begins.append(len(sent))
        position = end - dice.randrange(1, 50)
    assert repeats_of(sent, dice) == (8, begins[0])


def repeats_of(sent: list[Sent], dice: random.Random) -> tuple[int, int | None]:
    """Read messages in ranges of any size, one after the other."""
    memory: SourceMemory | None = None
    first, found, repeats_from = 0, 0, None
    while first < len(sent):
        part = sent[first : first + dice.randrange(1, 400)]
        order = read(part, memory, first).follow(memory)
        memory, found = order.memory, found + order.repeats
        repeats_from = repeats_from or order.repeats_from
        first += len(part)
    return found, repeats_from


def test_ranges_that_are_read_at_the_same_time_count_a_repeat_once() -> None:
    history: list[Sent] = [(at + 1, at // 10, str(at)) for at in range(600)]
    middle: SourceMemory | None = None
    for at in range(0, len(history), 100):  # each range leaves a message by which to know it
        middle = read(history[at : at + 100], middle, at).follow(middle).memory
    again = [((id or 0) + 10_000, es, row) for id, es, row in history[:550]]
    memory: SourceMemory | None = middle
    found, start = 0, len(history)
    for at in range(0, len(again), 200):  # three tasks, which all start from the same memory
        order = read(again[at : at + 200], middle, start + at).follow(memory)
        memory, found = order.memory, found + order.repeats
        assert order.repeats_from in (None, start)
    assert found == 1
    assert memory is not None and memory.counted  # so that the next epoch does not count it either


def test_a_restart_after_which_time_goes_on_is_not_behind() -> None:
    order = read([(7, 70, "a"), (1, 71, "b"), (2, 71, "c")])
    assert (order.repeats, order.memory.behind) == (0, None)


def test_the_limit_of_a_restart_is_that_of_the_rule() -> None:
    far = SOURCE_ID_AFTER_RESTART_MAX
    again: list[Sent] = [(far + 2, 70, "a"), (far + 1, 70, "a")]
    assert repeats(again) == (0, None)
    assert repeats([(far + 1, 70, "a"), (far, 70, "a")]) == (1, 1)


@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.gz")), ids=lambda path: path.name)
@pytest.mark.parametrize("size", [7, 40, 1_000])
def test_a_real_canal_repeats_itself_in_each_partition_where_it_was_set_back(
    path: Any, size: int
) -> None:
    recording = Recording.load(path)
    for texts in recording.partitions:
        sent = [(json.loads(text), text.encode()) for text in texts]
        rows = [(message, value) for message, value in sent if message["data"]]
        memory: SourceMemory | None = None
        found = 0
        for first in range(0, len(rows), size):
            part = rows[first : first + size]
            watch = OrderWatch("canal-json", memory, first)
            watch.observe(
                as_stamps(range(first, first + len(part))),
                as_stamps(message["id"] for message, _ in part),
                as_stamps(message["es"] for message, _ in part),
                as_stamps(len(value) for _, value in part),
                lambda at, part=part: part[at][1],  # type: ignore[misc]
            )
            order = watch.finish()
            assert order is not None
            memory, found = order.follow(memory).memory, found + order.repeats
        assert found == recording.repeats
