"""The deployment without an engine: the same commands, environment and topology, as processes.

What only an engine can show is not shown here: that the image builds, what a read-only file system
and dropped capabilities forbid, and what the Kafka image makes of its variables.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from jobs.edge.process.broker import Broker
from service.supervision import job_process
from tests.deploy.containers import SPARK_SECRET, Stack, stack
from tests.deploy.deployment import CHECKOUT
from tests.support.command.shop import Shop, ordered, spec_text
from tests.support.jobs.running_job import consumed
from tests.support.service.served import eventually
from tests.support.spark_rpc import UNKNOWN_CLASS, answer_to_stranger
from tests.support.warm_driver import warm_driver

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.timeout(800),
    pytest.mark.skipif(sys.platform != "linux", reason="each container is an address of 127/8"),
]

JOB = "/v1/jobs/items"
SECONDS = 180.0  # some ten on an idle machine


@pytest.fixture
def shop(broker: Broker) -> Iterator[Shop]:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=5)
    yield shop
    shop.close()


@pytest.mark.slow
def test_a_job_on_the_cluster_is_exact_when_a_worker_dies(
    broker: Broker, shop: Shop, tmp_path: Path
) -> None:
    with stack(tmp_path, broker.address) as running:
        service = running.containers["service"]
        # docker compose run service retally serve --data /data --new-token me=admin
        made = service.run("retally", "serve", "--data", "/data", "--new-token", "me=admin")
        assert made.returncode == 0, made.stderr
        running.up()
        with httpx.Client(
            base_url=f"http://{service.address}:8080",
            headers={"Authorization": f"Bearer {made.stdout.strip()}"},
            timeout=30,
            trust_env=False,
        ) as client:
            sink = f"items-{uuid.uuid4().hex[:8]}"
            put = client.put(JOB, content=spec_text("items", shop.topic, sink))
            assert put.status_code == 201, put.text
            shop.feed(200)
            assert client.post(f"{JOB}/start").status_code == 202
            _until_exact(running, client, shop)
            first = _cluster(running)
            assert (first["aliveworkers"], first["coresused"]) == (2, 2)
            assert len(_hosts_with_state(running)) > 0
            writer = job_process.find_writer(tmp_path / "data" / "jobs" / "items" / "lock")
            assert writer is not None

            # A host is lost, with its executor and its hot state; the other one catches up.
            lost = _hosts_with_state(running)[0]
            running.containers[lost].kill()
            shop.feed(200)
            _until_exact(running, client, shop)
            assert client.get(JOB).json()["actual"] == "RUNNING"
            # The job itself went on: only its tasks were done again.
            assert job_process.find_writer(tmp_path / "data" / "jobs" / "items" / "lock") == writer

            # It comes back, as `restart: unless-stopped` has it, and is one of the cluster again.
            running.containers[lost].start()
            running.containers[lost].until_healthy()
            eventually(lambda: _cluster(running)["aliveworkers"] == 2, SECONDS)
            shop.feed(100)
            _until_exact(running, client, shop)

            # The master is lost while the job runs. It comes back and knows workers and jobs.
            running.containers["spark-master"].kill()
            shop.feed(100)
            running.containers["spark-master"].start()
            running.containers["spark-master"].until_healthy()
            _until_exact(running, client, shop)
            eventually(lambda: _cluster(running)["status"] == "ALIVE", SECONDS)
            again = _cluster(running)
            assert (again["aliveworkers"], again["coresused"]) == (2, 2)
            assert job_process.find_writer(tmp_path / "data" / "jobs" / "items" / "lock") == writer

            # One more joins while the job runs, and takes over from one that is lost: it makes
            # itself a hot state from the table.
            joined = running.one_more_worker()
            other = next(name for name in _hosts_with_state(running) if name != lost)
            running.containers[other].kill()
            running.containers[lost].kill()

            shop.feed(100)
            _until_exact(running, client, shop)
            assert joined.name in _hosts_with_state(running)
            assert job_process.find_writer(tmp_path / "data" / "jobs" / "items" / "lock") == writer
            client.post(f"{JOB}/stop")
            eventually(lambda: client.get(JOB).json()["actual"] == "STOPPED", SECONDS)


def test_a_job_on_the_cluster_tells_what_it_tells_in_one_process(
    broker: Broker, shop: Shop, tmp_path: Path
) -> None:
    """Epochs of the same offsets give the same changelog, record by record."""
    shop.feed(350)
    with stack(tmp_path, broker.address) as running:
        running.up()
        with _watched_arguments() as arguments:
            spread = _told(
                running.containers["service"].run,
                "/data",
                "kafka:9092",
                broker,
                shop,
                "--master",
                "spark://spark-master:7077",
            )
        assert any("CoarseGrainedExecutorBackend" in each for each in arguments)
        assert not any(SPARK_SECRET in each for each in arguments)
        answer = answer_to_stranger(7077, running.containers["spark-master"].address)
        assert answer and UNKNOWN_CLASS.encode() not in answer
    alone = _told(_run_here, str(running.root / "data"), broker.address, broker, shop)
    assert spread == alone
    assert len({epoch for epoch, *_ in alone}) > 2


@contextmanager
def _watched_arguments() -> Iterator[set[str]]:
    """The arguments of all processes that there are meanwhile, as anybody on the host sees them."""
    found: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            for process in psutil.process_iter(["cmdline"]):
                found.add(" ".join(process.info["cmdline"] or ()))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _told(
    run: Callable[..., subprocess.CompletedProcess[str]],
    data: str,
    brokers: str,
    broker: Broker,
    shop: Shop,
    *master: str,
) -> list[tuple[int, int, str, str]]:
    """What a job over the whole topic publishes."""
    sink = f"{shop.topic}-{uuid.uuid4().hex[:8]}"
    spec = spec_text(sink, shop.topic, sink)
    ran = run("sh", "-c", f"cat > {data}/{sink}.yaml <<'END'\n{spec}END")
    assert ran.returncode == 0, ran.stderr
    ran = run(
        "retally",
        "run",
        f"{data}/{sink}.yaml",
        "--data",
        data,
        "--brokers",
        brokers,
        "--until-caught-up",
        *master,
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    return sorted(
        (each["value"]["epoch"], each["value"]["seq"], each["key"], str(each["value"]["row"]))
        for each in consumed(broker.address, sink)
    )


def _run_here(*command: str) -> subprocess.CompletedProcess[str]:
    if command[0] == "retally":
        return warm_driver(*command[1:])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    return subprocess.run(command, capture_output=True, text=True, cwd=CHECKOUT, env=environment)


def _until_exact(running: Stack, client: httpx.Client, shop: Shop) -> None:
    try:
        eventually(lambda: _rows(client) == shop.truth(), SECONDS)
    except AssertionError:
        log = running.root / "data" / "service" / "jobs" / "items" / "log"
        told = log.read_text(errors="replace")[-6_000:] if log.exists() else "no log"
        print(told, client.get(JOB).text, sep="\n")
        raise


def _rows(client: httpx.Client) -> list[dict[str, Any]]:
    answer = client.get(f"{JOB}/results", params={"limit": 1_000})
    return ordered(answer.json()["rows"]) if answer.status_code == 200 else []


def _cluster(running: Stack) -> dict[str, Any]:
    """What Spark's master says of itself."""
    address = running.containers["spark-master"].address
    told: dict[str, Any] = httpx.get(f"http://{address}:8080/json/", trust_env=False).json()
    return told


def _hosts_with_state(running: Stack) -> list[str]:
    """The workers whose executors have folded: each has a hot state of its own."""
    shared = running.root / "data" / "cache"
    assert not list(shared.rglob("columns")), "a hot state lies where all hosts write"
    return [
        worker.name
        for worker in running.workers
        if list((worker.log.parent / "cache" / "state" / "items").rglob("columns"))
    ]
