"""Tables whose rows change their keys, sent as canal sends them, in any order of the partitions.

table ──► messages ──hash of the new key──► partitions ──read in any order, cut──► live rows
                                                 └── a part of each repeated, as after a crash
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given

from jobs.core.rows.dedupe import LastImages
from jobs.core.values.change import Row
from tests.support.examples import examples
from tests.support.histories.keyed_table import (
    CRASHES,
    HISTORIES,
    PLAN,
    READS,
    Stage,
    by_partition,
    read,
    repeated,
    table_of,
)

# --- any order ------------------------------------------------------------------------------


@examples(300)
@given(HISTORIES, READS)
def test_any_order_of_partitions_ends_in_the_rows_of_the_table(
    history: list[Any], reads: list[Any]
) -> None:
    table, stage = table_of(history), Stage()
    for epoch in read(by_partition(table.sent), reads):
        stage.epoch(epoch)
    stage.must_be(table)
    assert stage.total("taken") == sum(len(message.changes) for message in table.sent)


@examples(150)
@given(HISTORIES, READS)
def test_message_by_message_in_memory_is_the_same(history: list[Any], reads: list[Any]) -> None:
    table = table_of(history)
    images, folded = LastImages(PLAN, keys_change=True), Counter[Row]()
    for epoch in read(by_partition(table.sent), reads):
        for partition, messages in epoch:
            for message in messages:
                derived = images.derive(message.changes, message.time, partition)
                for weight, row in derived:
                    folded[row] += weight
                    assert folded[row] >= 0
    assert +folded == Counter(images.live()) == table.live()
    assert images.moved_keys == 0


# --- repeats --------------------------------------------------------------------------------


@examples(300)
@given(HISTORIES, READS, CRASHES)
def test_repeats_change_nothing_when_times_tell_changes_apart(
    history: list[Any], reads: list[Any], crash: tuple[int, list[int]]
) -> None:
    table, stage = table_of(history, clock=1), Stage()
    for epoch in read(repeated(table.sent, *crash), reads):
        stage.epoch(epoch)
    stage.must_be(table)


@examples(300)
@given(HISTORIES, READS, CRASHES)
def test_repeats_within_one_second_are_exact_or_counted(
    history: list[Any], reads: list[Any], crash: tuple[int, list[int]]
) -> None:
    table, stage = table_of(history), Stage()
    for epoch in read(repeated(table.sent, *crash), reads):
        stage.epoch(epoch)
    if not stage.total("ambiguous_keys"):
        stage.must_be(table)
