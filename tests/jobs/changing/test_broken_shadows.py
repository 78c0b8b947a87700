"""A shadow job of which only a part is left blocks no evolve, and leaves nothing on the disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.changing.evolve import prepare_replay
from jobs.edge.table.table_location import choose_location
from jobs.running import shadow_job
from jobs.running.shadow_job import discard_left_shadow, discard_shadow, read_newest_of_shadow
from schemas.directory.paths import JobDirectory
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from schemas.table.object_path import ObjectPath, TablePath
from schemas.types.sql_types import INT, STRING
from tests.support.object_storage import BUCKET, Storage
from tests.support.tables.written_table import WrittenTable

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"

remove_tree = shutil.rmtree


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def written(tmp_path: Path) -> WrittenTable:
    written = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    written.epoch({("a",): (1, 5)})
    return written


def changed(place: JobDirectory) -> JobSpec:
    return load_spec(load_spec(place.spec).document() | {"query": QUERY + " HAVING MAX(v) > 2"})


def remove_log(directory: Path, **_: Any) -> None:
    """Delete the log of the table in a directory, and be killed before the rest is deleted."""
    for log in list(directory.rglob("_delta_log")):
        remove_tree(log)
        raise Killed


def test_a_kill_while_a_shadow_job_is_deleted_leaves_no_half_of_it_to_continue(
    written: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, spec = written.place, changed(written.place)
    shadow = prepare_replay(place, spec).shadow
    for _ in range(2):  # the next command may be killed as well
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(shutil, "rmtree", remove_log)
            discard_shadow(place)
        assert not shadow.data.exists()
        assert len(place.list_discarded_shadows()) == 1
        assert prepare_replay(place, spec).shadow.has_table
        assert place.list_discarded_shadows() == []


def test_a_start_of_the_job_deletes_the_rest_of_a_shadow_job(
    written: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, newest = written.place, written.reader().newest
    prepare_replay(place, changed(place))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(shutil, "rmtree", remove_log)
        discard_shadow(place)
    prepared = {path.name for path in place.home.iterdir()}
    assert [name for name in prepared if name.startswith("next")] != []
    discard_left_shadow(place, newest)
    left = {path.name for path in place.home.iterdir()}
    assert [name for name in left if name.startswith("next")] == []


def lose_log(table: Path) -> None:
    shutil.rmtree(table / "_delta_log")


def damage_log(table: Path) -> None:
    for entry in (table / "_delta_log").glob("*.json"):
        entry.write_text("nonsense")


def lose_epochs(table: Path) -> None:
    for file in table.glob("part=epochs/*.parquet"):
        file.unlink()


@pytest.mark.parametrize("damage", [lose_log, damage_log, lose_epochs])
def test_a_shadow_job_that_cannot_be_read_is_discarded(
    written: WrittenTable, damage: Callable[[Path], None]
) -> None:
    place, spec, newest = written.place, changed(written.place), written.reader().newest
    shadow = prepare_replay(place, spec).shadow
    damage(shadow.own_table)
    assert read_newest_of_shadow(shadow) is None
    row = read_newest_of_shadow(prepare_replay(place, spec).shadow)
    assert row is not None and row.kind == "start"
    damage(shadow.own_table)
    discard_left_shadow(place, newest)
    assert not shadow.data.exists()


def test_a_shadow_job_whose_storage_fails_is_kept(
    written: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, spec, newest = written.place, changed(written.place), written.reader().newest
    shadow = prepare_replay(place, spec).shadow
    before = read_newest_of_shadow(shadow)

    def fail(*_: object) -> None:
        raise ConnectionError("the storage does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(shadow_job, "open_table", fail)
        with pytest.raises(ConnectionError):
            prepare_replay(place, spec)
        discard_left_shadow(place, newest)
    assert before is not None and read_newest_of_shadow(shadow) == before


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    with Storage() as storage:
        for name, value in storage.environment.items():
            monkeypatch.setenv(name, value)
        yield storage


def test_a_shadow_table_in_object_storage_of_which_a_part_is_left_is_deleted(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_location(JobDirectory(tmp_path, "items"), ObjectPath.of(f"s3://{BUCKET}"))
    written = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    written.epoch({("a",): (1, 5)})
    place, spec, newest = written.place, changed(written.place), written.reader().newest
    table = place.table
    assert isinstance(table, ObjectPath)

    first = prepare_replay(place, spec).shadow.table
    remove_objects(first)
    second = prepare_replay(place, spec).shadow.table
    assert second.name != first.name
    assert set(table.parent.list_directories()) == {table.name, second.name}

    def kill(of: ObjectPath) -> None:
        remove_objects(of)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(ObjectPath, "remove_tree", kill)
        discard_shadow(place)
    assert not place.shadow.has_table
    assert set(table.parent.list_directories()) == {table.name, second.name}
    discard_left_shadow(place, newest)
    assert table.parent.list_directories() == [table.name]
    assert place.list_discarded_shadows() == []


def remove_objects(table: TablePath) -> None:
    """Delete the log of a table; the other objects stay."""
    for entry in (table / "_delta_log").glob("*"):
        entry.unlink()
