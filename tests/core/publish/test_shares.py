"""Shares of a topic's partitions: each row is published by one of them, over every hand-over."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.publish.protocol import NOTHING, Configuration, Position, Progress, TopicPosition
from jobs.core.publish.shares import (
    EVERYTHING,
    find_floors,
    find_positions,
    forget_share_positions,
    hand_over,
    place_progress,
    still_ahead,
)
from schemas.table.changelog import SHARES_SUFFIX, shares_topic
from tests.support.examples import examples

EPOCHS, SEQS = range(3, 7), range(6)
ROWS = [(epoch, seq) for epoch in EPOCHS for seq in SEQS]


def at(epoch: int, seq: int = -1) -> Position:
    return (epoch, seq, f"uuid {epoch - 1}")


def progress(position: Position, **fields: object) -> Progress:
    return msgspec.structs.replace(Progress(writer="w", watermark=9).move_to(position), **fields)


positions = st.builds(at, st.sampled_from(EPOCHS), st.integers(-1, SEQS[-1]))


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[Progress]]:
    """Partitions, and shares of them of which share 0 is in the oldest epoch."""
    partitions = draw(st.integers(1, 7))
    count = draw(st.integers(1, partitions))
    helpers = draw(st.lists(positions, min_size=count - 1, max_size=count - 1))
    oldest = min((epoch for epoch, *_ in helpers), default=EPOCHS[-1])
    own = draw(positions.filter(lambda position: position[0] <= oldest) | st.just(NOTHING))
    return partitions, [progress(each) for each in (own, *helpers)]


def published(
    shares: list[Progress], partitions: int, partition_of: dict[tuple[int, int], int]
) -> list[tuple[int, int]]:
    """The rows that the shares publish from here on, as `PublisherProcess` picks them."""
    found = []
    for share, own in enumerate(shares):
        for epoch in EPOCHS:
            if own.covers(epoch):
                continue
            floors = find_floors(own, epoch, share, len(shares), partitions)
            for seq in SEQS:
                partition = partition_of[epoch, seq]
                if seq > own.seq_reached(epoch) and (floors is None or seq > floors[partition]):
                    found.append((epoch, seq))
    return sorted(found)


@examples(60)
@given(histories(), st.lists(st.integers(1, 7), max_size=4), st.data())
def test_a_hand_over_publishes_the_missing_rows_once(
    history: tuple[int, list[Progress]], counts: list[int], data: st.DataObject
) -> None:
    partitions, shares = history
    rows = st.fixed_dictionaries({row: st.integers(0, partitions - 1) for row in ROWS})
    partition_of = data.draw(rows)
    reached = find_positions(shares, partitions)
    missing = [row for row in ROWS if row > reached[partition_of[row]][:2]]
    assert published(shares, partitions, partition_of) == missing
    for count in counts:
        shares = hand_over(shares, min(count, partitions), partitions)
        assert find_positions(shares, partitions) == reached
        assert published(shares, partitions, partition_of) == missing
        # Share 0 covers nothing that a partition lacks.
        assert (shares[0].next_epoch or 0) <= max(0, min(epoch for epoch, *_ in reached))


def test_one_publisher_writes_what_it_always_wrote() -> None:
    for position in (NOTHING, at(5), at(5, 3)):
        before = progress(position)
        assert hand_over([before], 1, 4) == [before]
        written = msgspec.json.decode(msgspec.json.encode(before))
        assert not {"publishers", "ahead"} & set(written)
        assert find_floors(before, 5, 0, 1, 4) is None


def test_two_become_one_and_a_record_says_which_partitions_are_ahead() -> None:
    one, two = hand_over([progress(at(5, 2)), progress(at(7))], 2, 3)
    assert (one.publishers, two.publishers) == (2, 2)
    assert (one.ahead, two.ahead) == (msgspec.UNSET, msgspec.UNSET)
    (alone,) = hand_over([one, two], 1, 3)
    assert (alone.epoch, alone.seq, alone.complete) == (5, 2, False)
    assert (alone.publishers, alone.ahead) == (msgspec.UNSET, {1: at(7)})
    assert find_floors(alone, 5, 0, 1, 3) == [-1, EVERYTHING, -1]
    assert find_floors(alone, 7, 0, 1, 3) == [-1, -1, -1]
    read = msgspec.json.decode(msgspec.json.encode(alone), type=Progress)
    assert read == alone
    assert (alone.watermark, alone.writer) == (9, "w")
    assert [still_ahead(alone, epoch) for epoch in (5, 6)] == [{1: at(7)}, msgspec.UNSET]


def test_what_is_ahead_inside_an_epoch_stays_until_the_epoch_is_over() -> None:
    (alone,) = hand_over([progress(at(5)), progress(at(5, 4))], 1, 2)
    assert (alone.epoch, alone.complete) == (4, True)
    assert find_floors(alone, 5, 0, 1, 2) == [-1, 4]
    assert still_ahead(alone, 4) == {1: at(5, 4)}
    assert still_ahead(alone, 5) is msgspec.UNSET


@pytest.mark.parametrize("position", [at(5, 3), at(5), NOTHING])
def test_without_positions_of_helpers_all_start_with_the_epoch(position: Position) -> None:
    epoch, _, uuid = position
    forgotten = forget_share_positions(progress(position, ahead={1: at(6)}))
    assert forgotten.position == (epoch, -1, uuid)
    assert forgotten.ahead is msgspec.UNSET


def test_places_of_progress_are_apart() -> None:
    assert place_progress("items", "t", 0) == ("t-progress", "items")
    assert place_progress("items", "t", 2) == ("t-shares", "items/2")
    assert shares_topic("t") == "t" + SHARES_SUFFIX


def test_a_helper_has_a_transactional_id_of_its_own() -> None:
    of = Configuration(
        job="items",
        generation=1,
        connection={},
        sinks=[],
        delivery="exactly_once",
        transactional_id="retally-items-x",
        publishers=3,
    )
    helper = of.of_share(2, "w")
    assert (helper.transactional_id, helper.share, helper.writer) == ("retally-items-x-2", 2, "w")


def test_the_newest_epoch_of_a_topic_is_that_of_any_partition() -> None:
    assert TopicPosition("id", 2, 5).newest == 5
    assert TopicPosition("id", 2, 5, ahead=[at(7)]).newest == 6
    assert TopicPosition("id", 2, 5, ahead=[at(7, 0)]).newest == 7
    assert TopicPosition("id", 2).newest == -1
