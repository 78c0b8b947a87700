"""Readers of tables are processes of their own; whatever ends one, answers go on, or come back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from jobs.core.sql.select import parse_query
from jobs.reading.row_shape import RowShape
from schemas.types.sql_types import STRING
from service.live.results_index import locate_index
from tests.support.service.served import Served, eventually
from tests.support.service.tables import WatchedTable, shown

PAGE = 4_096  # bytes


@pytest.fixture
def running(data: Path) -> Iterator[Served]:
    running = Served.start(data)
    yield running
    running.kill()


def forked(served: Served) -> tuple[psutil.Process, list[psutil.Process]]:
    """The service's nursery, and the readers that it has begun."""
    return served.nursery, served.nursery.children()


def results(client: httpx.Client) -> dict[str | None, tuple[int, int]]:
    return shown(client.get("/v1/jobs/items/results"))


def test_a_reader_that_is_killed_is_followed_by_another(running: Served) -> None:
    table = WatchedTable(running)
    table.write({"a": (1,), "b": (2,)})
    table.seen()
    _, (reader,) = forked(running)
    with running.client() as client, client.stream("GET", "/v1/jobs/items/changes") as stream:
        lines = stream.iter_lines()
        reader.kill()
        eventually(lambda: client.get("/v1/jobs/items").json()["table"])
        table.write({"a": (1, 5), "b": (2,)})
        table.seen()
        assert results(client) == table.live()
        assert client.get("/v1/jobs/items").json()["table"] is None
        output = [line for line in lines_until_progress(lines) if '"op":"+U"' in line]
        assert [('"name":"a"' in line, '"total":6' in line) for line in output] == [(True, True)]
    _, (other,) = forked(running)
    assert other.pid != reader.pid


def test_a_damaged_index_is_filled_again(data: Path) -> None:
    """Its header is whole, and pages of its rows are not, as after a loss of power."""
    running = Served.start(data)
    table = WatchedTable(running)
    table.write({f"k{number}": (number,) for number in range(400)})
    table.seen()
    running.kill()
    (index,) = (data / "service" / "jobs" / "items" / "index").glob("*.sqlite")
    with sqlite3.connect(index) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    pages = bytearray(index.read_bytes())
    for page in range(2, len(pages) // PAGE):  # the first two are of the schema
        pages[page * PAGE : page * PAGE + 8] = b"\xff" * 8
    index.write_bytes(pages)
    running = Served.start(data)
    try:
        table.served = running
        table.write({"a": (1,)})
        table.seen()
        with running.client() as client:
            assert results(client) == table.live()
    finally:
        running.kill()


def test_an_index_of_before_the_machine_started_is_not_read(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = RowShape(
        parse_query("SELECT k, COUNT(*) AS n FROM t GROUP BY k", {"k": STRING}), safe=True
    )
    before = locate_index(data, shape)
    other = data / "boot_id"
    other.write_text("5eed5eed-0000-0000-0000-000000000000\n")
    monkeypatch.setattr("service.live.results_index.BOOT_ID", other)
    assert locate_index(data, shape) != before


def test_a_file_that_the_table_has_lost_is_reported(running: Served) -> None:
    table = WatchedTable(running)
    table.write({"a": (1,)})
    table.seen()
    running.kill()
    for path in table.table.place.table.glob("part=accumulators/*.parquet"):
        path.unlink()
    for path in (running.data / "service" / "jobs" / "items" / "index").glob("*.sqlite*"):
        path.unlink()
    again = Served.start(running.data)
    try:
        told = eventually(lambda: again.job("items")["table"])
        assert told == "the table misses a file; see the service's log"
    finally:
        again.kill()


def lines_until_progress(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line == "event: progress":
            return


@pytest.mark.slow
def test_no_process_outlives_its_service(running: Served) -> None:
    table = WatchedTable(running)
    table.write({"a": (1,)})
    table.seen()
    nursery, readers = forked(running)
    running.kill()
    gone, alive = psutil.wait_procs([nursery, *readers], 10)
    assert (len(gone), alive) == (2, [])


def test_a_service_that_stops_takes_its_readers_along(data: Path) -> None:
    with (data / "stderr").open("wb") as errors:
        running = Served.start(data, errors=errors)
    WatchedTable(running)
    eventually(lambda: forked(running)[1])
    nursery, readers = forked(running)
    for each in (*readers, nursery):  # a shell's `kill %1` is for the whole group
        each.terminate()
    assert psutil.wait_procs([nursery, *readers], 0.5)[0] == []
    assert running.stop() == 0
    _, alive = psutil.wait_procs([nursery, *readers], 10)
    assert alive == []
    log = (data / "stderr").read_text()
    assert "Finished server process" in log and not {"ERROR", "CRITICAL"} & set(log.split())


@pytest.mark.slow
def test_a_job_that_is_deleted_has_no_reader_any_more(running: Served) -> None:
    table = WatchedTable(running)
    table.write({"a": (1,)})
    table.seen()
    _, readers = forked(running)
    with running.client() as client:
        assert client.delete("/v1/jobs/items?data=keep").status_code == 204
    assert psutil.wait_procs(readers, 10)[1] == []
    assert forked(running)[1] == []


@pytest.mark.slow
def test_a_service_that_cannot_begin_readers_ends_loudly(data: Path) -> None:
    running = Served.start(data)
    nursery, _ = forked(running)
    nursery.kill()
    WatchedTable(running)
    assert running.process.wait(20) == 0
