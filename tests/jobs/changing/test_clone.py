"""A clone has the state, the results and a whole changelog of its own; the other job stays."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from jobs.changing.clone import CannotClone, clone
from jobs.changing.rewind import CannotRewind
from jobs.changing.savepoint import create_savepoint
from jobs.core.job.cloning import clone_spec
from jobs.core.values.change import Op
from jobs.edge.process.fence import OwnedElsewhere, WriterLock
from jobs.edge.process.job_directory import JobDirectory, list_jobs
from jobs.edge.table import pins
from jobs.edge.table.compaction import BASE_TIER
from jobs.edge.table.reading import TableReader
from jobs.edge.table.retention import expire_history
from jobs.reading.parts import ACCUMULATORS, MULTISETS
from jobs.reading.savepoints import savepoints
from schemas.spec.file import load_spec
from schemas.types.sql_types import INT, STRING
from tests.support.command.warm_command import warm_commands
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.tables.written_table import Live, WrittenTable, result

FIRST: Live = {("a",): (3, 9), ("b",): (1,), (None,): (5,)}
SECOND: Live = {("a",): (3,), ("b",): (1, 1), ("c",): (7,)}


@pytest.fixture
def written(tmp_path: Path) -> WrittenTable:
    table = WrittenTable(
        tmp_path,
        "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name",
        {"name": STRING, "v": INT},
    )
    table.epoch(FIRST)
    create_savepoint(table.place, "first")
    table.epoch(SECOND)
    return table


def cloned(written: WrittenTable, to: str | None = None, name: str = "other") -> TableReader:
    new = JobDirectory(written.place.data, name)
    clone(written.place, new, clone_spec(load_spec(written.place.spec), name), to)
    return TableReader.open(new)


def shown(live: Live) -> dict[object, object]:
    return {key: result(values) for key, values in live.items()}


@pytest.mark.parametrize(("to", "live"), [(None, SECOND), ("first", FIRST), ("1", FIRST)])
def test_a_clone_has_the_results_and_the_state_of_that_epoch(
    written: WrittenTable, to: str | None, live: Live
) -> None:
    other = cloned(written, to)
    assert other.results() == shown(live)
    rows = ((change.op, change.key, change.result) for change in other.changes())
    assert fold_changelog({}, rows) == shown(live)
    assert {change.op for change in other.changes()} == {Op.INSERT}
    for key in live:
        output = other.explain(key)
        multiset = {e["value"]: e["multiplicity"] for e in output.arguments[0]["multiset"]}
        assert multiset == {value: live[key].count(value) for value in live[key]}
        assert output.row_count == len(live[key])
        assert output.history_complete
    start, newest = other.kept_epochs
    assert (start.kind, start.offsets) == ("start", {"t": {"0": 0}})
    of = 2 if to is None else 1
    assert (newest.kind, newest.offsets) == ("clone", {"t": {"0": 10 * of}})
    assert {row.generation for row in other.kept_epochs} != {written.reader().newest.generation}


@pytest.mark.parametrize("views", [False, True])
def test_a_clone_knows_what_was_refused_and_dropped_before_retention_too(
    written: WrittenTable, views: bool
) -> None:
    plan = written.plan.fingerprint
    own = {"quarantined": 1, "dropped_retractions": 2}
    shares = {"views": {"": {"plan": plan, "counters": {"refused": 1, "dropped_retractions": 2}}}}
    written.epoch(FIRST, **(shares if views else own))
    written.epoch(SECOND, **({"views": {"": {"plan": plan, "counters": {}}}} if views else {}))
    for name in ("early", "late"):
        other = cloned(written, name=name)
        assert other.refusing == {""}
        assert other.newest.counts.dropped_retractions == 2
        newest = written.reader().newest.epoch
        expired = expire_history(written.table, 10**18, newest, uuid4().hex)
        if expired is not None:
            written.table.commit(expired.added, expired.removed, uuid="0" * 32, what="retention")
    assert cloned(written, "first", "before").refusing == {""}  # retention has added them up


def test_a_clone_of_merged_files_is_the_same(written: WrittenTable) -> None:
    for part in (ACCUMULATORS, MULTISETS):
        written.merge(part, BASE_TIER)
    assert cloned(written).results() == shown(SECOND)


def test_the_other_job_stays_as_it_is_and_its_files_are_let_go_of(written: WrittenTable) -> None:
    before = written.reader().version
    other = cloned(written, "first")
    assert [each.name for each in savepoints(written.place.home)] == ["first"]
    assert written.reader().version == before
    shutil.rmtree(written.place.home)
    assert other.results() == shown(FIRST)


def test_what_cannot_be_cloned_makes_no_job(written: WrittenTable) -> None:
    spec = load_spec(written.place.spec)
    for change, word in (
        ({"query": "SELECT name, SUM(v) AS total FROM t GROUP BY name"}, "query"),
        ({"state": {"buckets": 8}}, "state.buckets"),
        ({"source": {"topic": "u"}}, "source.topics"),
    ):
        document = clone_spec(spec, "other").document() | change
        with pytest.raises(CannotClone, match=word):
            clone(
                written.place, JobDirectory(written.place.data, "other"), load_spec(document), None
            )
    with pytest.raises(CannotRewind, match="no savepoint"):
        cloned(written, "nowhere")
    assert list_jobs(written.place.data) == ["items"]
    assert [each.name for each in savepoints(written.place.home)] == ["first"]
    cloned(written)
    with pytest.raises(CannotClone, match="already"):
        cloned(written)
    lock = WriterLock(JobDirectory(written.place.data, "third").lock, "third")
    with pytest.raises(OwnedElsewhere):
        cloned(written, name="third")
    lock.release()


def clone_by_command(
    written: WrittenTable, failpoints: str = ""
) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RETALLY_FAILPOINTS", failpoints)
        data = str(written.place.data)
        return warm_commands.run("clone", "items", "other", "--data", data, "--json")


def test_a_killed_clone_has_made_no_job_and_the_next_one_does(written: WrittenTable) -> None:
    assert clone_by_command(written, "before_clone=kill").returncode == -9
    assert list_jobs(written.place.data) == ["items"]
    done = clone_by_command(written)
    assert done.returncode == 0, done.stderr
    expected = {"job": "other", "of": "items", "cloned": 2, "epoch": 1, "groups": 3}
    assert msgspec.json.decode(done.stdout) == expected
    assert TableReader.open(JobDirectory(written.place.data, "other")).results() == (shown(SECOND))


def test_what_a_killed_clone_has_pinned_is_let_go_of_and_what_a_living_one_has_is_not(
    written: WrittenTable,
) -> None:
    assert clone_by_command(written, "clone_pinned=kill").returncode == -9
    home = written.place.home
    (left,) = [each.name for each in savepoints(home) if each.name != "first"]
    mine = "clone-0123456789ab"
    with pins.hold_pin(home, mine):
        create_savepoint(written.place, mine)
        assert pins.delete_dead_pins(home) == [left]
        assert {each.name for each in savepoints(home)} == {"first", mine}
    assert [path.name for path in written.place.savepoints.iterdir()] == ["first.json"]


def test_a_pin_whose_maker_cannot_be_asked_is_let_go_of_when_it_is_old(
    written: WrittenTable,
) -> None:
    home, name = written.place.home, "clone-0123456789ab"
    create_savepoint(written.place, name)  # as an older retally did, without a lock
    assert pins.delete_dead_pins(home) == []
    lock = written.place.savepoints / f"{name}.lock"
    lock.write_text('{"pid": 1, "host": "elsewhere"}')
    assert pins.delete_dead_pins(home) == []
    os.utime(lock, (0, 0))
    assert pins.delete_dead_pins(home) == [name]
    assert [path.name for path in written.place.savepoints.iterdir()] == ["first.json"]
