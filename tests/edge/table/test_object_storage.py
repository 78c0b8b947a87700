"""A job's table in object storage: one commit or none, whatever the network does.

The storage is a real server that speaks S3, in a process of its own; rivals are processes, and the
lost reply is one that the server does not send.
"""

from __future__ import annotations

import os
import pickle
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.changing.clone import CannotClone, clone
from jobs.changing.savepoint import create_savepoint
from jobs.core.fold.program import Program
from jobs.core.job.cloning import clone_spec
from jobs.edge.process.job_directory import list_jobs
from jobs.edge.table.compaction import Merge
from jobs.edge.table.delta_epochs import CommitUnknown, EpochTable, Fenced
from jobs.edge.table.epoch_files import TableLayout
from jobs.edge.table.file_writer import file_name, write_file
from jobs.edge.table.reading import TableReader
from jobs.edge.table.table_location import choose_location, prepare_new_table
from jobs.reading.epoch_rows import epoch_rows
from jobs.reading.files import live_files, open_table
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, PARTS
from jobs.reading.version import TableVersion, at_newest
from schemas import limits
from schemas.directory.paths import JobDirectory, discard
from schemas.spec.file import load_spec
from schemas.table.object_path import ObjectPath, TablePath
from schemas.types.sql_types import INT, STRING
from tests.support.epoch_rows import epoch_row
from tests.support.forks import Fork, Say
from tests.support.object_storage import BUCKET, Storage
from tests.support.tables.folded_table import FoldedTable, a_plan, insert
from tests.support.tables.maintained_job import MaintainedJob
from tests.support.tables.written_table import Live, WrittenTable, result


@pytest.fixture(scope="module")
def running() -> Iterator[Storage]:
    with Storage() as storage:
        yield storage


@pytest.fixture
def storage(running: Storage, monkeypatch: pytest.MonkeyPatch) -> Storage:
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    return running


@pytest.fixture
def root(storage: Storage, request: pytest.FixtureRequest) -> ObjectPath:
    return ObjectPath.of(f"s3://{BUCKET}/{request.node.name}/items/epochs")


def names(place: TablePath) -> list[str]:
    return sorted(path.name for path in place.glob("*"))


# --- the double -------------------------------------------------------------------------------


def test_the_storage_refuses_a_second_put_of_what_is_to_be_new(storage: Storage) -> None:
    storage.ask(f"/{BUCKET}/once", "PUT", If_None_Match="*")
    with pytest.raises(urllib.error.HTTPError) as refused:
        storage.ask(f"/{BUCKET}/once", "PUT", If_None_Match="*")
    assert refused.value.code == 412


# --- a path -----------------------------------------------------------------------------------


def test_a_place_in_storage_answers_as_a_path_does(root: ObjectPath, tmp_path: Path) -> None:
    def said(place: TablePath) -> list[object]:
        found: list[object] = [place.is_dir(), (place / "log").exists(), names(place)]
        place.mkdir(parents=True, exist_ok=True)
        for name in ("log", "0.json", "1.json"):
            with (
                (place / name).open("wb") if isinstance(place, Path) else (place / name).sink() as f
            ):
                f.write(name.encode() * 3)
        found += [place.is_dir(), (place / "log").exists(), names(place), (place / "x").exists()]
        found += sorted((path.name, path.stem) for path in place.glob("*.json"))
        found += [(place / "log").read_text(), (place / "log").stat().st_size]
        found += [abs((place / "log").stat().st_mtime - time.time()) < 60, place.name]
        found += [(place / "a" / "b").parent.name, str(place / "a") == f"{place}/a"]
        (place / "log").unlink()
        (place / "log").unlink(missing_ok=True)
        found += [names(place)]
        for missing in ((place / "log").stat, (place / "log").read_text):
            with pytest.raises(FileNotFoundError):
                missing()
        return found

    assert said(root) == said(tmp_path / "epochs")
    assert pickle.loads(pickle.dumps(root)) == root


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3://b",
        "s3://key:secret@bucket/x",
        "s3://bucket/a b",
        "s3://bucket/../x",
        "s3://bucket//x",
        "gs://bucket/x",
        "s3://bucket/x?token=1",
        "/data",
        "",
    ],
)
def test_what_is_no_place_for_tables_is_refused_and_keys_belong_into_the_environment(
    url: str,
) -> None:
    with pytest.raises(ValueError, match="AWS_ACCESS_KEY_ID"):
        ObjectPath.of(url)


# --- one commit, or none ----------------------------------------------------------------------


def test_every_commit_is_put_only_where_none_is(made: FoldedTable, storage: Storage) -> None:
    before = storage.conditional_puts
    made.epoch(insert("c", 4))
    made.epoch(insert("d", 4))
    assert storage.conditional_puts == before + 2


def test_a_commit_whose_reply_is_lost_is_recognised_as_ours(
    made: FoldedTable, storage: Storage
) -> None:
    lost = storage.lost
    storage.lose_reply_to(f"{made.table.version + 1:020d}.json")
    row = made.epoch(insert("c", 4))
    assert storage.lost == lost + 1
    assert made.table.newest() == row
    assert made.epoch(insert("d", 5)) == made.table.newest(), "and the next one goes on"
    found = epoch_rows(made.table.root, live_files(open_table(made.table.root)))
    assert [each.epoch for each in found] == [0, 1, 2, 3]


def test_a_file_whose_reply_is_lost_is_there_once_and_whole(
    made: FoldedTable, storage: Storage
) -> None:
    lost = storage.lost
    name = file_name(ACCUMULATORS, 2, "mine", "f0")
    storage.lose_reply_to(name)
    rows = made.layout.accumulators_table(2, [0], [(("x",), None)])
    file = write_file(made.table.root, name, rows)
    assert storage.lost == lost + 1
    assert (made.table.root / name).stat().st_size == file.size


def race(say: Say, root: ObjectPath, last: int) -> None:
    """Commit epochs up to the last one; only the storage decides who does."""
    EpochTable.require_own_version = lambda self: None  # type: ignore[method-assign]
    layout = TableLayout(Program(a_plan()))
    table = EpochTable.open(root, layout)
    while (newest := table.newest()) is not None and newest.epoch < last:
        row = epoch_row(newest.epoch + 1)
        try:
            table.commit_epoch(row, ())
            say((row.epoch, row.uuid))
        except Fenced:
            say("refused")
            table = EpochTable.open(root, layout)


def test_two_processes_that_race_lose_no_commit_and_repeat_none(made: FoldedTable) -> None:
    last, root = 10, made.table.root
    racers = [Fork(race, root, last) for _ in range(2)]
    said = [each for racer in racers for each in racer.read_all()]
    assert [racer.wait() for racer in racers] == [0, 0]
    committed = [each for each in said if each != "refused"]
    rows = epoch_rows(root, live_files(open_table(root)))
    assert [(row.epoch, row.uuid) for row in rows[2:]] == sorted(committed)
    assert len(committed) == last - 1
    assert "refused" in said, "they never met"


def test_an_epoch_takes_as_many_requests_whatever_the_log_has(
    made: FoldedTable, storage: Storage
) -> None:
    def requests() -> int:
        before = storage.requests
        made.epoch(insert("c", 4))
        return storage.requests - before

    counted = [requests() for _ in range(12)]
    assert max(counted[-3:]) <= max(counted[:3]) <= 20, counted


# --- what else is done to a table -------------------------------------------------------------


def test_a_merged_and_checkpointed_table_says_the_same_to_job_and_service(
    made: FoldedTable,
) -> None:
    for value in range(5):
        made.epoch(insert("c", value))
    files = [file for file in made.table.live_files() if file.part == CHANGELOG]
    made.merge(Merge(CHANGELOG, 1, tuple(files)))
    handle = open_table(made.table.root)
    handle.create_checkpoint()
    handle.cleanup_metadata()
    reopened = EpochTable.open(made.table.root, made.layout)
    assert reopened.newest() == made.newest
    assert reopened.removed_since(0), "what the merge took out is known from the log"
    table = at_newest(made.table.root, lambda table: table)
    assert isinstance(table, TableVersion)
    assert table.newest == made.newest
    changelog = table.changelog(0, made.newest.epoch)
    assert changelog is not None
    assert changelog.num_rows == len(made.changelog)
    of_one = table.changelog(2, 3)
    assert of_one is not None
    assert of_one["op"].to_pylist() == ["-U", "+U"]


@pytest.mark.slow
def test_what_came_of_a_commit_that_cannot_be_seen_is_seen_by_the_next_start(
    root: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge was committed, and then nobody could look: the job ends, and is not fenced."""
    monkeypatch.setattr(limits, "MAINTENANCE_EVERY_SECONDS", 0.0)
    choose_location(JobDirectory(tmp_path, "items"), root.parent.parent)
    job = MaintainedJob(tmp_path)
    look = EpochTable._writer_of

    def away(table: EpochTable, version: int) -> str | None:
        with monkeypatch.context() as outage:
            outage.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
            return look(table, version)

    try:
        job.epochs(limits.COMPACTION_FAN_IN)
        before, version = job.results(), job.pipeline.table.version
        with monkeypatch.context() as outage, pytest.raises(CommitUnknown, match="next start"):
            outage.setattr(EpochTable, "_writer_of", away)
            job.work_until(lambda: False)
        job.begin()
        assert job.pipeline.table.version == version + 1
        job.epochs(1)
        assert dict(job.results()).keys() >= dict(before).keys()
    finally:
        job.maintenance.close()


# --- where it is ------------------------------------------------------------------------------


def test_the_data_directory_knows_where_its_tables_are(root: ObjectPath, tmp_path: Path) -> None:
    tables, place = root.parent.parent, JobDirectory(tmp_path, "items")
    choose_location(place, None)
    assert not place.has_table
    assert place.table == tmp_path / "jobs" / "items" / "epochs"
    choose_location(place, tables)
    assert place.has_table
    table = place.table
    assert table.parent == root.parent
    choose_location(place, ObjectPath.of(f"s3://{BUCKET}/elsewhere"))
    assert place.table == table, "a job keeps its place"
    again = JobDirectory(tmp_path / "again", "items")
    choose_location(again, tables)
    assert again.table != table, "and nobody else gets it"
    local = JobDirectory(tmp_path, "local")
    local.own_table.mkdir(parents=True)
    choose_location(local, tables)
    assert local.table == local.own_table
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and secret in p.read_text()]


def test_what_a_kill_left_of_a_table_is_removed_before_the_next_try(
    root: ObjectPath, tmp_path: Path
) -> None:
    place = JobDirectory(tmp_path, "items")
    killed = prepare_new_table(place, root.parent)
    FoldedTable(killed.table)
    assert not place.has_table
    building = prepare_new_table(place, root.parent)
    assert not killed.table.is_dir()
    FoldedTable(building.table)
    building.activate()
    assert place.has_table
    assert place.table == building.table


def test_discarding_a_job_discards_its_table(root: ObjectPath, tmp_path: Path) -> None:
    place = JobDirectory(tmp_path, "items")
    choose_location(place, root.parent.parent)
    choose_location(place.shadow, root.parent)
    tables = [place.table, place.shadow.table]
    for table in tables:
        FoldedTable(table)
        assert table.is_dir()
    discard(place.home)
    assert not place.home.exists()
    assert not [table for table in tables if table.is_dir()]


def test_a_job_is_kept_whole_while_its_storage_does_not_answer(
    root: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = JobDirectory(tmp_path, "items")
    choose_location(place, root.parent.parent)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(OSError):
        discard(place.home)
    assert place.has_table


# --- clone, savepoint, another query ----------------------------------------------------------

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
FIRST: Live = {("a",): (3, 9), ("b",): (1,)}
SECOND: Live = {("a",): (3,), ("b",): (1, 1), ("c",): (7,)}


def shown(live: Live) -> dict[object, object]:
    return {key: result(values) for key, values in live.items()}


@pytest.fixture
def written(root: ObjectPath, tmp_path: Path) -> WrittenTable:
    choose_location(JobDirectory(tmp_path, "items"), root.parent.parent)
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch(FIRST)
    create_savepoint(table.place, "first")
    table.epoch(SECOND)
    return table


def test_a_clone_goes_from_storage_to_storage_and_to_the_disk(
    written: WrittenTable, root: ObjectPath
) -> None:
    spec = load_spec(written.place.spec)
    for name, tables in (("there", root.parent.parent), ("here", None)):
        new = JobDirectory(written.place.data, name)
        clone(written.place, new, clone_spec(spec, name), "first", tables)
        assert isinstance(new.table, Path) == (tables is None)
        assert name in list_jobs(written.place.data)
        assert TableReader.open(new).results() == shown(FIRST)
        with pytest.raises(CannotClone, match="exists already"):
            clone(written.place, new, clone_spec(spec, name), None, tables)
    assert new.own_table.is_dir()
    assert TableReader.open(written.place).results() == shown(SECOND)


@pytest.mark.slow
def test_a_table_is_maintained_where_it_is(
    root: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged by a process of its own, its log shortened, what nobody refers to swept."""
    monkeypatch.setattr(limits, "MAINTENANCE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(limits, "CHECKPOINT_EVERY_COMMITS", 20)
    choose_location(JobDirectory(tmp_path, "items"), root.parent.parent)
    job = MaintainedJob(tmp_path)
    try:
        job.epochs(limits.COMPACTION_FAN_IN)
        before = job.results()
        job.work_until(lambda: job.merged(CHANGELOG) and job.merged(ACCUMULATORS))
        table = job.place.table
        assert (table / "_delta_log" / "_last_checkpoint").exists()

        def there() -> set[str]:
            return {f"part={part}/{n}" for part in PARTS for n in names(table / f"part={part}")}

        orphan = file_name(ACCUMULATORS, 3, "never", "f0")
        write_file(table, orphan, job.made.layout.accumulators_table(3, [0], [(("x",), None)]))
        whole = there()
        job.maintenance.sweep()
        assert there() == whole, "nothing is old enough"
        job.pipeline.views[0].recent_epochs.clear()
        monkeypatch.setattr(limits, "ORPHAN_AGE_SECONDS_MIN", -60)
        job.maintenance.sweep()
        assert orphan in whole - there()
        assert there() >= {file.path for file in job.live()}
        job.begin()
        assert job.results() == before
    finally:
        job.maintenance.close()
