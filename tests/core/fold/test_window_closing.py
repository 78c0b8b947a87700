"""Windows that close leave nothing in the state, and what is told is a changelog of its own."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from jobs.core.fold.fold import ChangelogRow
from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.fold.laws import repeats_the_last_row, well_formed
from jobs.core.fold.rules import Rules
from jobs.core.fold.state import Clock, Key
from jobs.core.fold.window_closing import Closing
from jobs.core.plan.tree import Plan
from jobs.core.rows.projection import row_projection
from jobs.core.rows.windows import window_expander, with_window_columns
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row
from schemas.types.sql_types import BIGINT, INT, STRING
from tests.support.histories.folded_changelog import fold_changelog

QUERY = (
    "SELECT k, SUM(v) AS s, MAX(v) AS m FROM t "
    "GROUP BY k, HOP(at, INTERVAL '1' SECOND, INTERVAL '2' SECOND)"
)


class Windows:
    """The windows of QUERY and rows for them."""

    def __init__(self, *, final: bool, lateness_ms: int = 0) -> None:
        plan = parse_query(QUERY, {"k": STRING, "v": INT, "at": BIGINT})
        assert plan.window is not None
        self.plan: Plan = with_window_columns(plan, plan.window)
        projection = row_projection(self.plan)
        closing = Closing.of(plan, final=final, lateness_ms=lateness_ms)
        assert projection is not None
        assert closing is not None
        self.closing = closing
        self.open = window_expander(plan, plan.window)
        self.memory_fold = MemoryFold(self.plan, projection, rules=Rules(closing=closing))
        self.watermark: int | None = None
        self.late_rows = 0

    def fold(self, *changes: tuple[int, Row]) -> list[ChangelogRow]:
        bundle = Bundle()
        for offset, (weight, row) in enumerate(changes):
            rows = self.closing.still_open(self.open(row), self.watermark)
            self.late_rows += not rows
            bundle.add(0, offset, [(weight, each) for each in rows])
        return self.memory_fold.fold(bundle.consolidate(), watermark=self.watermark).changelog

    def advance(self, watermark: int) -> list[ChangelogRow]:
        self.watermark = watermark
        return self.memory_fold.pass_time(watermark=watermark).changelog


def test_a_closed_window_is_forgotten_without_a_word() -> None:
    windows = Windows(final=False)
    assert windows.fold((1, ("a", 1, 500)), (1, ("a", 2, 500)), (-1, ("a", 9, 500)))
    keys: list[Key] = [("a", -1_000, 1_000), ("a", 0, 2_000)]
    state = windows.memory_fold.state
    assert windows.advance(998) == []
    assert None not in state.groups(keys)
    assert windows.advance(999) == []
    assert state.groups(keys)[0] is None
    assert state.entries(0, keys[0]) == []
    assert state.groups(keys)[1] is not None
    assert windows.advance(1_999) == []
    assert state.groups(keys) == [None, None]
    assert state.entries(0, keys[1]) == []
    assert state.next_timer(Clock.EVENT) is None


def test_a_late_row_is_counted_once_however_many_windows_it_missed() -> None:
    windows = Windows(final=True)
    windows.advance(5_000)
    assert windows.fold((1, ("a", 1, 500)), (1, ("a", 1, 3_999)), (1, ("a", 2, 4_000))) == []
    assert windows.late_rows == 2
    assert windows.advance(6_000) == [("+I", ("a", 4_000, 6_000), (2, 2))]


def test_a_window_told_and_still_open_goes_on_from_what_was_told() -> None:
    windows = Windows(final=True, lateness_ms=1_000)
    key = ("a", -1_000, 1_000)
    assert windows.fold((1, ("a", 5, 0)), (1, ("a", 3, 0))) == []
    assert windows.advance(999) == [("+I", key, (8, 5))]
    assert windows.fold((-1, ("a", 5, 0))) == [("-U", key, (8, 5)), ("+U", key, (3, 3))]
    assert windows.advance(1_000) == []
    assert windows.fold((-1, ("a", 3, 0))) == [("-D", key, (3, 3))]
    assert windows.fold((1, ("a", 7, 0))) == [("+I", key, (7, 7))]
    assert windows.advance(1_999) == [("+I", ("a", 0, 2_000), (7, 7))]
    assert windows.fold((1, ("a", 1, 0))) == [
        ("-U", ("a", 0, 2_000), (7, 7)),
        ("+U", ("a", 0, 2_000), (8, 7)),
    ]


def checked(table: dict[Key, Row], told: list[ChangelogRow]) -> None:
    """Fold what was told into the table, with the laws on."""
    fold_changelog(table, repeats_the_last_row(dict(table).get, well_formed(told)))


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_what_is_told_is_well_formed_and_the_state_ends_empty(final: bool, seed: int) -> None:
    """Any rows, late ones too: the told rows fold without a contradiction."""
    random = Random(seed)
    windows = Windows(final=final, lateness_ms=random.choice([0, 700]))
    table: dict[Key, Row] = {}
    watermark = 0
    for _ in range(30):
        changes = [
            (random.choice([1, 1, -1]), (random.choice("ab"), random.randint(1, 3), at))
            for at in (random.randint(-500, 4_000) + watermark for _ in range(random.randint(0, 4)))
        ]
        checked(table, windows.fold(*changes))
        watermark += random.randint(0, 800)
        checked(table, windows.advance(watermark))
        assert not windows.memory_fold.state.due(Clock.EVENT, watermark)
    windows.advance(2**63 - 1)
    assert windows.memory_fold.state.next_timer(Clock.EVENT) is None
    assert not windows.memory_fold.state._groups
    assert not windows.memory_fold.state._multisets


@pytest.mark.parametrize(
    "window",
    [
        "TUMBLE(at, INTERVAL '0.01' SECOND)",
        "HOP(at, INTERVAL '0.005' SECOND, INTERVAL '0.02' SECOND)",
        "SESSION(at, INTERVAL '0.007' SECOND)",
    ],
)
def test_a_column_of_times_is_judged_as_its_rows_are(window: str) -> None:
    plan = parse_query(f"SELECT COUNT(*) AS n FROM t GROUP BY {window}", {"at": BIGINT})
    assert plan.window is not None
    open_row = window_expander(plan, plan.window)
    for lateness_ms in (0, 6):
        closing = Closing.of(plan, final=False, lateness_ms=lateness_ms)
        assert closing is not None
        for watermark in range(-20, 40):
            times = np.arange(-60, 60)
            late = closing.late(times, watermark)
            for time, whole, partly in zip(times.tolist(), *late, strict=True):
                rows = open_row((time,))
                taken = closing.still_open(rows, watermark)
                assert (not taken, len(taken) < len(rows)) == (whole, partly), (time, watermark)
