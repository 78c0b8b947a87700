"""What retention removes is still counted: by the job, and by each of its views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from jobs.core.fold.program import Program
from jobs.core.sql.select import parse_query
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import TableLayout
from jobs.edge.table.retention import expire_history
from jobs.reading.epoch_rows import read_epoch_rows
from jobs.reading.version import TableVersion
from schemas.table.epoch import VIEWS, EpochRow, ViewShare
from schemas.types.sql_types import SqlType
from tests.support.epoch_rows import epoch_row

PLAN = parse_query("SELECT k, COUNT(*) AS n FROM t GROUP BY k", {"k": SqlType.parse("STRING")})
LONG_AFTER_US = 10**18


def commit_epochs(
    where: Path, views: dict[str, Any], later: dict[str, Any] | None = None
) -> EpochTable:
    """A table of a start row, whose counters are zero, and three epochs; from 2 on with `later`."""
    table = EpochTable.create(where, TableLayout(Program(PLAN)))
    for number in range(4):
        counters = {"groups": number, "read": 10 * number, "begins": 1}
        counters |= views if later is None or number < 2 else later
        table.commit_epoch(epoch_row(number, committed_at=number, counters=counters), ())
    return table


def start_after_expiry(table: EpochTable) -> EpochRow:
    expired = expire_history(table, LONG_AFTER_US, published=3, uuid="0" * 32)
    assert expired is not None and expired.epoch_max == 2  # the newest row is never history
    (start,) = read_epoch_rows(table.root / expired.added[0].path)
    return start


def test_the_start_row_has_the_sums_of_the_removed_epochs(tmp_path: Path) -> None:
    start = start_after_expiry(commit_epochs(tmp_path / "table", {}))
    assert (start.epoch, start.kind, start.offsets) == (0, "start", {"t": {"0": 0}})
    assert start.counters == {"groups": 0, "read": 30}


def test_the_start_row_has_the_sums_of_each_view(tmp_path: Path) -> None:
    counted = {"groups": 1, "refused": 2, "dropped_retractions": 1}
    views = {
        "": {"plan": "p", "counters": {"groups": 3}},
        "top": {"plan": "q", "counters": counted},
    }
    start = start_after_expiry(commit_epochs(tmp_path / "table", {VIEWS: views}))
    assert start.views == ("", "top")
    top = start.of_view("top")
    assert (top.plan, top.groups) == ("q", 0)
    assert (top.counts.dropped_retractions, top.counts.quarantined) == (3, 6)
    assert start.of_view("").counts.dropped_retractions == 0


def test_the_start_row_has_the_sums_of_a_view_that_came_later(tmp_path: Path) -> None:
    whole = {"": {"plan": "p", "counters": {"groups": 3}}}
    top = {"plan": "q", "counters": {"groups": 1, "refused": 2}, "time": {"agenda": {"now": 1}}}
    table = commit_epochs(tmp_path / "table", {VIEWS: whole}, {VIEWS: {**whole, "top": top}})
    start = start_after_expiry(table)
    assert start.shares["top"] == ViewShare(plan="q", counters={"groups": 0, "refused": 2})
    assert start.of_view("top").counts.quarantined == 2


@pytest.mark.parametrize("views_first", [False, True])
def test_the_start_row_has_the_sums_of_views_and_of_one_query(
    tmp_path: Path, views_first: bool
) -> None:
    counted = {"groups": 1, "refused": 2, "dropped_retractions": 1}
    views = {VIEWS: {name: {"plan": "q", "counters": counted} for name in ("", "top")}}
    single = {"quarantined": 4, "dropped_retractions": 5}
    first, later = (views, single) if views_first else (single, views)
    start = start_after_expiry(commit_epochs(tmp_path / "table", first, later))
    assert {view: start.of_view(view).counts.dropped_retractions for view in ("", "top")} == (
        {"": 7, "top": 2} if views_first else {"": 11, "top": 1}
    )
    assert start.refused == ({"": 8, "top": 4} if views_first else {"": 10, "top": 2})
    assert start.of_view("").counts.quarantined == (8 if views_first else 10)
    assert start.of_view("").counts.read == 30  # as the job has read


def test_a_view_that_has_refused_a_message_is_known_after_expiry(tmp_path: Path) -> None:
    refusing = {"plan": "q", "counters": {"groups": 1, "refused": 2}}
    whole = {"": {"plan": "p", "counters": {"groups": 3}}, "top": refusing}
    table = commit_epochs(tmp_path / "table", {VIEWS: whole}, {VIEWS: {"": whole[""]}})
    assert TableVersion(table.root).refusing == {"top"}
    expired = expire_history(table, LONG_AFTER_US, published=3, uuid="0" * 32)
    assert expired is not None
    table.commit(expired.added, expired.removed, uuid="0" * 32, what="retention")
    assert TableVersion(table.root).refusing == {"top"}


def test_the_quarantine_of_a_job_with_one_query_counts_as_refused(tmp_path: Path) -> None:
    views = {VIEWS: {"": {"plan": "p", "counters": {"groups": 3}}}}
    table = commit_epochs(tmp_path / "table", {"quarantined": 1}, views)
    assert TableVersion(table.root).refusing == {""}


@pytest.mark.parametrize("view", ["", "top"])
def test_the_start_row_counts_nothing_for_audits_that_a_later_rewind_has_undone(
    tmp_path: Path, view: str
) -> None:
    counted: dict[str, Any] = {"late_windows": 2, "dropped_retractions": 1}
    views = {VIEWS: {view: {"plan": "p", "counters": counted}}}
    table = commit_epochs(tmp_path / "table", views if view else counted)
    shares = {VIEWS: {view: {"plan": "p", "counters": {}}}} if view else {}
    newest = table.newest()
    assert newest is not None
    counters = {"groups": 1, "rewound_to": 1, **shares}
    back = msgspec.structs.replace(newest, epoch=4, kind="rewind", counters=counters)
    table.commit_epoch(back, ())
    expired = expire_history(table, LONG_AFTER_US, published=3, uuid="0" * 32)
    assert expired is not None and expired.epoch_max == 3
    (row,) = read_epoch_rows(table.root / expired.added[0].path)
    start = row.of_view(view)
    # Of the start row, whose counters are those of every row here, and of epoch 1.
    assert (start.counts.late_windows, start.counts.dropped_retractions) == (4, 2)
    assert start.counts.read == 60
