"""Sessions are what the live rows say, however they grew, merged and split."""

from __future__ import annotations

import math
from random import Random

import pytest

from jobs.core.fold.fold import ChangelogRow
from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.fold.rules import Rules
from jobs.core.fold.state import Clock, Key
from jobs.core.fold.window_closing import Closing
from jobs.core.rows.projection import row_projection
from jobs.core.rows.windows import window_expander, with_window_columns
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row
from schemas.types.sql_types import BIGINT, DOUBLE, INT, STRING
from tests.support.histories.folded_changelog import fold_changelog

GAP = 10
QUERY = (
    "SELECT k, SUM(v) AS s, MAX(v) AS m, COUNT(DISTINCT v) AS d, MIN(x) AS low, COUNT(*) AS n "
    "FROM t GROUP BY SESSION(at, INTERVAL '0.01' SECOND), k"
)
Change = tuple[int, Row]


class Sessions:
    """The sessions of QUERY, and rows (k, v, x, at) for them."""

    def __init__(self, closing: tuple[bool, int] | None = None) -> None:
        plan = parse_query(QUERY, {"k": STRING, "v": INT, "x": DOUBLE, "at": BIGINT})
        assert plan.window is not None
        self.open = window_expander(plan, plan.window)
        self.closing = None
        if closing is not None:
            final, lateness_ms = closing
            self.closing = Closing.of(plan, final=final, lateness_ms=lateness_ms)
        projection = row_projection(with_window_columns(plan, plan.window))
        assert projection is not None
        self.memory_fold = MemoryFold(plan, projection, rules=Rules(closing=self.closing))
        self.watermark: int | None = None
        self.table: dict[Key, Row] = {}
        self.taken: list[Change] = []

    def fold(self, *changes: Change) -> list[ChangelogRow]:
        bundle = Bundle()
        for offset, (weight, row) in enumerate(changes):
            rows = self.open(row)
            if self.closing is not None:
                rows = self.closing.still_open(rows, self.watermark)
            if rows:
                self.taken.append((weight, row))
            bundle.add(0, offset, [(weight, each) for each in rows])
        return self._told(
            self.memory_fold.fold(bundle.consolidate(), watermark=self.watermark).changelog
        )

    def advance(self, watermark: int) -> list[ChangelogRow]:
        self.watermark = watermark
        return self._told(self.memory_fold.pass_time(watermark=watermark).changelog)

    def _told(self, changelog: list[ChangelogRow]) -> list[ChangelogRow]:
        fold_changelog(self.table, changelog)
        return changelog


def at(time: int, v: int = 1, k: str = "a") -> Change:
    return 1, (k, v, float(v), time)


def gone(change: Change) -> Change:
    return -1, change[1]


def recomputed(changes: list[Change]) -> dict[Key, Row]:
    """The query over the rows that are left."""
    left: dict[Row, int] = {}
    for weight, row in changes:
        left[row] = left.get(row, 0) + weight
    rows = [row for row, count in left.items() for _ in range(count)]
    table: dict[Key, Row] = {}
    for name in {row[0] for row in rows}:
        mine = sorted((row for row in rows if row[0] == name), key=lambda row: int(row[3]))  # type: ignore[arg-type]
        sessions: list[list[Row]] = []
        for row in mine:
            if sessions and row[3] - sessions[-1][-1][3] <= GAP:  # type: ignore[operator]
                sessions[-1].append(row)
            else:
                sessions.append([row])
        for session in sessions:
            values = [int(row[1]) for row in session]  # type: ignore[arg-type]
            low = min((float(row[2]) for row in session), key=lambda x: (x != x, x))  # type: ignore[arg-type]
            key = (session[0][3], session[-1][3] + GAP, name)  # type: ignore[operator]
            result = (sum(values), max(values), len(set(values)), low, len(values))
            table[key] = result
    return table


def test_a_session_grows_to_both_sides_merges_and_splits_again() -> None:
    sessions = Sessions()
    bridge = at(20, 4)
    assert sessions.fold(at(10)) == [("+I", (10, 20, "a"), (1, 1, 1, 1.0, 1))]
    assert sessions.fold(at(30, 2)) == [("+I", (30, 40, "a"), (2, 2, 1, 2.0, 1))]
    assert sessions.fold(bridge) == [
        ("-D", (10, 20, "a"), (1, 1, 1, 1.0, 1)),
        ("+I", (10, 40, "a"), (7, 4, 3, 1.0, 3)),
        ("-D", (30, 40, "a"), (2, 2, 1, 2.0, 1)),
    ]
    assert sessions.fold(at(15, 5)) == [
        ("-U", (10, 40, "a"), (7, 4, 3, 1.0, 3)),
        ("+U", (10, 40, "a"), (12, 5, 4, 1.0, 4)),
    ]
    assert sessions.fold(gone(bridge)) == [
        ("+I", (10, 25, "a"), (6, 5, 2, 1.0, 2)),
        ("-D", (10, 40, "a"), (12, 5, 4, 1.0, 4)),
        ("+I", (30, 40, "a"), (2, 2, 1, 2.0, 1)),
    ]


def test_rows_a_gap_apart_are_one_session_and_a_millisecond_more_parts_them() -> None:
    sessions = Sessions()
    sessions.fold(at(0), at(10), at(21))
    assert sorted(sessions.table) == [(0, 20, "a"), (21, 31, "a")]


def test_a_final_session_is_told_once_and_taken_back_when_a_row_in_time_prolongs_it() -> None:
    sessions = Sessions((True, 5))
    assert sessions.fold(at(0), at(5)) == []
    assert sessions.advance(13) == []
    assert sessions.advance(14) == [("+I", (0, 15, "a"), (2, 1, 1, 1.0, 2))]
    assert sessions.fold(at(12, 3)) == [("-D", (0, 15, "a"), (2, 1, 1, 1.0, 2))]
    assert sessions.advance(21) == [("+I", (0, 22, "a"), (5, 3, 2, 1.0, 3))]
    assert sessions.advance(26) == []
    assert not sessions.memory_fold.state._groups
    assert not sessions.memory_fold.state._multisets
    assert sessions.memory_fold.state.next_timer(Clock.EVENT) is None


@pytest.mark.parametrize("seed", range(60))
def test_sessions_are_those_of_the_rows_that_are_left(seed: int) -> None:
    random = Random(seed)
    sessions, live = Sessions(), list[Row]()
    for _ in range(25):
        changes: list[Change] = []
        for _ in range(random.randint(0, 5)):
            if live and random.random() < 0.45:
                changes.append((-1, live.pop(random.randrange(len(live)))))
            else:
                x = random.choice([1.0, 2.0, math.nan])
                row = (random.choice("ab"), random.randint(1, 4), x, random.randint(0, 120))
                live.append(row)
                changes.append((1, row))
        sessions.fold(*changes)
        assert repr(sorted(sessions.table.items())) == repr(
            sorted(recomputed([(1, row) for row in live]).items())
        )
    sessions.fold(*((-1, row) for row in live))
    assert sessions.table == {}
    assert not sessions.memory_fold.state._groups
    assert not sessions.memory_fold.state._multisets


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_sessions_that_close_leave_nothing_behind(final: bool, seed: int) -> None:
    """Any rows, late ones and retractions of rows that never were: the laws hold all the way."""
    random = Random(seed)
    sessions = Sessions((final, random.choice([0, 7])))
    watermark = 0
    for _ in range(30):
        changes = [
            (random.choice([1, 1, 1, -1]), at(watermark + random.randint(-12, 40))[1])
            for _ in range(random.randint(0, 5))
        ]
        sessions.fold(*changes)
        watermark += random.randint(0, 15)
        sessions.advance(watermark)
    sessions.advance(2**62)
    assert not sessions.memory_fold.state._groups
    assert not sessions.memory_fold.state._multisets
    assert sessions.memory_fold.state.next_timer(Clock.EVENT) is None
