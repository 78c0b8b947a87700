"""Check that a job over a random history of products is exact, in its table and in its topic."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb

from jobs.core.values.change import Op
from jobs.edge.process.broker import Broker
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.histories.judge import QUERIES, Judge, internal
from tests.support.histories.products import (
    COLUMNS,
    DATABASE,
    PARTITIONS,
    TABLE,
    History,
    live_rows,
)
from tests.support.jobs.published_records import key_of, must_be_in_order, place
from tests.support.jobs.running_job import RunningJob, consumed, create_topic


def product_job(
    broker: Broker, topic: str, home: Path, query: int, max_rows: int = 120, name: str = "items"
) -> RunningJob:
    """Return a job over a new topic of product messages."""
    create_topic(broker.address, topic, PARTITIONS)
    spec: dict[str, Any] = {
        "name": name,
        "source": {"topic": topic, "database": DATABASE, "table": TABLE},
        "columns": dict(COLUMNS),
        "query": QUERIES[query][0],
        "minibatch": {"size": 1, "max_rows": max_rows},
        "sink": {"topic": f"{topic}-changes", "partitions": 3},
        "state": {"buckets": 8},
    }
    return RunningJob(spec, home, broker.address)


def must_be_exact(job: RunningJob, made: History, query: int) -> None:
    """Table and topic tell the same story, and it ends in the truth."""
    records = consumed(job.brokers, job.spec["sink"]["topic"])
    published = [record["value"] for record in records]
    stored = job.ask("changes", job.spec["name"])
    assert sorted(published, key=place) == stored
    assert len({place(change) for change in published}) == len(published), "a row came twice"
    must_be_in_order(records)
    must_end_in_the_truth(job, made, query, published)
    must_have_quarantined_once(job, made)


def must_end_in_the_truth(
    job: RunningJob, made: History, query: int, published: list[dict[str, Any]]
) -> None:
    plan = job.plan
    folded = fold_changelog(
        {},
        [
            (Op(change["op"]), key_of(plan, change["row"]), change["row"])
            for change in sorted(published, key=place)
        ],
    )
    results = {key_of(plan, row): row for row in job.ask("results", job.spec["name"])}
    assert folded == results
    judge = Judge(query)
    live = live_rows({}, made.messages)
    judge.claim(judge.begin(f"history {made.seed}"), 0, internal(plan, results), live.values())
    assert judge.decide(duckdb.connect()) == 1


def must_have_quarantined_once(job: RunningJob, made: History) -> None:
    rejected = Counter(m.partition for m in made.messages if m.outcome == "rejected")
    kept = job.part("quarantine")
    assert Counter(row["partition"] for row in kept) == rejected
    assert len({(row["partition"], row["offset"]) for row in kept}) == len(kept)
