"""Results are kept while their table is what it was, and read again after any change of it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from jobs.edge.process.job_directory import JobDirectory
from jobs.querying import tables
from jobs.querying.kept import CLOCK_NS, JobResults, KeptResults
from jobs.querying.statement import Moment, StatementRefused
from jobs.querying.tables import read_job
from jobs.reading.files import log_entry
from schemas import limits
from schemas.types.sql_types import INT, STRING
from tests.support.tables.written_table import WrittenTable

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
NOW = Moment()


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> KeptResults:
    kept = KeptResults()
    monkeypatch.setattr(tables, "_kept", kept)
    return kept


def write(data: Path, value: int) -> WrittenTable:
    table = WrittenTable(data, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): (value,)})
    age(table.place)
    return table


def age(place: JobDirectory) -> None:
    """Wait until the files of a job are old enough to be kept; no call sets the time compared."""
    changed = max(path.stat().st_ctime_ns for path in place.home.rglob("*"))
    while time.time_ns() <= changed + CLOCK_NS:
        time.sleep(0.01)


def read(data: Path, moment: Moment = NOW) -> tuple[JobResults, int]:
    """Return what is read, and the one value in it."""
    found = read_job(data, "items", moment)
    return found, found.rows["total"].to_pylist()[0]


def test_what_has_not_changed_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, 1)
    first, value = read(tmp_path)
    assert (first.epoch, value) == (1, 1)
    assert read(tmp_path)[0] is first
    past, _ = read(tmp_path, Moment(epoch=1))
    assert past is not first
    assert read(tmp_path, Moment(epoch=1, text=" AT EPOCH 1", position=7))[0] is past


def test_an_epoch_is_read_at_once(tmp_path: Path) -> None:
    table = write(tmp_path, 1)
    read(tmp_path)
    for value in (2, 3):
        table.epoch({("a",): (value,)})
        assert (read(tmp_path)[0].epoch, read(tmp_path)[1]) == (value, value)
        age(table.place)
        assert read(tmp_path)[0] is read(tmp_path)[0]
    assert read(tmp_path, Moment(epoch=1))[1] == 1


def test_a_table_made_anew_at_the_same_version_is_read(tmp_path: Path) -> None:
    before, aside = write(tmp_path / "x", 1), tmp_path / "aside"
    assert read(tmp_path / "x")[1] == 1
    before.place.home.rename(aside)
    with pytest.raises(StatementRefused, match="has been deleted"):
        read(tmp_path / "x")
    write(tmp_path / "x", 2)
    assert read(tmp_path / "x")[1] == 2
    shutil.rmtree(before.place.home)
    aside.rename(before.place.home)
    assert read(tmp_path / "x")[1] == 1


def test_another_spec_is_read(tmp_path: Path) -> None:
    table = write(tmp_path, 1)
    first, _ = read(tmp_path)
    spec = table.place.spec
    spec.write_text("# edited\n" + spec.read_text())
    age(table.place)
    again, _ = read(tmp_path)
    assert again is not first and read(tmp_path)[0] is again
    spec.write_text("query: [")
    with pytest.raises(StatementRefused, match="damaged"):
        read(tmp_path)


def test_what_was_just_written_is_not_kept(tmp_path: Path) -> None:
    """A file that replaces it could have the same time."""
    table = write(tmp_path, 1)
    for path in (table.place.spec, log_entry(table.place.table, table.reader().version)):
        assert isinstance(path, Path)
        age(table.place)
        os.utime(path)
        assert read(tmp_path)[0] is not read(tmp_path)[0]


def test_what_was_used_last_is_kept_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1)
    first, _ = read(tmp_path)
    monkeypatch.setattr(limits, "SQL_KEPT_TABLES_MAX", 2)
    past, _ = read(tmp_path, Moment(epoch=1))
    assert read(tmp_path)[0] is first
    read(tmp_path, Moment(time_us=2**60))
    assert read(tmp_path)[0] is first
    assert read(tmp_path, Moment(epoch=1))[0] is not past
    monkeypatch.setattr(limits, "SQL_KEPT_BYTES_MAX", first.rows.nbytes - 1)
    assert read(tmp_path, Moment(epoch=1))[0] is not None
    assert (
        read(tmp_path, Moment(time_us=2**60 + 1))[0]
        is not read(tmp_path, Moment(time_us=2**60 + 1))[0]
    )
