"""A job whose table is in object storage: exact over a kill, and for everybody who reads it.

    changes ──► Kafka ──┬─► retally run --tables s3://..., killed, run again ─┬─► one changelog
                        └─► retally run, on this disk ────────────────────────┘

Broker, Spark and the storage are real servers; the storage is one that tests start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from jobs.edge.process.broker import Broker
from schemas.directory.paths import JobDirectory
from schemas.table.object_path import ObjectPath
from tests.docs.documents import block
from tests.support.command.shop import Shop, ordered, spec_text
from tests.support.documents import TABLE_IN_DOCS
from tests.support.jobs.running_job import RunningJob, consumed
from tests.support.object_storage import BUCKET, Storage
from tests.support.service.served import Served, eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(580)]

TABLES = f"s3://{BUCKET}/retally"
JOB = "/v1/jobs/items"


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    with Storage() as storage:
        for name, value in storage.environment.items():
            monkeypatch.setenv(name, value)
        yield storage


def job(topic: str, home: Path, brokers: str, **more: Any) -> RunningJob:
    spec = yaml.safe_load(spec_text("items", topic, f"{topic}-{home.name}"))
    return RunningJob({**spec, **more}, home, brokers, warm=False)  # it needs the storage's keys


def published(of: RunningJob) -> list[tuple[int, int, Any]]:
    """The changelog as its topic has it, in order, each row once."""
    records = [record["value"] for record in consumed(of.brokers, of.spec["sink"]["topic"])]
    told = sorted((r["epoch"], r["seq"], (r["op"], r["row"])) for r in records)
    assert len({row[:2] for row in told}) == len(told)
    return told


def test_a_job_in_object_storage_is_exact_over_a_kill_and_says_what_a_local_one_says(
    broker: Broker, topic: str, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(broker.address, topic, seed=8)
    shop.feed(350)
    local = job(topic, tmp_path / "local", broker.address)
    local.must_run()

    remote = job(topic, tmp_path / "remote", broker.address, mirror="1h")
    monkeypatch.setenv("RETALLY_TABLES", TABLES)
    storage.lose_reply_to(f"_delta_log/{2:020d}.json")
    remote.must_die_at("after_commit", "kill@3")
    monkeypatch.delenv("RETALLY_TABLES")  # the data directory knows
    remote.must_run()
    assert storage.lost == 1

    place = JobDirectory(remote.data, "items")
    assert place.table.parent == ObjectPath.of(f"{TABLES}/items")
    assert not place.own_table.exists()
    assert published(remote) == published(local)
    assert ordered(remote.ask("results", "items")) == shop.truth()
    assert remote.ask("explain", "items", '"apple"')
    mirrored = DeltaTable(str(place.results)).to_pyarrow_table().to_pylist()
    assert ordered([{name: row[name] for name in shop.truth()[0]} for row in mirrored]) == (
        shop.truth()
    )
    report = remote.ask("audit", "items", "--brokers", broker.address)[0]
    assert report["verdict"] == "equal"

    _read_by_others(str(place.table), shop, monkeypatch)
    _served(remote, shop)
    shop.close()
    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    files = [path for path in remote.home.rglob("*") if path.is_file()]
    assert not [path for path in files if secret in path.read_bytes()]


def _read_by_others(table: str, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query of the documents, as it stands there but for the place."""
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    source = block("tables.md", "python", "import duckdb")
    assert TABLE_IN_DOCS in source
    names: dict[str, Any] = {}
    exec(source.replace(TABLE_IN_DOCS, table), names)
    found = names["current"]
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    assert ordered(rows) == shop.truth()


def _served(remote: RunningJob, shop: Shop) -> None:
    """The service reads the table where it is, and removes it with the job."""
    with (
        Served.start(remote.data, "--tables", TABLES, brokers=remote.brokers) as served,
        served.client() as client,
    ):
        document = yaml.safe_dump(remote.spec)
        put = client.put(JOB, content=document)
        assert put.status_code == 201, put.text

        def rows() -> list[dict[str, Any]]:
            answer = client.get(f"{JOB}/results", params={"limit": 1_000})
            return ordered(answer.json()["rows"]) if answer.status_code == 200 else []

        eventually(lambda: rows() == shop.truth(), 30)
        first = client.get(f"{JOB}/results", params={"limit": 1_000, "as_of": "epoch:1"})
        assert first.status_code == 200, first.text
        table = JobDirectory(remote.data, "items").table
        assert table.is_dir()
        gone = client.delete(JOB, params={"data": "drop"})
        assert gone.status_code == 204, gone.text
        assert not table.is_dir()
