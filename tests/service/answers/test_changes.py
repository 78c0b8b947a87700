"""Changes over HTTP: each once, whole epochs, resumed where a client was, snapshot then follow."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.service.followers import CHANGES, Event, folded, following
from tests.support.service.served import Served, eventually, problem
from tests.support.service.tables import WatchedTable


def until_epoch(stream: Iterator[Event], epoch: int) -> list[Event]:
    taken = []
    for event in stream:
        taken.append(event)
        if event.kind == "progress" and event.data["epoch"] >= epoch:
            return taken
    raise AssertionError("the stream ended")


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[WatchedTable]:
    served = Served.start(tmp_path)
    watched = WatchedTable(served)
    chance = random.Random(1)
    for _ in range(10):
        watched.write({f"g{chance.randint(0, 9)}": (chance.randint(0, 5),) for _ in range(6)})
    watched.seen()
    yield watched
    if watched.served.process.poll() is None:
        watched.served.stop()


def test_from_the_first_epoch_the_changes_fold_to_every_epoch(watched: WatchedTable) -> None:
    with following(watched.served, since=0) as stream:
        rows: dict[Any, Any] = {}
        for epoch in range(1, watched.newest + 1):
            taken = until_epoch(stream, epoch)
            rows = folded(taken, rows)
            assert rows == watched.live(epoch)
        new = watched.write({"new": (5,)}, {"new": (6,), "other": (1,)})
        assert folded(until_epoch(stream, new), rows) == watched.live()
        ids = [tuple(map(int, event.id.split(":")[:2])) for event in taken if event.id]
        assert ids == sorted(set(ids))


@pytest.mark.slow
def test_a_client_that_comes_back_goes_on_after_its_last_row(watched: WatchedTable) -> None:
    with following(watched.served, since=0) as stream:
        everything = until_epoch(stream, watched.newest)
    rows = [event for event in everything if event.kind == "change"]
    for position in range(0, len(rows), 7):
        headers = {"Last-Event-ID": str(rows[position].id)}
        with following(watched.served, headers, since=0, snapshot=True) as stream:
            rest = [e for e in until_epoch(stream, watched.newest) if e.kind == "change"]
        assert rest == rows[position + 1 :]
    last = everything[-1].id
    new = watched.write({"g1": (9,)})
    with following(watched.served, {"Last-Event-ID": str(last)}) as stream:
        assert {e.data["epoch"] for e in until_epoch(stream, new)} == {new}


def test_snapshot_and_then_what_follows_without_gap_or_repeat(watched: WatchedTable) -> None:
    ended = threading.Event()

    def write() -> None:
        chance = random.Random(2)
        while not ended.is_set():
            watched.write({f"g{n}": (chance.randint(0, 9),) for n in range(chance.randint(1, 9))})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            with following(watched.served, snapshot=True) as stream:
                begun = until_epoch(stream, 0)
                at = begun[-1].data["epoch"]
                assert folded(begun) == watched.live(at)
                assert all(event.id is None for event in begun[:-1])
                assert folded(until_epoch(stream, at + 5), folded(begun)) == watched.live(at + 5)
    finally:
        ended.set()
        writer.join()


@pytest.mark.slow
def test_a_key_gets_its_own_changes_only_and_still_moves_on(watched: WatchedTable) -> None:
    watched.write({"mine": (1,)})
    with following(watched.served, since=0, key="mine") as stream:
        taken = until_epoch(stream, watched.newest)
        assert [e.data["op"] for e in taken if e.kind == "change"] == ["+I"]
        new = watched.write({"mine": (1,), "x": (1,)}, {"mine": (2,), "x": (1,)})
        later = until_epoch(stream, new)
        assert [e.data["op"] for e in later if e.kind == "change"] == ["-U", "+U"]
        assert [e.data["epoch"] for e in later if e.kind == "progress"] == [new - 1, new]
    with following(watched.served, snapshot=True, key="mine") as stream:
        assert folded(until_epoch(stream, 0)) == {"mine": (2, 2)}


def test_a_restarted_service_resumes_from_the_table(watched: WatchedTable) -> None:
    with following(watched.served, since=0) as stream:
        before = until_epoch(stream, watched.newest)
    watched.served.kill()
    watched.write({"while": (1,)}, {"away": (2,)})
    watched.served = Served.start(watched.table.place.data)
    watched.seen()
    with following(watched.served, since=0) as stream:
        assert until_epoch(stream, watched.newest)[: len(before)] == before
    with following(watched.served, {"Last-Event-ID": str(before[-1].id)}) as stream:
        rows = folded(until_epoch(stream, watched.newest), folded(before))
    assert rows == watched.live()


@pytest.mark.slow
def test_history_that_is_gone_is_410_and_names_where_to_begin(watched: WatchedTable) -> None:
    watched.served.stop()
    watched.table.forget(until=4)
    watched.served = Served.start(watched.table.place.data)
    watched.seen()
    with watched.served.client() as client:
        for params, headers in (
            ({"since": "2"}, {}),
            ({"since": "3:0"}, {}),
            ({}, {"Last-Event-ID": "1:0"}),
        ):
            answer = client.get(CHANGES, params=params, headers=headers)
            output = problem(answer, 410, "history-gone")
            assert output["oldest"] == 4
        oldest = output["oldest_id"]
    with following(watched.served, since=oldest) as stream:
        taken = until_epoch(stream, watched.newest)
    assert folded(taken, watched.live(4)) == watched.live()


def test_the_id_of_a_change_is_one_in_the_table_of_the_address(watched: WatchedTable) -> None:
    with watched.served.client(**{"Accept": "application/json", "Last-Event-ID": "3:0"}) as client:
        since = client.get(CHANGES, params={"since": "0"}).json()["next"]
        found = client.get(CHANGES, params={"since": since}).json()
        assert found["changes"][0]["epoch"] == 3
        dropped = since.rpartition(":")[0] + ":0123abcd"
        output = problem(client.get(CHANGES, params={"since": dropped}), 410, "history-gone")
        assert "oldest_id" not in output


@pytest.mark.slow
def test_places_that_are_none_are_refused(watched: WatchedTable) -> None:
    with watched.served.client() as client:
        for since in ("", "x", "1:", "-1", "1:2:3", "1:2:5f0c2e7g", "9" * 30, "1e3", "\u0661"):
            problem(client.get(CHANGES, params={"since": since}), 422, "parameter-invalid")
        problem(client.get(CHANGES, params={"since": "999"}), 404, "epoch-unknown")
        bad = client.get(CHANGES, headers={"Last-Event-ID": "nonsense"})
        problem(bad, 422, "parameter-invalid")


@pytest.mark.slow
def test_json_answers_are_whole_epochs_and_lead_to_the_next(watched: WatchedTable) -> None:
    with watched.served.client(Accept="application/json") as client:
        for limit in (1, 3, 7, 1_000):
            at, output = "0", []
            while True:
                page = client.get(CHANGES, params={"since": at, "limit": limit}).json()
                if not page["changes"]:
                    break
                output += page["changes"]
                at = page["next"]
                whole = {change["epoch"] for change in page["changes"]}
                assert page["complete"] or len(whole) == 1
            taken = [Event("change", None, change) for change in output]
            assert folded(taken) == watched.live()
        began = time.monotonic()
        waiting = threading.Timer(0.3, lambda: watched.write({"late": (1,)}))
        waiting.start()
        page = client.get(CHANGES, params={"since": at, "wait": 20}).json()
        assert {change["epoch"] for change in page["changes"]} == {watched.newest}
        assert time.monotonic() - began < 10


@pytest.mark.slow
def test_json_lines_are_the_same_changes(watched: WatchedTable) -> None:
    taken = []
    with (
        watched.served.client(Accept="application/x-ndjson") as client,
        client.stream("GET", CHANGES, params={"since": 0}) as answer,
    ):
        for line in answer.iter_lines():
            document = json.loads(line or "{}")
            if "op" in document:
                taken.append(Event("change", None, document))
            elif document.get("progress", {}).get("epoch") == watched.newest:
                break
    assert folded(taken) == watched.live()


@pytest.mark.slow
def test_who_does_not_read_holds_up_nobody(watched: WatchedTable) -> None:
    """Thirty sockets that never read; one that does is as fast as ever, and none blocks the end."""
    place = urlsplit(watched.served.address)
    asleep = []
    for _ in range(30):
        sleeper = socket.create_connection((str(place.hostname), int(place.port or 0)))
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        request = f"GET {CHANGES}?since=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        sleeper.sendall(request.encode())
        asleep.append(sleeper)
    with following(watched.served, since=0) as stream:
        until_epoch(stream, watched.newest)
        for value in range(10):
            new = watched.write({f"g{n}": (value,) for n in range(500)})
            began = time.monotonic()
            until_epoch(stream, new)
            assert time.monotonic() - began < 5
    for sleeper in asleep:
        sleeper.close()


@pytest.mark.slow
def test_who_never_reads_is_let_go(watched: WatchedTable) -> None:
    for value in range(10):
        watched.write({f"g{n}": (value,) for n in range(700)})
    watched.seen()
    place = urlsplit(watched.served.address)
    with socket.socket() as sleeper, watched.served.client() as client:
        sleeper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        sleeper.connect((str(place.hostname), int(place.port or 0)))
        request = f"GET {CHANGES}?since=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        sleeper.sendall(request.encode())
        eventually(lambda: "retally_followers 1\n" in client.get("/metrics").text)
        eventually(lambda: "retally_followers 0\n" in client.get("/metrics").text, 40)


@pytest.mark.slow
def test_streams_end_at_once_with_the_service(watched: WatchedTable) -> None:
    with following(watched.served) as stream:
        began = time.monotonic()
        assert watched.served.stop() == 0
        assert time.monotonic() - began < 4
        assert list(stream) == []


def test_a_change_reaches_its_follower_soon_after_the_commit(watched: WatchedTable) -> None:
    """The median over twenty epochs; the bound is generous, for machines that do other things."""
    waits = []
    with following(watched.served) as stream:
        for value in range(20):
            began = time.monotonic()
            new = watched.write({"g0": (value, 100)})
            until_epoch(stream, new)
            waits.append(time.monotonic() - began)
    assert sorted(waits)[10] < 0.5, waits


@pytest.mark.slow
def test_a_deleted_job_ends_its_streams(watched: WatchedTable) -> None:
    with following(watched.served) as stream, watched.served.client() as client:
        assert client.delete("/v1/jobs/items?data=keep").status_code == 204
        assert list(stream) == []
    assert (watched.table.place.table / "_delta_log").exists()
    eventually(lambda: not (watched.table.place.data / "service" / "jobs" / "items").exists())


@pytest.mark.slow
def test_asking_for_a_snapshot_as_one_answer_is_refused(watched: WatchedTable) -> None:
    with watched.served.client(Accept="application/json") as client:
        answer: httpx.Response = client.get(CHANGES, params={"snapshot": True})
        problem(answer, 406, "accept-unsupported")
