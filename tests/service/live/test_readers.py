"""Readers of tables are processes of their own; whatever ends one, answers go on, or come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.service.served import Served, eventually
from tests.support.service.tables import WatchedTable, shown


@pytest.fixture
def running(data: Path) -> Iterator[Served]:
    running = Served.start(data)
    yield running
    running.kill()


def forked(served: Served) -> tuple[psutil.Process, list[psutil.Process]]:
    """The service's nursery, and the readers that it has begun."""
    (nursery,) = psutil.Process(served.process.pid).children()
    return nursery, nursery.children()


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
    running = Served.start(data)
    WatchedTable(running)
    eventually(lambda: forked(running)[1])
    nursery, readers = forked(running)
    assert running.stop() == 0
    assert not any(each.is_running() for each in (nursery, *readers))


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
