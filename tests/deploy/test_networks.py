"""Hosts with a network between them: slow, lossy, and cut in two for a minute.

    service (drivers) ─┬─ spark-master          each a network namespace;
                       ├─ spark-worker 1, 2     10 ms for each packet, one in a hundred is lost
                       ├─ kafka
                       └─ storage

The data directory is shared by all, as a file system that is never cut off; with object storage
only small files are in it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from jobs.reading.version import TableVersion
from schemas.directory.documents import read_document
from schemas.directory.failure import Failure
from schemas.directory.paths import JobDirectory
from schemas.table.epoch import EpochRow
from tests.deploy.cluster_job import ClusterJob, job_on_cluster
from tests.support.command.shop import Shop, ordered, spec_text
from tests.support.faults.load import BACK_SECONDS_MAX, disordered, place
from tests.support.faults.tally import FaultTally, quantile
from tests.support.jobs.running_job import CHECKOUT, consumed
from tests.support.network.hosts import Network, needs_namespaces
from tests.support.object_storage import BUCKET, Storage
from tests.support.service.served import eventually
from tests.support.topics import committed_records

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.faults,
    pytest.mark.timeout(2_400),
    needs_namespaces(),
]

DELAY_MS, LOSS = 10.0, 0.01
WORKERS = tuple(f"spark-worker-{number}" for number in (1, 2, 3))
PARTITION_SECONDS = 60.0
MEASURED = [("a directory", 1), ("a directory", 2), ("a directory", 3), ("object storage", 2)]
MEASURED_CHANGES, MEASURED_SECONDS = 150_000, 40.0
SETTLED = 4  # epochs in which executors join and start their workers
ROUNDS = 3
EPOCH_ROWS = 9_000  # more than one fold task would take
START_SECONDS = 600.0  # of three executors, on processors that are busy otherwise


@dataclass(slots=True)
class Hosts:
    network: Network
    broker: Broker
    storage: Storage
    shop: Shop

    @property
    def tables(self) -> dict[str, str]:
        return {**self.storage.environment, "RETALLY_TABLES": f"s3://{BUCKET}/retally"}


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    names = ("spark-master", *WORKERS, "service", "other", "kafka", "storage")
    with ExitStack() as closing:
        network = closing.enter_context(Network(*names, delay_ms=DELAY_MS, loss=LOSS))
        at = network.address
        broker = Broker(tmp_path / "broker", host=at("kafka"))
        closing.callback(broker.stop)
        network.on_host("kafka", broker.start)
        storage = network.on_host("storage", lambda: Storage(at("storage")))
        closing.callback(storage.close)
        shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=12)
        closing.callback(shop.close)
        yield Hosts(network, broker, storage, shop)


@pytest.mark.parametrize("tables", ["a directory", "object storage"])
def test_a_minute_without_one_another_costs_nothing_but_time(
    hosts: Hosts, tmp_path: Path, tables: str
) -> None:
    tally = FaultTally(f"hosts cut off for 60 s, 10 ms and 1 % loss, tables in {tables}")
    cuts = [("service", "spark-worker-1"), ("service", "kafka")]
    further = {}
    if tables == "object storage":
        cuts.append(("service", "storage"))
        further = hosts.tables
    network, shop = hosts.network, hosts.shop
    with job_on_cluster(tmp_path, hosts.broker.address, shop, network, None, **further) as job:
        shop.feed(200)
        job.start()
        job.until_exact()
        for pair in cuts:
            tally.plan("-".join(pair))
            with shop.feeding(20, every_seconds=1):
                with network.partition(pair, seconds=PARTITION_SECONDS) as packets:
                    pass
                if packets() > 0:
                    tally.fire("-".join(pair))
            healed = time.monotonic()
            job.until_exact()
            tally.recoveries.append(time.monotonic() - healed)
        tally.further["restarts"] = starts_of(job) - 1
        job.stop()
        assert network.count()["lost"] > 0
        check_sink(hosts, job.sink, tally)


def test_of_three_workers_one_is_cut_off_from_all_others_for_a_minute(
    hosts: Hosts, tmp_path: Path
) -> None:
    """The buckets of its executor move to the two others."""
    cut_off = WORKERS[1]
    tally = FaultTally(f"three workers, {cut_off} cut off from all for 60 s, 10 ms and 1 % loss")
    network, shop = hosts.network, hosts.shop
    others = ({"spark-master", "service", "kafka", *WORKERS}) - {cut_off}
    three = {"WORKERS": "3", "JOB_CORES": "3"}
    with job_on_cluster(tmp_path, hosts.broker.address, shop, network, three) as job:
        shop.feed(3 * EPOCH_ROWS)
        job.start(max_rows=EPOCH_ROWS)
        job.until_exact(START_SECONDS)
        assert len(job.hosts_with_state()) == 3
        tally.plan(cut_off)
        pairs = [(cut_off, each) for each in sorted(others)]
        with (
            shop.feeding(EPOCH_ROWS // 4, every_seconds=1),
            network.partition(*pairs, seconds=PARTITION_SECONDS) as packets,
        ):
            pass
        if packets() > 0:
            tally.fire(cut_off)
        healed = time.monotonic()
        job.until_exact(START_SECONDS)
        tally.recoveries.append(time.monotonic() - healed)
        tally.further["restarts"] = starts_of(job) - 1
        job.stop()
        check_sink(hosts, job.sink, tally)


def log_of(job: ClusterJob) -> str:
    log = job.stack.root / "data" / "service" / "jobs" / "items" / "log"
    return log.read_text(errors="replace")


def starts_of(job: ClusterJob) -> int:
    return log_of(job).count("==== revision")


def check_sink(hosts: Hosts, sink: str, tally: FaultTally) -> None:
    """Compare the changelog topic, folded, with the truth."""
    records = consumed(hosts.broker.address, sink)
    rows = folded_rows(records)
    truth = hosts.shop.truth()
    tally.inputs = len(list(committed_records(hosts.broker.address, hosts.shop.topic)))
    tally.outputs = len(records)
    tally.lost = sum(row not in rows for row in truth) + sum(row not in truth for row in rows)
    tally.duplicates = len(records) - len({place(record["value"]) for record in records})
    tally.out_of_order = disordered(records)
    tally.close()


# --- rate and latency -----------------------------------------------------------------------------


@pytest.mark.parametrize(("tables", "workers"), MEASURED)
def test_a_job_over_a_slow_network_is_exact_and_measured(
    hosts: Hosts, tmp_path: Path, tables: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate is that of full epochs one after the other. The latency is from Kafka's timestamp of
    an epoch's oldest record to its publication."""
    tally = FaultTally(f"no faults, {workers} workers, 10 ms and 1 % loss, tables in {tables}")
    settings = {"WORKERS": str(workers), "JOB_CORES": str(workers)}
    further = hosts.tables if tables == "object storage" else {}
    for name, value in further.items():
        monkeypatch.setenv(name, value)
    network, shop = hosts.network, hosts.shop
    with job_on_cluster(tmp_path, hosts.broker.address, shop, network, settings, **further) as job:
        shop.feed(MEASURED_CHANGES)
        job.start(max_rows=EPOCH_ROWS)
        job.until_exact(START_SECONDS)
        assert len(job.hosts_with_state()) == workers
        full = [row for row in epochs_of(job, SETTLED) if row.counts.read > 0.9 * EPOCH_ROWS]
        assert len(full) > 5
        seconds = [(b.committed_at - a.committed_at) / 1e6 for a, b in pairwise(full)]

        with shop.feeding(20, every_seconds=0.1):
            time.sleep(MEASURED_SECONDS)
        job.until_exact()
        latencies = [
            latency
            for row in epochs_of(job, after=full[-1].epoch + 2)
            for latency in row.counts.publish_latencies_ms.values()
        ]
        tally.further = {
            "changes_per_second": round(sum(row.counts.read for row in full[1:]) / sum(seconds)),
            "full_epoch_p50_s": quantile(seconds, 0.5),
            "latency_p50_ms": quantile(latencies, 0.5),
            "latency_p99_ms": quantile(latencies, 0.99),
        }
        job.stop()
        check_sink(hosts, job.sink, tally)


def epochs_of(job: ClusterJob, after: int) -> list[EpochRow]:
    return TableVersion(JobDirectory(job.stack.root / "data", "items").table).epochs(after)


# --- two drivers ----------------------------------------------------------------------------------


class Driver:
    """`retally run` on a host, with a data directory of its own, as hosts without a shared one."""

    def __init__(self, hosts: Hosts, host: str, data: Path, spec: Path) -> None:
        self.host, self.data = host, data
        self.place = JobDirectory(data, "items")
        self._environment = {**os.environ, **hosts.tables}
        self._command = [
            *hosts.network.command(host),
            sys.executable,
            "-m",
            "jobs.cli.main",
            "run",
            str(spec),
            "--data",
            str(data),
            "--brokers",
            hosts.broker.address,
            "--master",
            "local[1]",
        ]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.data / "log").open("ab") as log:
            return subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                cwd=CHECKOUT,
                start_new_session=True,
                env=self._environment,
            )

    def ended_for(self) -> str | None:
        """Return why it ended for good. If it was overtaken it starts again, as by a supervisor."""
        if self.process.poll() is None:
            return None
        failure = read_document(self.place.failure, Failure)
        assert failure is not None
        if failure.code == "overtaken":
            self.process = self._start()
            return None
        return failure.code

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def test_of_two_drivers_that_do_not_see_each_other_one_goes_on(
    hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing passes between their hosts, and each has its own data directory and locks; both reach
    Kafka and the storage, and the second one starts while the first one works."""
    for name, value in hosts.storage.environment.items():
        monkeypatch.setenv(name, value)
    tally = FaultTally("two drivers that do not see each other, tables in object storage")
    shop = hosts.shop
    sink = f"{shop.topic}-changes"
    spec = tmp_path / "items.yaml"
    spec.write_text(spec_text("items", shop.topic, sink))
    shop.feed(200)
    hosts.network.cut("service", "other")
    (tmp_path / "0").mkdir()
    first = Driver(hosts, "service", tmp_path / "0", spec)
    drivers = [first]
    try:
        eventually(lambda: newest_epoch(first) > 1, BACK_SECONDS_MAX)
        for _ in range(ROUNDS):
            tally.plan("overtaken")
            first = overtake(hosts, tmp_path, drivers, spec, tally)
            tally.fire("overtaken")
        address = hosts.broker.address
        eventually(lambda: folded_rows(consumed(address, sink)) == shop.truth(), BACK_SECONDS_MAX)
        assert first.process.poll() is None
    finally:
        for driver in drivers:
            driver.end()
    check_sink(hosts, sink, tally)


def overtake(
    hosts: Hosts, root: Path, drivers: list[Driver], spec: Path, tally: FaultTally
) -> Driver:
    """Start another driver of the job beside the newest one, which is in the middle of its work."""
    first = drivers[-1]
    seen, began = newest_epoch(first), time.monotonic()
    data = root / str(len(drivers))
    shutil.copytree(first.data, data, ignore=shutil.ignore_patterns("lock", "cache", "log"))
    second = Driver(hosts, "other" if first.host == "service" else "service", data, spec)
    drivers.append(second)
    with hosts.shop.feeding(20, every_seconds=0.5):
        both = (first, second)
        fenced = eventually(
            lambda: next((each for each in both if each.ended_for()), None), BACK_SECONDS_MAX
        )
        assert fenced.ended_for() == "fenced"
        (survivor,) = [each for each in both if each is not fenced]
        fenced_at = max(seen, newest_epoch(survivor))
        eventually(
            lambda: survivor.ended_for() is None and newest_epoch(survivor) > fenced_at,
            BACK_SECONDS_MAX,
        )
        tally.recoveries.append(time.monotonic() - began)
    drivers.remove(survivor)
    drivers.append(survivor)
    return survivor


def newest_epoch(driver: Driver) -> int:
    with suppress(Exception):  # there is no table yet
        row = TableVersion(driver.place.table).newest
        return 0 if row is None else row.epoch
    return 0


def folded_rows(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    folded: dict[str, dict[str, Any]] = {}
    for record in records:
        change = record["value"]
        if change["op"] in ("+I", "+U"):
            folded[record["key"]] = change["row"]
        elif change["op"] == "-D":
            folded.pop(record["key"], None)
    return ordered(list(folded.values()))
