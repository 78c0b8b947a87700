"""A real job under constant load: the job, the load, and the checks at the end.

constant changes ─► topic ─► job ─► its table, its results, its changelog topic
                                     └──── all equal, and equal to the truth ────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import retally
from retally import Client
from tests.support.command.shop import COLUMN_TYPES, QUERY, Shop, ordered
from tests.support.faults.tally import FaultTally
from tests.support.jobs.running_job import RunningJob, consumed
from tests.support.service.served import Served, end_jobs

BACK_SECONDS_MAX = 150.0


def spec(topic: str) -> dict[str, Any]:
    return {
        "name": "items",
        "source": {"topic": topic},
        "columns": dict(sorted(COLUMN_TYPES.items())),  # as RunningJob writes them to its file
        "query": QUERY,
        "minibatch": {"size": 20, "latency": "100ms", "max_rows": 400},
        "sink": {"topic": f"{topic}-changes", "partitions": 3},
        "state": {"buckets": 8},
    }


def under_load(shop: Shop) -> AbstractContextManager[None]:
    """Send changes until the block ends; one message in thirty is invalid."""
    return shop.feeding(30, every_seconds=0.2)


@contextmanager
def served_job(job: RunningJob) -> Iterator[Client]:
    """Run the job by a service until the block ends; yield a client."""
    served = Served.start(job.data, brokers=job.brokers)
    client = retally.connect(served.address)
    try:
        client.put(name="items", spec=job.spec)
        client.start("items")
        yield client
        client.stop("items")
        client.until("items", "STOPPED", seconds=BACK_SECONDS_MAX)
    finally:
        client.close()
        served.stop()
        end_jobs(job.data)


def check_job(job: RunningJob, shop: Shop, tally: FaultTally) -> None:
    """Compare the topic, the table's changelog, its results and the truth."""
    check_topic(job, tally)
    kept = job.part("quarantine")
    assert len({(row["partition"], row["offset"]) for row in kept}) == len(kept) == shop.rejected
    assert ordered(job.ask("results", "items")) == shop.truth()
    assert job.ask("audit", "items", "--brokers", job.brokers)[0]["verdict"] == "equal"


def check_topic(job: RunningJob, tally: FaultTally) -> None:
    """Compare the topic with the table's changelog."""
    records = consumed(job.brokers, job.spec["sink"]["topic"])
    stored = {place(change) for change in job.ask("changes", str(job.spec["name"]))}
    published = [place(record["value"]) for record in records]
    tally.inputs = sum(row.counters.get("read", 0) for row in job.epochs())
    tally.outputs = len(published)
    tally.lost = len(stored - set(published))
    tally.duplicates = len(published) - len(set(published)) + len(set(published) - stored)
    tally.out_of_order = disordered(records)
    tally.close()


def newest_epoch(job: RunningJob) -> int:
    with suppress(Exception):  # there is no table yet
        return job.epochs()[-1].epoch
    return 0


def place(change: Mapping[str, Any]) -> tuple[int, int]:
    return change["epoch"], change["seq"]


def disordered(records: Sequence[Mapping[str, Any]]) -> int:
    """Count records out of order in their partition, and retractions of no current row."""
    wrong = 0
    last: dict[str, Any] = {}
    before: dict[int, tuple[int, int]] = {}
    for record in records:
        change, key, partition = record["value"], record["key"], record["partition"]
        wrong += place(change) <= before.get(partition, (-1, -1))
        before[partition] = place(change)
        if change["op"] in ("-U", "-D"):
            wrong += last.pop(key, None) != change["row"]
        else:
            wrong += key in last
            last[key] = change["row"]
    return wrong
