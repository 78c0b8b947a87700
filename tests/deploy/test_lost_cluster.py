"""A job whose cluster is lost under it says so, ends after a while, and comes back by itself."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from tests.deploy.cluster_job import SECONDS, job_on_cluster
from tests.support.command.shop import Shop
from tests.support.service.served import eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="each container is an address of 127/8"),
]


@pytest.fixture
def shop(broker: Broker) -> Iterator[Shop]:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=6)
    yield shop
    shop.close()


@pytest.mark.faults
def test_a_job_without_executors_says_so_until_it_has_some(
    broker: Broker, shop: Shop, tmp_path: Path
) -> None:
    with job_on_cluster(tmp_path, broker.address, shop) as job:
        shop.feed(100)
        job.start()
        job.until_exact()
        assert job.document()["reason"] is None
        writer = job.writer
        for worker in job.stack.workers:
            worker.kill()
        shop.feed(100)
        waits = eventually(lambda: (found := job.document())["reason"] and found, SECONDS)
        assert waits["actual"] == "RUNNING"
        assert "no executor" in waits["reason"]
        assert 'retally_job_waiting{job="items"} 1' in job.client.get("/metrics").text
        page = job.client.get("/jobs/items").text
        assert '<span class="pill warn">running</span>' in page

        for worker in job.stack.workers:
            worker.start()
        job.until_exact()
        eventually(lambda: job.document()["reason"] is None, SECONDS)
        assert job.writer == writer, "it went on without a restart"
        job.stop()


@pytest.mark.faults
def test_a_job_without_executors_fails_and_comes_back_with_them(
    broker: Broker, shop: Shop, tmp_path: Path
) -> None:
    with job_on_cluster(tmp_path, broker.address, shop) as job:
        shop.feed(100)
        job.start()
        job.until_exact()
        for worker in job.stack.workers:
            worker.kill()
        shop.feed(100)
        failed = eventually(lambda: (found := job.document())["failures"] and found, 2 * SECONDS)
        assert (failed["failure"]["code"], failed["failures"]) == ("no-executors", 1)
        for worker in job.stack.workers:
            worker.start()
        job.until_exact()
        assert job.document()["actual"] == "RUNNING"
        job.stop()
