"""The table of a job whose query is another from some epoch on, without Spark and Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.changing.evolve import CannotEvolve, activate_replay, evolve
from jobs.edge.process import failpoints
from jobs.edge.process.failpoints import FailpointError
from jobs.reading.history import HistoryGone
from jobs.running.failure import SpecMisfit
from jobs.running.job_table import load_last_spec, require_same_buckets
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.types.sql_types import INT, STRING
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.tables.written_table import WrittenTable

COLUMNS = {"name": STRING, "v": INT}
QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
BY_VALUE = "SELECT v, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY v"


@pytest.fixture
def written(tmp_path: Path) -> WrittenTable:
    table = WrittenTable(tmp_path, QUERY, COLUMNS)
    table.epoch({("a",): (1, 5), ("b",): (2,)})
    table.epoch({("a",): (1, 5), ("b",): (2, 9)})
    return table


def changed(written: WrittenTable, query: str) -> JobSpec:
    return load_spec(load_spec(written.place.spec).document() | {"query": query})


def test_groups_of_other_columns_begin_their_history_with_the_epoch(written: WrittenTable) -> None:
    spec = changed(written, BY_VALUE)
    with pytest.raises(CannotEvolve, match="GROUP BY changed"):
        evolve(written.place, spec)
    read_again = WrittenTable(written.place.home / "next", BY_VALUE, COLUMNS)
    read_again.epoch({(1,): (1,), (5,): (5,)})
    read_again.epoch({(1,): (1,), (5,): (5,), (2,): (2,), (9,): (9,)})
    done = activate_replay(written.place, spec)
    assert done.row is not None
    assert (done.row.epoch, done.row.begins, done.row.offsets) == (3, True, {"t": {"0": 20}})
    reader = written.reader()
    results = {key: (value, value) for key in ((1,), (2,), (5,), (9,)) for value in key}
    assert reader.results() == results
    changes = [(change.op, change.key, change.result) for change in reader.changes()]
    assert fold_changelog({}, changes) == results
    for since in (0, 1, 2):
        with pytest.raises(HistoryGone, match="history starts with epoch 3"):
            list(reader.changes(since))
        with pytest.raises(HistoryGone):
            reader.results(since)
    assert list(reader.changes(3)) == []


def test_a_table_whose_equal_sets_counted_once_goes_on_with_distinct(tmp_path: Path) -> None:
    """As a version wrote it that counted them once without the word."""
    sets = "DISTINCT GROUPING SETS (name, name, ())"
    query = f"SELECT name, SUM(v) AS s, MAX(v) AS top FROM t GROUP BY {sets}"
    table = WrittenTable(tmp_path, query, COLUMNS)
    table.epoch({("a", 0): (1, 5)})
    spec = changed(table, query)
    table.place.spec.write_text(table.place.spec.read_text().replace("DISTINCT ", ""))
    assert evolve(table.place, spec).row is None
    assert table.reader().results() == {("a", 0): (6, 5)}


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_a_job_whose_evolve_was_killed_is_read_with_the_spec_of_its_table(
    point: str, written: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = changed(written, "SELECT name, MAX(v) AS top FROM t GROUP BY name")
    monkeypatch.setitem(failpoints._POINTS, point, ("raise", 0))
    with pytest.raises(FailpointError):
        evolve(written.place, spec)
    monkeypatch.delitem(failpoints._POINTS, point)
    results = {("a",): (5,), ("b",): (9,)}
    if point == "before_commit":
        assert written.reader().results() == {("a",): (6, 5), ("b",): (11, 9)}
    else:
        assert written.reader().results() == results
    assert (evolve(written.place, spec).row is None) == (point == "after_commit")
    assert written.reader().results() == results
    assert load_spec(written.place.spec) == spec


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
def test_a_job_starts_with_the_spec_of_an_evolve_that_was_killed_after_its_commit(
    point: str, written: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = load_spec(written.place.spec).document()
    view = {"query": "SELECT name, MAX(v) AS top FROM t GROUP BY name", "state": {"buckets": 4}}
    monkeypatch.setitem(failpoints._POINTS, point, ("raise", 0))
    with pytest.raises(FailpointError):
        evolve(written.place, load_spec(old | {"views": {"tops": view}}))
    before = load_last_spec(written.place)
    assert before is not None
    if point == "before_commit":
        assert before.views is None
        return
    other = load_spec(old | {"views": {"tops": view | {"state": {"buckets": 8}}}})
    with pytest.raises(SpecMisfit, match=r"^views\.tops\.state\.buckets is fixed .* has 4"):
        require_same_buckets(other, before, written.place)


def test_a_topic_that_was_not_read_again_far_enough_takes_nothing_over(
    written: WrittenTable,
) -> None:
    WrittenTable(written.place.home / "next", BY_VALUE, COLUMNS).epoch({(1,): (1,)})
    before = written.reader().version
    with pytest.raises(CannotEvolve, match="was read again up to 10, and the job is at 20"):
        activate_replay(written.place, changed(written, BY_VALUE))
    assert written.reader().version == before
