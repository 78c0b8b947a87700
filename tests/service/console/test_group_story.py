"""The story of a group, from tables whose history is known: what it claims is so, and what the
table has merged or let go it does not claim."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from jobs.core.explain.extreme_changes import Cause, Turn, cause, turns
from jobs.edge.table.epoch_files import MULTISETS
from schemas.types.sql_types import INT, STRING
from service.console.story.group_story import Known, Story, known_of
from service.table.job_table import Table
from service.table.row_shape import RowShape
from tests.support.sampling import quick
from tests.support.tables.written_table import BUCKETS, WrittenTable

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
NAMES = ("a", "b", "c")


def known(table: WrittenTable, name: str) -> tuple[RowShape, Known]:
    shape = RowShape(table.plan)
    return shape, known_of(Table(table.place.table), shape, (name,), BUCKETS)


def causes(table: WrittenTable, name: str) -> list[tuple[Turn, Cause]]:
    shape, told = known(table, name)
    epochs = told.document["epochs"]
    found = turns(
        shape.plan, ((e["epoch"], [(c["op"], c["row"]) for c in e["changes"]]) for e in epochs)
    )
    changed = told.document["changed"]
    return [(turn, cause(turn, told.remembered, told.rows, changed)) for turn in found]


def check(table: WrittenTable) -> tuple[int, int]:
    """Against the history; how many retreats were told in full, and how many were not."""
    full = forgotten = 0
    ever = {str(key[0]) for live in table.history for key in live}
    for name in ever:
        for turn, why in causes(table, name):
            before = table.history[turn.epoch - 1][(name,)]
            after = table.history[turn.epoch][(name,)]
            assert (turn.before, turn.after) == (max(before), max(after))
            assert turn.retreats == (max(after) < max(before))
            assert why.left in (None, len(after))
            if not turn.retreats:
                continue
            if why.taken is None:
                forgotten += 1
                continue
            full += 1
            assert why.taken == before.count(turn.before)
            between = {v for v in before if max(after) < v < max(before)}
            assert why.beyond == len(between)
    return full, forgotten


@pytest.mark.parametrize("seed", quick(range(4), []))
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


def test_a_story_without_its_beginning_says_what_is_left(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    for values in ((7, 9), (7, 9, 12), (7, 9), (7,)):
        table.epoch({("a",): values})
    table.forget(2)
    shape, told = known(table, "a")
    story = Story(shape, told, asked=3)
    first, second = story.lines()
    assert (first.epoch, second.epoch) == (3, 4)
    assert first.text.startswith("top went down from 12 to 9 in epoch 3: the value 12 was taken")
    assert first.more == "Since then it has become 7, in epoch 4."
    assert "9 is" not in second.text and "7 is now the only value" in second.text
    assert [chapter.epoch for chapter in story.chapters()] == [4, 3]
    (chart,) = [each for each in story.charts() if each.column == "top"]
    assert (chart.first, chart.least, chart.greatest, chart.now) == (2, 7, 12, 7)
    assert not told.document["history_complete"]


def test_a_chapter_has_the_values_that_went_and_came(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): (7, 9, 9)})
    table.epoch({("a",): (7, 8)})
    shape, told = known(table, "a")
    newest, oldest = Story(shape, told, asked=None).chapters()
    assert newest.values is not None and oldest.values is not None
    assert [each.told for each in newest.values] == [((-2, "9"), (1, "8"))]
    assert [each.told for each in oldest.values] == [((1, "7"), (2, "9"))]
    assert newest.read == "t/0 [10, 20)"
    assert [(step.column, step.way) for step in newest.steps] == [
        ("total", "down"),
        ("top", "down"),
    ]
    table.epoch({("a",): (7,)})
    table.merge(MULTISETS, 1)
    shape, told = known(table, "a")
    assert [each.values for each in Story(shape, told, None).chapters()] == [None, None, None]


def test_a_long_multiset_is_shown_from_both_ends(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): (*range(100), 99)})
    shape, told = known(table, "a")
    (argument,) = Story(shape, told, None).arguments()
    assert (argument.values, argument.skipped, len(argument.bars)) == (100, 76, 25)
    first, last = argument.bars[0], argument.bars[-1]
    assert first is not None and last is not None and argument.bars[12] is None
    assert (first.value, first.times, first.shown_as, first.width) == ("99", 2, ("top",), 100)
    assert (last.value, last.times, last.shown_as, last.width) == ("0", 1, (), 50)
    assert dict(argument.numbers)["sum"] == "5049"


def test_what_a_group_was_before_it_went_is_told(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): (7,)})
    table.epoch({})
    shape, told = known(table, "a")
    story = Story(shape, told, None)
    assert (story.row(), story.lines(), story.arguments()) == ([], [], [])
    newest = story.chapters()[0]
    assert newest.changes == (("-D", "name=a, total=7, top=7"),) and newest.steps == ()
