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

import psutil
import pytest

from jobs.edge.process.broker import Broker
from tests.deploy.cluster_job import SECONDS, job_on_cluster
from tests.deploy.containers import SPARK_SECRET, stack
from tests.deploy.deployment import CHECKOUT
from tests.support.command.shop import Shop, spec_text
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


@pytest.fixture
def shop(broker: Broker) -> Iterator[Shop]:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=5)
    yield shop
    shop.close()


@pytest.mark.faults
def test_a_job_on_the_cluster_is_exact_when_a_worker_dies(
    broker: Broker, shop: Shop, tmp_path: Path
) -> None:
    with job_on_cluster(tmp_path, broker.address, shop) as job:
        running = job.stack
        shop.feed(200)
        job.start()
        job.until_exact()
        first = job.cluster()
        assert (first["aliveworkers"], first["coresused"]) == (2, 2)
        assert len(job.hosts_with_state()) > 0
        writer = job.writer
        assert writer is not None

        # A host is lost, with its executor and its hot state; the other one catches up.
        lost = job.hosts_with_state()[0]
        running.containers[lost].kill()
        shop.feed(200)
        job.until_exact()
        assert job.document()["actual"] == "RUNNING"
        # The job itself went on: only its tasks were done again.
        assert job.writer == writer

        # It comes back, as `restart: unless-stopped` has it, and is one of the cluster again.
        running.containers[lost].start()
        running.containers[lost].until_healthy()
        eventually(lambda: job.cluster()["aliveworkers"] == 2, SECONDS)
        shop.feed(100)
        job.until_exact()

        # The master is lost while the job runs. It comes back and knows workers and jobs.
        running.containers["spark-master"].kill()
        shop.feed(100)
        running.containers["spark-master"].start()
        running.containers["spark-master"].until_healthy()
        job.until_exact()
        eventually(lambda: job.cluster()["status"] == "ALIVE", SECONDS)
        again = job.cluster()
        assert (again["aliveworkers"], again["coresused"]) == (2, 2)
        assert job.writer == writer

        # One more joins while the job runs, and takes over from one that is lost: it makes
        # itself a hot state from the table.
        joined = running.one_more_worker()
        other = next(name for name in job.hosts_with_state() if name != lost)
        running.containers[other].kill()
        running.containers[lost].kill()

        shop.feed(100)
        job.until_exact()
        assert joined.name in job.hosts_with_state()
        assert job.writer == writer
        job.stop()


@pytest.mark.faults
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
