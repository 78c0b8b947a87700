"""The view of a group, from tables whose history is known: its claims are true, and it claims
nothing about merged or removed data."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from jobs.core.explain.extreme_changes import Cause, ExtremeChange, find_cause, find_extreme_changes
from jobs.reading.parts import MULTISETS
from jobs.reading.row_shape import RowShape
from jobs.reading.version import TableVersion
from schemas.types.sql_types import INT, STRING
from service.answers.group_snapshots import GroupSnapshot, take_snapshot
from service.console.explanations.group_view import GroupView, describe_source
from tests.support.sampling import quick
from tests.support.tables.written_table import BUCKETS, WrittenTable

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
NAMES = ("a", "b", "c")


def read_group(table: WrittenTable, name: str) -> tuple[RowShape, GroupSnapshot]:
    shape = RowShape(table.plan, safe=True)
    return shape, take_snapshot(TableVersion(table.place.table), shape, (name,), BUCKETS)


def causes(table: WrittenTable, name: str) -> list[tuple[ExtremeChange, Cause]]:
    shape, snapshot = read_group(table, name)
    found = find_extreme_changes(shape.plan, snapshot.document.epochs)
    changed = snapshot.document.changed
    return [(turn, find_cause(turn, snapshot.remembered, snapshot.rows, changed)) for turn in found]


def check(table: WrittenTable) -> tuple[int, int]:
    """Compare with the history; count extreme changes with all details, and without."""
    full = forgotten = 0
    ever = {str(key[0]) for live in table.history for key in live}
    for name in ever:
        for turn, why in causes(table, name):
            before = table.history[turn.epoch - 1][(name,)]
            after = table.history[turn.epoch][(name,)]
            assert (turn.before, turn.after) == (max(before), max(after))
            assert turn.retracted == (max(after) < max(before))
            assert why.left in (None, len(after))
            if not turn.retracted:
                continue
            if why.taken is None:
                forgotten += 1
                continue
            full += 1
            assert why.taken == before.count(turn.before)
            between = {v for v in before if max(after) < v < max(before)}
            assert why.beyond == len(between)
    return full, forgotten


@pytest.mark.parametrize("seed", quick(range(2), []))
def test_every_claim_is_true_whatever_was_merged(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    fulls = []
    for number in range(24):
        names = chance.sample(NAMES, chance.randint(1, 3))
        table.epoch({(n,): tuple(chance.choices(range(9), k=chance.randint(1, 5))) for n in names})
        if number in (7, 15):
            table.merge(MULTISETS, 1)
        fulls.append(check(table))
    assert fulls[6][0] > 0 and fulls[6][1] == 0  # nothing was merged: all is told
    assert fulls[-1][0] > 0 and fulls[-1][1] > 0  # some of it is, and no more


def test_an_incomplete_history_claims_only_what_is_left(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    for values in ((7, 9), (7, 9, 12), (7, 9), (7,)):
        table.epoch({("a",): values})
    table.forget(2)
    shape, snapshot = read_group(table, "a")
    view = GroupView(shape, snapshot, highlighted=3)
    first, second = view.explain()
    assert (first.epoch, second.epoch) == (3, 4)
    assert first.text.startswith(
        "top decreased from 12 to 9 in epoch 3: the value 12 was retracted"
    )
    assert first.later == "It changed to 7 in epoch 4."
    assert "9 is" not in second.text and "7 is now the only value" in second.text
    assert [entry.epoch for entry in view.list_entries()] == [4, 3]
    (chart,) = [each for each in view.draw_charts() if each.column == "top"]
    assert (chart.first, chart.least, chart.greatest, chart.now) == (2, 7, 12, 7)
    assert not snapshot.document.history_complete


def test_an_entry_has_the_changes_of_its_multisets(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): (7, 9, 9)})
    table.epoch({("a",): (7, 8)})
    shape, snapshot = read_group(table, "a")
    newest, oldest = GroupView(shape, snapshot, highlighted=None).list_entries()
    assert newest.multisets is not None and oldest.multisets is not None
    assert [(each.added, each.removed) for each in newest.multisets] == [(((1, "8"),), ((2, "9"),))]
    assert [(each.added, each.removed) for each in oldest.multisets] == [(((2, "9"), (1, "7")), ())]
    assert newest.source == "read t/0 [10, 20)"
    assert [(change.column, change.direction) for change in newest.columns] == [
        ("total", "down"),
        ("top", "down"),
    ]
    table.epoch({("a",): (7,)})
    table.merge(MULTISETS, 1)
    shape, snapshot = read_group(table, "a")
    entries = GroupView(shape, snapshot, None).list_entries()
    assert [each.multisets for each in entries] == [None, None, None]


def test_a_long_multiset_is_shown_from_both_ends(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): (*range(100), 99)})
    shape, snapshot = read_group(table, "a")
    (argument,) = GroupView(shape, snapshot, None).list_arguments()
    assert (argument.values, argument.skipped, len(argument.bars)) == (100, 76, 25)
    first, last = argument.bars[0], argument.bars[-1]
    assert first is not None and last is not None and argument.bars[12] is None
    assert (first.value, first.times, first.columns, first.width) == ("99", 2, ("top",), 100)
    assert (last.value, last.times, last.columns, last.width) == ("0", 1, (), 50)
    assert dict(argument.numbers)["sum"] == "5049"
    assert argument.histogram is not None and argument.counts_differ
    assert (argument.histogram.least, argument.histogram.greatest) == (0, 99)
    assert sum(int(bar.title.rpartition(" ")[2]) for bar in argument.histogram.bars) == 101


def test_the_values_of_an_entry_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): (97, 747, 919, 747)})
    (entry,) = GroupView(*read_group(table, "a"), highlighted=None).list_entries()
    assert entry.multisets is not None
    assert entry.multisets[0].added == ((2, "747"), (1, "919"), (1, "97"))


def test_a_removed_group_shows_its_last_row(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): (7,)})
    table.epoch({})
    shape, snapshot = read_group(table, "a")
    view = GroupView(shape, snapshot, None)
    assert (view.list_cells(), view.explain(), view.list_arguments()) == ([], [], [])
    newest = view.list_entries()[0]
    assert newest.changes == (("-D", "name=a, total=7, top=7"),) and newest.columns == ()


def test_source_offsets_are_described_even_if_unknown() -> None:
    read = {"shop.product": {"2": [0, 3]}}
    assert describe_source("data", read) == "read shop.product/2 [0, 3)"
    assert describe_source("data", {}) == "read no records: a timer was due"
    assert describe_source("data", None) == "source offsets no longer known"
    assert describe_source("rewind", {}) == "read no records"
