"""A table that is emptied by TRUNCATE, whose messages are read in any order of the partitions.

statements ──► messages by partition, TRUNCATE in partition 0 ──► epochs in any cut ──► live rows
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.rows.dedupe import NO_TRUNCATIONS, LastImages
from jobs.core.rows.truncations import Fate, Truncation, Truncations
from jobs.core.values.change import Row
from schemas.limits import LEFT_KEY_KEPT_MS
from tests.support.examples import examples
from tests.support.histories.keyed_table import (
    CRASHES,
    HISTORIES,
    PLAN,
    READS,
    Message,
    Stage,
    Table,
    by_partition,
    read,
    repeated,
)

CUTS = st.lists(st.integers(0, 30), max_size=3)


def emptied_table(history: Sequence[tuple[int, Any]], cuts: Sequence[int], clock: int) -> Table:
    """Run statements, and a TRUNCATE before each of those at `cuts`."""
    table = Table()
    for at, (_, (name, *arguments)) in enumerate(history):
        if at in cuts:
            table.truncate()
        getattr(table, name)(*arguments)
    table.sent = [
        Message(each.changes, table.time + n * clock // 10 * 10)
        for n, each in enumerate(table.sent)
    ]
    return table


@examples(400)
@given(HISTORIES, CUTS, READS)
def test_rows_from_before_are_gone_in_any_order_of_the_partitions(
    history: list[Any], cuts: list[int], reads: list[Any]
) -> None:
    table, stage = emptied_table(history, cuts, clock=10), Stage()
    for epoch in read(by_partition(table.sent), reads):
        stage.epoch(epoch)
    stage.must_be(table)


@examples(400)
@given(HISTORIES, CUTS, READS)
def test_within_one_unit_of_time_the_rows_are_exact_or_counted(
    history: list[Any], cuts: list[int], reads: list[Any]
) -> None:
    table, stage = emptied_table(history, cuts, clock=4), Stage()
    for epoch in read(by_partition(table.sent), reads):
        stage.epoch(epoch)
    if not stage.total("ambiguous_keys"):
        stage.must_be(table)


@examples(300)
@given(HISTORIES, CUTS, READS, st.integers(0, 40))
def test_with_a_truncate_that_waited_the_rows_are_exact_or_counted(
    history: list[Any], cuts: list[int], reads: list[Any], waited: int
) -> None:
    table, stage = emptied_table(history, cuts, clock=10), Stage()
    table.sent = [
        each if each.changes else Message((), each.time - waited, each.time) for each in table.sent
    ]
    for epoch in read(by_partition(table.sent), reads):
        stage.epoch(epoch)
    if not stage.total("ambiguous_keys"):
        stage.must_be(table)


@examples(200)
@given(HISTORIES, CUTS, READS)
def test_message_by_message_in_memory_is_the_same(
    history: list[Any], cuts: list[int], reads: list[Any]
) -> None:
    table = emptied_table(history, cuts, clock=10)
    images, folded = LastImages(PLAN, keys_change=True), Counter[Row]()
    for epoch in read(by_partition(table.sent), reads):
        for partition, messages in epoch:
            for message in messages:
                if message.changes:
                    derived = images.derive(message.changes, message.time, partition)
                else:
                    at = Truncation.of(partition, message.time, None, position=0)
                    derived = images.truncate(at)
                for weight, row in derived:
                    folded[row] += weight
    assert +folded == Counter(images.live()) == table.live()


@examples(300)
@given(HISTORIES, CUTS, READS, CRASHES)
def test_a_source_that_repeats_itself_and_its_truncates_changes_nothing(
    history: list[Any], cuts: list[int], reads: list[Any], crash: tuple[int, list[int]]
) -> None:
    table, stage = emptied_table(history, cuts, clock=10), Stage()
    for epoch in read(repeated(table.sent, *crash), reads):
        stage.epoch(epoch)
    if not stage.total("ambiguous_keys"):
        stage.must_be(table)


@pytest.mark.parametrize(
    ("time", "partition", "position", "fate"),
    [
        (900, 1, 7, Fate.GONE),  # another partition: its time decides
        (1000, 1, 3, Fate.AMBIGUOUS),
        (1400, 1, 3, Fate.AMBIGUOUS),  # the TRUNCATE may have waited for this row
        (1500, 1, 3, Fate.STAYS),
        (None, 1, 3, Fate.AMBIGUOUS),
        (1500, 0, 4, Fate.GONE),  # its own partition: the order decides, whatever the time
        (900, 0, 5, Fate.STAYS),
    ],
)
def test_what_becomes_of_a_row(time: int | None, partition: int, position: int, fate: Fate) -> None:
    truncations = Truncations((Truncation.of(0, 1000, 1400, position=5),))
    assert truncations.fate(time, partition, position) is fate


def test_only_the_newest_of_each_partition_is_remembered_and_not_for_ever() -> None:
    found = [Truncation(0, 5, 6, 1), Truncation(0, 9, 9, 2), Truncation(3, 4, 8, 8)]
    later = NO_TRUNCATIONS.add(found).forget_old(newest_ms=8 + LEFT_KEY_KEPT_MS)
    assert later.to_json() == [[0, 9, 9], [3, 4, 8]]
    assert not Truncations.of_json(later.to_json()).new
    assert later.forget_old(newest_ms=9 + LEFT_KEY_KEPT_MS).to_json() == [[0, 9, 9]]


def test_a_truncate_that_the_source_repeats_makes_no_later_row_ambiguous() -> None:
    first = NO_TRUNCATIONS.add([Truncation.of(0, 1000, 1400, position=5)]).forget_old(None)
    repeated_late = first.add([Truncation.of(0, 1000, 90_000, position=0)])
    assert repeated_late.fate(2000, 1) is Fate.STAYS
