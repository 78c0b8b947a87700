"""The alerts of deploy/alerts.yaml, in a real Prometheus: one fires, and ends with its cause."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from tests.deploy.cluster_job import SECONDS, job_on_cluster
from tests.support.command.shop import Shop
from tests.support.prometheus import Prometheus, needs_prometheus
from tests.support.service.served import eventually

pytestmark = [
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.faults,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="each container is an address of 127/8"),
    needs_prometheus(),
]


def test_a_job_without_executors_fires_its_alert_until_it_has_some(
    broker: Broker, tmp_path: Path
) -> None:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=7)
    with job_on_cluster(tmp_path, broker.address, shop) as job:
        shop.feed(100)
        job.start()
        job.until_exact()
        service = f"{job.client.base_url.host}:{job.client.base_url.port}"
        token = job.client.headers["authorization"].removeprefix("Bearer ")
        with Prometheus(tmp_path / "prometheus", service, token) as prometheus:
            for worker in job.stack.workers:
                worker.kill()
            shop.feed(100)
            eventually(
                lambda: ("RetallyJobWaits", "firing", "items") in prometheus.alerts(), SECONDS
            )
            for worker in job.stack.workers:
                worker.start()
            job.until_exact()
            eventually(
                lambda: "RetallyJobWaits" not in {a[0] for a in prometheus.alerts()}, SECONDS
            )
        job.stop()
    shop.close()
