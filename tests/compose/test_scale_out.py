"""How a job grows with executors: 1, 2 and 4 of one task slot, each with a quarter of a processor.

a full topic ──► for each number of workers: a new job from its start ──► rate, epochs, phases

On a machine with few processors the quota makes more executors really more processor, as long as
they together have less than the machine. The driver, the publisher and Kafka have no quota.
"""

from __future__ import annotations

import json
import statistics
import time
from itertools import islice

import httpx
import pytest
from kafka import KafkaProducer

from jobs.demo.shop import Shop
from jobs.demo.source import make_changes
from jobs.demo.specs import PARTITIONS, SOURCE_TOPIC
from jobs.edge.kafka.admin import KafkaAdmin
from tests.compose.stack import Stack, change_setting
from tests.support.faults.tally import FaultTally

pytestmark = [pytest.mark.engine, pytest.mark.timeout(7_200)]

CHANGES = 150_000
EPOCH_ROWS = 15_000
QUOTA = "0.25"  # four of them leave a processor of two to driver, publisher and Kafka
# Prints, for each epoch of a job, its messages, seconds and phases.
EPOCHS = """
import json, sys
from pathlib import Path
from jobs.table.epoch_rows import epoch_rows
from jobs.table.files import live_files, open_table
table = Path("/data/jobs") / sys.argv[1] / "epochs"
rows = epoch_rows(table, live_files(open_table(table)))
print(json.dumps([[r.counts.read, r.counts.compute_seconds, r.counts.phases_ms] for r in rows]))
"""


def test_more_executors_read_faster(stack: Stack) -> None:
    tally = FaultTally(f"compose on engine {stack.engine.version}: 1, 2 and 4 executors")
    for name, value in (("WORKERS", "1"), ("WORKER_CORES", "1"), ("WORKER_CPUS", QUOTA)):
        change_setting(stack.clone, name, value)
    stack.shell.follow("Quick start", "up --detach --wait", "TOKEN=")
    stack.compose("--profile", "demo", "rm", "--stop", "--force", "demo")
    stack.shell.follow("First job", "U=")
    _fill(stack.brokers)
    rates = []
    with stack.client as client:
        for executors in (1, 2, 4):
            change_setting(stack.clone, "JOB_CORES", str(executors))
            change_setting(stack.clone, "WORKERS", str(executors))
            stack.compose("up", "--detach", "--wait")
            found = _measure(stack, client, f"items-{executors}")
            tally.further[f"{executors} executors"] = found
            rates.append(found["changes_per_second"])
    tally.inputs = CHANGES
    tally.close()
    assert rates[-1] > rates[0], "four executors were no faster than one"


def _fill(brokers: str) -> None:
    with KafkaAdmin({"bootstrap_servers": [brokers]}) as admin:
        there = admin.end_offsets(SOURCE_TOPIC)
    producer = KafkaProducer(bootstrap_servers=brokers, acks="all", linger_ms=20)
    for message in islice(make_changes(Shop(1, PARTITIONS), there), CHANGES):
        if message is not None:
            producer.send(SOURCE_TOPIC, message[1], partition=message[0])
    producer.flush()
    producer.close()


def _measure(stack: Stack, client: httpx.Client, name: str) -> dict[str, int]:
    spec = (stack.clone / "items.yaml").read_text()
    own = spec.replace("name: items\n", f"name: {name}\n").replace("items-changes", name)
    own += f"minibatch: {{max_rows: {EPOCH_ROWS}, latency: 1s}}\n"
    assert client.put(f"/v1/jobs/{name}", content=own).status_code == 201
    assert client.post(f"/v1/jobs/{name}/start").status_code == 202

    def caught_up() -> bool:
        found = client.get(f"/v1/jobs/{name}").json()
        return bool(found["epoch"]) and (found["lag"] or {}).get("records") == 0

    while not caught_up():
        time.sleep(1)
    assert client.post(f"/v1/jobs/{name}/stop").status_code == 202
    while client.get(f"/v1/jobs/{name}").json()["actual"] != "STOPPED":
        time.sleep(0.5)
    container = "retally-test-service-1"
    told = stack.engine.docker("exec", container, "python", "-c", EPOCHS, name)
    full = [row for row in json.loads(told) if row[0] >= EPOCH_ROWS * 3 // 4]
    warm = full[len(full) // 3 :]  # its first epochs load classes and compile them

    def median_ms(*phases: str) -> int:
        each_epoch = [float(sum(row[2].get(phase, 0) for phase in phases)) for row in warm]
        return round(statistics.median(each_epoch))

    seconds = sum(row[1] + row[2].get("commit", 0) / 1_000 for row in warm)
    return {
        "changes_per_second": round(sum(row[0] for row in warm) / seconds),
        "epoch_ms": median_ms("plan", "tasks", "judge", "commit"),
        "tasks_ms": median_ms("tasks"),
        "driver_ms": median_ms("plan", "judge"),
        "commit_ms": median_ms("commit"),
        "publish_ms": median_ms("publish"),  # in a process of its own, beside the next epoch
    }
