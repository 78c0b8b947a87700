"""Reading a job's table: results now and then, the changelog, one group; small files and merged.

Tables are written here epoch by epoch, from plain dicts of groups, so that what must be read back
is known without any of the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.changing.rewind import _commit
from jobs.changing.savepoint import create_savepoint
from jobs.changing.stopped_job import StoppedJob
from jobs.core.fold.rules import Rules
from jobs.core.fold.state import Key
from jobs.core.values.change import Row
from jobs.edge.process.job_directory import UnknownJob, find_job
from jobs.edge.table.compaction import BASE_TIER
from jobs.edge.table.reading import TableReader, read_with_retries
from jobs.edge.table.retention import expire_history
from jobs.reading.history import HistoryGone
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, GROUP_STATE, MULTISETS, TIMERS
from jobs.reading.row_shape import ChangeRow
from schemas.types.sql_types import BIGINT, INT
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.tables.folded_table import insert
from tests.support.tables.written_table import (
    NAMES,
    Live,
    WrittenTable,
    result,
    timed,
    write_random_history,
)


@pytest.fixture
def written(tmp_path: Path) -> WrittenTable:
    return write_random_history(tmp_path)


def shown(live: Live) -> dict[Key, Row]:
    return {key: result(values) for key, values in live.items()}


def folded(changes: Iterator[ChangeRow]) -> dict[Key, Row]:
    return fold_changelog({}, ((row.op, row.key, row.result) for row in changes))


@pytest.mark.parametrize("tier", [0, 1, BASE_TIER])
def test_results_of_every_epoch_before_and_after_compaction(
    written: WrittenTable, tier: int
) -> None:
    if tier:
        for part in (ACCUMULATORS, MULTISETS, CHANGELOG):
            written.merge(part, tier)
    reader = written.reader()
    assert reader.results() == shown(written.history[-1])
    for epoch, live in enumerate(written.history):
        assert reader.results(epoch) == shown(live), epoch


def test_results_come_in_the_order_of_their_groups(written: WrittenTable) -> None:
    written.epoch({(name,): (1,) for name in NAMES})
    keys = [key for (key,) in written.reader().results()]
    assert keys == [None, "", "a", "b", "z", "ü"]


def test_one_group_reads_as_among_all(written: WrittenTable) -> None:
    reader = written.reader()
    for epoch, live in enumerate(written.history):
        for name in NAMES:
            expected = {} if (name,) not in live else {(name,): result(live[(name,)])}
            assert reader.results(epoch, (name,)) == expected


def test_changes_since_an_epoch_lead_from_it_to_now(written: WrittenTable) -> None:
    reader = written.reader()
    assert folded(reader.changes()) == shown(written.history[-1])
    for epoch, live in enumerate(written.history):
        later = list(reader.changes(epoch))
        assert all(row.epoch > epoch for row in later)
        assert later == sorted(later, key=lambda row: (row.epoch, row.seq))
        table = shown(live)
        fold_changelog(table, ((row.op, row.key, row.result) for row in later))
        assert table == shown(written.history[-1])


def test_an_epoch_that_never_was_is_refused(written: WrittenTable) -> None:
    for epoch in (13, 400):
        with pytest.raises(HistoryGone, match="the newest is 12"):
            written.reader().results(epoch)


def test_history_that_retention_took_is_refused_and_the_oldest_epoch_named(
    written: WrittenTable,
) -> None:
    written.forget(until=4)
    reader = written.reader()
    last = max(
        row.epoch for row in reader.kept_epochs if row.epoch <= 4 and row.counters["changelog_rows"]
    )
    for epoch in range(last):
        with pytest.raises(HistoryGone, match=f"epoch that can be read is {last}$"):
            reader.results(epoch)
        with pytest.raises(HistoryGone):
            reader.changes(epoch)
    for epoch in range(last, 13):
        assert reader.results(epoch) == shown(written.history[epoch])
    assert min(row.epoch for row in reader.changes()) > last


def test_changes_of_epochs_that_retention_removed_whole_are_refused(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, "SELECT SUM(v) AS total, MAX(v) AS top FROM t", {"v": INT})
    for number in range(1, 5):
        table.epoch({(): tuple(range(number))})
    old = expire_history(table.table, 10**18, 3, "0" * 32)
    assert old is not None
    table.table.commit(old.added, old.removed, uuid="0" * 32, what="retention")
    reader = table.reader()
    assert [row.epoch for row in reader.kept_epochs] == [4]
    for since in range(3):
        with pytest.raises(HistoryGone, match=r"epoch that can be read is 4$"):
            reader.changes(since)
    assert [change.epoch for change in reader.changes(3)] == [4, 4]
    assert list(reader.changes(4)) == []


def test_a_query_without_group_by_has_one_group(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, "SELECT SUM(v) AS total, MAX(v) AS top FROM t", {"v": INT})
    assert table.reader().results() == {}
    table.epoch({(): (3, 4)})
    table.epoch({(): (3,)})
    table.epoch({})
    reader = table.reader()
    found = [reader.results(epoch) for epoch in range(4)]
    assert found == [{}, {(): (7, 4)}, {(): (3, 3)}, {}]
    assert reader.results(1, ()) == {(): (7, 4)}


def test_a_hidden_group_column_keeps_groups_apart_and_is_not_shown(tmp_path: Path) -> None:
    query = "SELECT SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
    table = WrittenTable(tmp_path, query, {"name": BIGINT, "v": INT})
    table.epoch({(1,): (5,), (2,): (5,)})
    reader = table.reader()
    rows = [reader.shape.row(key, row) for key, row in reader.results().items()]
    assert rows == [{"total": 5, "top": 5}] * 2
    assert reader.shape.key((2,)) == {"name": 2}


def test_a_reader_whose_files_were_swept_away_looks_again(written: WrittenTable) -> None:
    looks: list[int] = []

    def read(reader: TableReader) -> dict[Key, Row]:
        if not looks:
            assert reader.files  # what this version refers to ...
            written.merge(ACCUMULATORS, 1)  # ... is gone by the time that it is read
        looks.append(reader.version)
        return reader.results()

    assert read_with_retries(written.place, read) == shown(written.history[-1])
    assert len(looks) == 2


def test_a_follower_sees_each_epoch_once_through_a_compaction(written: WrittenTable) -> None:
    start = len(written.history) - 1
    followed: list[ChangeRow] = []
    ready, done = threading.Event(), threading.Event()

    def follow() -> None:
        for row in written.reader().follow(0):
            followed.append(row)
            ready.set()
            if row.key == ("the end",):
                done.set()
                return

    threading.Thread(target=follow, daemon=True).start()
    assert ready.wait(10)
    written.epoch({("a",): (1,)})
    written.merge(CHANGELOG, 1)
    written.epoch({("a",): (2,)})
    written.epoch({("the end",): (3,)})
    assert done.wait(10)
    places = [(row.epoch, row.seq) for row in followed]
    assert places == sorted(set(places))
    ends = {row.epoch for row in written.reader().changes(start)}
    assert ends <= {epoch for epoch, _ in places}


def test_a_savepoint_has_the_state_files_of_its_epoch(written: WrittenTable) -> None:
    kept = create_savepoint(written.place, "before")
    written.epoch({})
    written.epoch({("new",): (1,)})
    assert written.reader().results_in(kept.files) == shown(written.history[kept.row.epoch])


def test_unknown_jobs_and_paths_that_are_none_are_refused(written: WrittenTable) -> None:
    data = written.place.data
    assert find_job(data, "items") == written.place
    for name in ("item", "../jobs/items", "", "."):
        with pytest.raises(UnknownJob):
            find_job(data, name)


# --- what time does ---------------------------------------------------------------------------


def test_results_are_those_last_emitted_whatever_is_withheld(tmp_path: Path) -> None:
    made, reader = timed(tmp_path, Rules(withhold=True))
    made.epoch(insert("a", 1), counters={"changelog_rows": 0})
    assert TableReader.open(reader.paths).results() == {}
    made.time_epoch(release=True, counters={"changelog_rows": 1})
    made.epoch(insert("a", 5) + insert("b", 2), counters={"changelog_rows": 0})
    reader = TableReader.open(reader.paths)
    assert reader.results() == {("a",): (1, 1, 1)}
    assert reader.results(1) == {}
    seen, unseen = reader.explain(("a",)), reader.explain(("b",))
    assert (seen.withheld, seen.row_count, seen.row and seen.row["n"]) == (True, 2, 1)
    assert (unseen.withheld, unseen.row_count, unseen.row) == (True, 1, None)


def test_past_results_are_refused_where_groups_left_without_a_word(tmp_path: Path) -> None:
    made, reader = timed(tmp_path, Rules(ttl_ms=10, emit_expired=False))
    made.epoch(insert("a", 1), counters={"changelog_rows": 1})
    silent = {"changelog_rows": 0, "expired_silently": 1}
    made.time_epoch(10, counters=silent)
    made.epoch(insert("b", 1), counters={"changelog_rows": 1})
    reader = TableReader.open(reader.paths)
    assert [*reader.results()] == [("b",)]
    assert reader.results(2) == {}
    with pytest.raises(HistoryGone, match="without a changelog row up to epoch 2"):
        reader.results(1)


def test_a_savepoint_keeps_the_timers_and_a_rewind_brings_them_back(tmp_path: Path) -> None:
    made, reader = timed(tmp_path, Rules(ttl_ms=10))
    made.epoch(insert("a", 1) + insert("b", 1), counters={"changelog_rows": 2, "groups": 2})
    savepoint = create_savepoint(reader.paths, "before")
    assert {file.part for file in savepoint.files} == set(GROUP_STATE)
    made.time_epoch(10, counters={"changelog_rows": 2, "groups": 0})
    reader = TableReader.open(reader.paths)
    assert reader.results() == {}
    _commit(StoppedJob.open(reader.paths), savepoint)
    reader = TableReader.open(reader.paths)
    timers = [row for row in reader.part(TIMERS) if not row["tombstone"]]
    assert sorted((row["name"], row["timer_ms"]) for row in timers) == [("a", 10), ("b", 10)]
    assert len(reader.results()) == len(timers)
