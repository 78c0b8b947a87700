"""Two services on one data directory: one leads, the other reads, and leads after it."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

import retally
from jobs.cli.parser import parse_address
from retally import leader as client_leader
from schemas.limits import LEADER_SILENT_SECONDS_MAX, LEADER_WATCH_SECONDS
from service.paths import ServicePaths
from service.serving import create_token
from service.supervision.leadership import DEPOSED, AlreadyServed, Leadership, LeaderWatch
from service.supervision.register import Deposed, Register, read_term
from tests.support.command.warm_command import warm_commands
from tests.support.service.served import (
    CHECKOUT,
    SPEC,
    START_SECONDS_MAX,
    Served,
    end_jobs,
    eventually,
    problem,
)
from tests.support.service.tables import WatchedTable, shown

JOB = "/v1/jobs/items"
TAKEOVER_SECONDS_MAX = 15.0  # as promised in docs/operations.md


@pytest.fixture
def leader(data: Path) -> Iterator[Served]:
    served = Served.start(data)
    yield served
    if served.process.poll() is None:
        served.kill()


@pytest.fixture
def standby(leader: Served) -> Iterator[Served]:
    with Served.start(leader.data) as served:
        yield served


def wait_until_it_leads(standby: Served) -> float:
    """Return after how many seconds changes are taken at the address of the standby."""
    began = time.monotonic()

    def leads() -> bool:
        try:
            with standby.client() as client:
                return client.put("/v1/jobs/probe", content=SPEC).status_code in (200, 201)
        except httpx.TransportError:
            return False  # between two lives of its process

    eventually(leads, START_SECONDS_MAX)
    return time.monotonic() - began


def test_a_standby_answers_reads_and_names_the_leader_for_changes(
    leader: Served, standby: Served
) -> None:
    watched = WatchedTable(leader)
    watched.write({"pear": (1, 2)}, {"pear": (1, 2), "fig": (5,)})
    with standby.client() as client:
        eventually(lambda: client.get(f"{JOB}/results").status_code == 200)
        eventually(lambda: standby.job("items")["epoch"] == watched.newest)
        assert shown(client.get(f"{JOB}/results")) == watched.live()
        assert client.get(f"{JOB}/results/fig").json()["row"]["total"] == 5
        sql = client.post("/v1/sql", json={"sql": "SELECT SUM(total) AS s FROM items"})
        assert sql.json()["rows"] == [{"s": "8"}], sql.text
        # Who reads is in the log of the directory, which outlives the service that was asked.
        assert b"/v1/sql" in (leader.data / "service" / "trail-reads.log").read_bytes()
        for served, leads in ((leader, True), (standby, False)):
            with served.client() as asking:
                document = asking.get("/readyz").json()
            assert (document["status"], document["leads"]) == ("ready", leads)
        for refused in (
            client.put("/v1/jobs/more", content=SPEC),
            client.post(f"{JOB}/start"),
            client.delete(f"{JOB}?data=drop"),
        ):
            document = problem(refused, 503, "not-the-leader")
            assert document["leader"] == leader.address
            assert int(refused.headers["Retry-After"]) > 0
    # A change of the leader is there a moment later: of a job, and of its end.
    with leader.client() as client:
        assert client.put("/v1/jobs/more", content=SPEC).status_code == 201
        eventually(lambda: standby.job("more").get("name") == "more")
        assert client.delete("/v1/jobs/more?data=drop").status_code == 204
        eventually(lambda: standby.job("more").get("code") == "job-unknown")


def test_the_client_and_the_command_line_follow_the_leader_through_its_end(
    leader: Served, standby: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_leader, "TAKEOVER_SECONDS", START_SECONDS_MAX)
    both = f"{standby.address},{leader.address}"
    with retally.connect(both) as client:
        assert client.put(SPEC, "first").revision == 1
        assert client.job("first").name == "first", "at once, where the change was made"
        spec = leader.data / "third.yaml"
        spec.write_text(SPEC)
        put = ("jobs", "put", "third", "--spec", str(spec), "--service", both)
        ran = warm_commands.run(*put)
        assert (ran.returncode, ran.stderr) == (0, "")
        leader.kill()
        assert client.put(SPEC, "second").revision == 1
        assert [job.name for job in client.jobs()] == ["first", "second", "third"]


def test_the_console_of_a_standby_checks_messages_and_links_to_the_leader(
    leader: Served, standby: Served
) -> None:
    watched = WatchedTable(leader)
    watched.write({"pear": (1, 2)})
    with leader.client() as client:
        assert "data-standby" not in client.get("/jobs/items").text
    with standby.client() as client:
        eventually(lambda: client.get(f"{JOB}/results").status_code == 200)
        page = client.get("/jobs/items").text
        assert f'<a href="{leader.address}/jobs/items">{leader.address}</a>' in page
        checked = client.post("/jobs/items/quarantine/check", json=[])
        assert (checked.status_code, checked.json()) == (200, [])


def test_a_leader_on_all_addresses_is_named_by_its_host_or_as_advertised(data: Path) -> None:
    token = create_token(data, "boss", "admin")
    watch, everywhere = LeaderWatch(ServicePaths(data)), ("--host", "0.0.0.0")
    with Served.start(data, *everywhere, token=token) as served, served.client() as client:
        port = served.address.rpartition(":")[2]
        assert watch.learn_address()
        assert watch.address == f"http://{socket.gethostname()}:{port}"
        assert client.get("/v1/jobs").status_code == 200
    named = "https://retally.example.org:8443/one"
    advertised = ("--advertise", named)
    with Served.start(data, *everywhere, *advertised, token=token) as served:
        assert (watch.learn_address(), watch.address) == (True, named)
        with served.client() as client:
            assert client.get("/v1/jobs").status_code == 200


def test_a_standby_waits_for_the_first_start_of_a_leader(data: Path) -> None:
    log = data / "stderr"
    with (
        log.open("wb") as errors,
        Leadership.take(ServicePaths(data)),
        ThreadPoolExecutor(1) as starting,
    ):
        standby = starting.submit(Served.start, data, "--standby", errors=errors)
        time.sleep(2.0)
        assert not standby.done()
        Register(ServicePaths(data).register)
        with standby.result(START_SECONDS_MAX) as served, served.client() as client:
            assert client.get("/v1/jobs").json()["jobs"] == []
    assert "WARNING stands by" in log.read_text()
    assert f"now a service that is starting leads {data}" in log.read_text()


def test_a_second_start_on_the_same_port_names_the_leader(leader: Served) -> None:
    port = leader.address.rpartition(":")[2]
    command = [sys.executable, "-m", "jobs.cli.main", "serve", "--data", str(leader.data)]
    ended = subprocess.run(
        [*command, "--port", port], capture_output=True, text=True, cwd=CHECKOUT, check=False
    )
    assert ended.returncode == 1
    assert f"{leader.address} leads {leader.data} already; cannot listen on" in ended.stderr


@pytest.mark.parametrize(
    "end",
    [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)],
    ids=["killed", "silent"],
)
def test_a_standby_leads_in_time_and_a_leader_that_returns_changes_nothing(
    leader: Served, standby: Served, end: signal.Signals
) -> None:
    watched = WatchedTable(leader)
    watched.write({"pear": (1, 2)})
    os.kill(leader.process.pid, end)
    assert wait_until_it_leads(standby) < TAKEOVER_SECONDS_MAX
    with standby.client() as client:
        eventually(lambda: standby.job("items")["epoch"] == watched.newest)
        assert shown(client.get(f"{JOB}/results")) == watched.live()
        watched.write({"pear": (1, 2), "fig": (5,)})
        eventually(lambda: standby.job("items")["epoch"] == watched.newest)
    if end is signal.SIGSTOP:
        os.kill(leader.process.pid, signal.SIGCONT)
        assert leader.process.wait(START_SECONDS_MAX) == 75
        with standby.client() as client:
            assert client.put("/v1/jobs/again", content=SPEC).status_code == 201


def test_of_several_standbys_one_leads(data: Path, leader: Served) -> None:
    standbys = [Served.start(data, "--standby") for _ in range(2)]
    try:
        leader.kill()

        def answers() -> list[int]:
            with_codes = []
            for each in standbys:
                try:
                    with each.client() as client:
                        with_codes.append(client.delete("/v1/jobs/nobody?data=keep").status_code)
                except httpx.TransportError:
                    with_codes.append(0)
            return sorted(with_codes)

        eventually(lambda: answers() == [404, 503])
    finally:
        for each in standbys:
            each.kill()
        end_jobs(data)


def test_a_service_that_only_reads_never_leads(leader: Served) -> None:
    with Served.start(leader.data, "--read-only") as reader:
        leader.kill()
        time.sleep(2.0)  # a standby would look four times
        with reader.client() as client:
            document = problem(client.put("/v1/jobs/more", content=SPEC), 503, "not-the-leader")
            # It is in the lock's file, but another program may listen there by now.
            assert (document["leader"], "no service leads" in document["detail"]) == (None, True)
            page = client.get("/").text
            assert "no service leads" in page and leader.address not in page
        assert psutil.pid_exists(reader.process.pid)
    assert not list((leader.data / "service" / "readers").iterdir())


def test_a_directory_that_no_service_has_used_cannot_be_read(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jobs.cli.main", "serve", "--data", str(tmp_path)]
    ended = subprocess.run(
        [*command, "--read-only", "--port", "0"],
        capture_output=True,
        text=True,
        cwd=CHECKOUT,
        check=False,
    )
    assert ended.returncode == 1
    assert "start one that leads first" in ended.stderr


# --- without processes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    ["host:8080", "ftp://host", "http://me@host", "http://a, http://b", "http://" + "h" * 200],
)
def test_an_address_that_clients_could_not_use_is_not_advertised(address: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not an address"):
        parse_address(address)


def test_a_write_of_an_earlier_term_fails_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "register.sqlite"
    first, second = Register(path), Register(path)
    first.lead()
    second.lead()
    assert (first.is_deposed(), second.is_deposed()) == (True, False)
    with pytest.raises(Deposed):
        first.change_job("items", reason="late")
    with pytest.raises(Deposed):
        first.remove_job("items")
    with pytest.raises(Deposed), first.transaction():
        pass
    second.change_job("items", reason="in time")
    assert first.list_jobs() == second.list_jobs()


def test_a_lock_that_is_held_and_beats_is_neither_taken_nor_deposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.supervision.leadership.LEADER_BEAT_SECONDS", 0.05)
    monkeypatch.setattr("service.supervision.leadership.LEADER_WATCH_SECONDS", 0.02)
    monkeypatch.setattr("service.supervision.leadership.LEADER_SILENT_SECONDS_MAX", 0.5)
    paths = ServicePaths(tmp_path)
    with Leadership.take(paths) as leadership:
        register = Register(paths.register)
        register.lead()
        leadership.begin("http://here:1", register.is_deposed)
        owner = f"process {os.getpid()} on {socket.gethostname()}, http://here:1"
        with pytest.raises(AlreadyServed, match=owner):
            Leadership.take(paths).__enter__()
        watch, closed = LeaderWatch(paths), threading.Event()
        assert (watch.learn_address(), watch.address) == (True, "http://here:1")
        threading.Timer(1.5, closed.set).start()
        assert not watch.wait_until_nobody_leads(closed)
        assert read_term(paths.register) == 1
    assert watch.wait_until_nobody_leads(threading.Event())
    assert LEADER_SILENT_SECONDS_MAX < TAKEOVER_SECONDS_MAX <= client_leader.TAKEOVER_SECONDS


def test_the_look_of_one_service_is_no_leader_to_another(tmp_path: Path) -> None:
    paths = ServicePaths(tmp_path)
    with Leadership.take(paths) as leadership:
        leadership.begin("http://here:1", lambda: False)
        watch = LeaderWatch(paths)
        assert watch.learn_address()
    with paths.lock.open() as looks:
        fcntl.flock(looks, fcntl.LOCK_SH)
        assert (watch.learn_address(), watch.address) == (False, None)


@pytest.mark.parametrize("mode", ["--standby", "--read-only"])
def test_a_refused_change_does_not_wait_for_a_file_system(leader: Served, mode: str) -> None:
    """A lock file that is a pipe without a writer hangs whoever reads it, as a dead server does."""
    with Served.start(leader.data, mode) as follower, follower.client() as client:
        lock = ServicePaths(leader.data).lock
        kept = lock.rename(lock.with_name("kept"))
        os.mkfifo(lock)
        holder = os.open(lock, os.O_RDWR)
        try:
            fcntl.flock(holder, fcntl.LOCK_EX)
            time.sleep(2 * LEADER_WATCH_SECONDS)  # the watch hangs by now
            document = problem(client.post(f"{JOB}/start"), 503, "not-the-leader")
            assert document["leader"] == leader.address
            assert client.get("/readyz").status_code == 200
        finally:
            kept.replace(lock)
            os.close(holder)


def test_a_deposed_leader_ends_though_it_cannot_write_to_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS takes the lock of a host that was cut off, and closes its file to writes."""
    monkeypatch.setattr("service.supervision.leadership.LEADER_BEAT_SECONDS", 0.05)
    ended: list[int] = []
    monkeypatch.setattr("service.supervision.leadership.os._exit", ended.append)
    paths, deposed = ServicePaths(tmp_path), threading.Event()
    with Leadership.take(paths) as leadership:
        leadership.begin("http://here:1", deposed.is_set)
        reader = os.open(paths.lock, os.O_RDONLY)
        monkeypatch.setattr(leadership, "_descriptor", reader)
        time.sleep(0.2)
        assert not ended, "its term goes on"
        deposed.set()
        eventually(lambda: ended)
    assert ended[0] == DEPOSED
