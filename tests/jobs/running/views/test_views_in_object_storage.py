"""A job with views whose table is in object storage: exact over kills, a rewind and an evolve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from schemas.directory.paths import JobDirectory
from schemas.table.object_path import ObjectPath
from tests.support.histories.products import history
from tests.support.jobs.running_job import produce
from tests.support.jobs.shop_views import make_shop_views, views_must_be_exact
from tests.support.object_storage import BUCKET, Storage

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(580)]


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    with Storage() as storage:
        for name, value in storage.environment.items():
            monkeypatch.setenv(name, value)
        yield storage


def test_views_in_object_storage_are_exact_over_a_kill_and_a_rewind(
    broker: Broker, topic: str, storage: Storage, tmp_path: Path
) -> None:
    job = make_shop_views(broker.address, topic, tmp_path)
    job.options, job.warm = ("--tables", f"s3://{BUCKET}/views"), False  # it needs the keys
    made = history(26, 120).messages
    produce(broker.address, topic, ((each.partition, each.value) for each in made[:80]))
    job.must_die_at("after_commit", "kill@2")
    job.must_run()
    assert isinstance(JobDirectory(job.data, "items").table, ObjectPath)
    views_must_be_exact(job, made[:80])
    (saved,) = job.ask("savepoint", "items")
    produce(broker.address, topic, ((each.partition, each.value) for each in made[80:]))
    job.must_run()
    views_must_be_exact(job, made)
    job.ask("rewind", "items", "--to", saved["name"], "--brokers", broker.address)
    views_must_be_exact(job, made[:80], published=False)
    job.must_run()
    (audited,) = job.ask("audit", "items", "--brokers", broker.address)
    assert audited["verdict"] == "equal"
