"""A table that is emptied by TRUNCATE, whose messages are read in any order of the partitions.

statements ──► messages by partition, TRUNCATE in partition 0 ──► epochs in any cut ──► live rows
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.rows.dedupe import LastImages, derive_changes
from jobs.core.rows.truncations import Fate, Truncation, Truncations
from jobs.core.values.change import Row
from tests.core.rows.test_key_changes import (
    CRASHES,
    FINGERPRINT,
    HISTORIES,
    PLAN,
    READS,
    USED,
    Message,
    Stage,
    Table,
    by_partition,
    read,
    repeated,
    shipped,
)
from tests.support.examples import examples

CUTS = st.lists(st.integers(0, 30), max_size=3)


class TruncatedMessage(Message):
    """A TRUNCATE; canal sends DDL to partition 0."""

    @property
    def partition(self) -> int:
        return 0


def table_of(history: Sequence[tuple[int, Any]], cuts: Sequence[int], clock: int) -> Table:
    """Run statements, and a TRUNCATE before each of those at `cuts`."""
    table = Table()
    for at, (_, (name, *arguments)) in enumerate(history):
        if at in cuts:
            table.rows.clear()
            table.sent.append(TruncatedMessage((), 0))
        getattr(table, name)(*arguments)
    table.sent = [
        type(each)(each.changes, table.time + n * clock // 10 * 10)
        for n, each in enumerate(table.sent)
    ]
    return table


class TruncatingStage(Stage):
    """The stage of a job with `on_truncate: apply`."""

    truncations = Truncations()

    def epoch(self, ranges: Sequence[tuple[int, Sequence[Message]]]) -> None:
        ordered = sorted(ranges, key=lambda each: each[0])
        sent = [each for n, (of, range_) in enumerate(ordered) for each in shipped(range_, n, of)]
        known = self.truncations.add(find_truncations(ordered))
        unchanged = list(self.states) if known.new else []
        found = derive_changes(
            sent,
            lambda keys: [self.states.get(key) for key in keys],
            USED,
            FINGERPRINT,
            known,
            unchanged,
        )
        self.truncations = Truncations.of_json(known.to_json())
        for key, state in found.states:
            if state is None:
                self.states.pop(key, None)
            else:
                self.states[key] = state
        for row, weight in zip(found.rows, found.weights, strict=True):
            self.folded[row] += weight
        self.found.append(found)
        assert min(self.folded.values(), default=0) >= 0, "a row was taken away twice"


def find_truncations(
    ranges: Sequence[tuple[int, Sequence[Message]]],
) -> Iterator[Truncation]:
    for ordinal, (partition, messages) in enumerate(ranges):
        rows = 0
        for message in messages:
            if isinstance(message, TruncatedMessage):
                yield Truncation(partition, message.time, (ordinal << 40) + rows)
            rows += len(message.changes)


@examples(400)
@given(HISTORIES, CUTS, READS)
def test_rows_from_before_are_gone_in_any_order_of_the_partitions(
    history: list[Any], cuts: list[int], reads: list[Any]
) -> None:
    table, stage = table_of(history, cuts, clock=10), TruncatingStage()
    for epoch in read(by_partition(table.sent), reads):
        stage.epoch(epoch)
    stage.must_be(table)


@examples(400)
@given(HISTORIES, CUTS, READS)
def test_within_one_unit_of_time_the_rows_are_exact_or_counted(
    history: list[Any], cuts: list[int], reads: list[Any]
) -> None:
    table, stage = table_of(history, cuts, clock=4), TruncatingStage()
    for epoch in read(by_partition(table.sent), reads):
        stage.epoch(epoch)
    if not stage.total("ambiguous_keys"):
        stage.must_be(table)


@examples(200)
@given(HISTORIES, CUTS, READS)
def test_message_by_message_in_memory_is_the_same(
    history: list[Any], cuts: list[int], reads: list[Any]
) -> None:
    table = table_of(history, cuts, clock=10)
    images, folded = LastImages(PLAN, keys_change=True), Counter[Row]()
    for epoch in read(by_partition(table.sent), reads):
        for partition, messages in epoch:
            for message in messages:
                if isinstance(message, TruncatedMessage):
                    derived = images.truncate(message.time, partition)
                else:
                    derived = images.derive(message.changes, message.time, partition)
                for weight, row in derived:
                    folded[row] += weight
    assert +folded == Counter(images.live()) == table.live()


@examples(300)
@given(HISTORIES, CUTS, READS, CRASHES)
def test_a_source_that_repeats_itself_and_its_truncates_changes_nothing(
    history: list[Any], cuts: list[int], reads: list[Any], crash: tuple[int, list[int]]
) -> None:
    table, stage = table_of(history, cuts, clock=10), TruncatingStage()
    for epoch in read(repeated(table.sent, *crash), reads):
        stage.epoch(epoch)
    if not stage.total("ambiguous_keys"):
        stage.must_be(table)


@pytest.mark.parametrize(
    ("time", "partition", "position", "fate"),
    [
        (900, 1, 7, Fate.GONE),  # another partition: its time decides
        (1000, 1, 3, Fate.AMBIGUOUS),
        (1100, 1, 3, Fate.STAYS),
        (None, 1, 3, Fate.AMBIGUOUS),
        (1100, 0, 4, Fate.GONE),  # its own partition: the order decides, whatever the time
        (900, 0, 5, Fate.STAYS),
    ],
)
def test_what_becomes_of_a_row(time: int | None, partition: int, position: int, fate: Fate) -> None:
    truncations = Truncations((Truncation(0, 1000, position=5),))
    assert truncations.fate(time, partition, position) is fate


def test_only_the_newest_of_each_partition_is_remembered() -> None:
    found = Truncations().add([Truncation(0, 5, 1), Truncation(0, 9, 2), Truncation(3, 4, 8)])
    assert found.to_json() == [[0, 9], [3, 4]]
    assert not Truncations.of_json(found.to_json()).new
