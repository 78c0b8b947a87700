"""Two jobs in a chain, each killed on its way: an aggregate of an aggregate, exactly once.

random history ──► Kafka ──► job 1 ──► its changelog topic ──► job 2 ──► its changelog topic
                              ✝ publishing                      ✝ before and after a commit
                                                  what both hold = the nested query over the rows
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jobs.core.values.change import Op
from jobs.edge.process.broker import Broker
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.histories.products import (
    COLUMNS,
    DATABASE,
    PARTITIONS,
    TABLE,
    History,
    history,
    live_rows,
)
from tests.support.jobs.published_records import key_of, must_be_in_order, place
from tests.support.jobs.running_job import RunningJob, consumed, create_topic, produce

# Five processes with a JVM each, and two audits: half a minute each on a busy machine.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

NAME, CNT = list(COLUMNS).index("name"), list(COLUMNS).index("cnt")
ODD_ROWS = 11  # of an epoch: a -U and its +U are cut apart again and again


def jobs_on(broker: Broker, topic: str, home: Path, written: str) -> tuple[RunningJob, RunningJob]:
    create_topic(broker.address, topic, PARTITIONS)
    between = f"{topic}-items"
    items: dict[str, Any] = {
        "name": "items",
        "source": {"topic": topic, "database": DATABASE, "table": TABLE},
        "columns": dict(COLUMNS),
        "query": "SELECT name, COUNT(*) AS n, MAX(cnt) AS top FROM product GROUP BY name",
        "minibatch": {"size": 1, "max_rows": 40},
        "sink": {"topic": between, "partitions": 3, "format": written},
        "state": {"buckets": 4},
    }
    sizes: dict[str, Any] = {
        "name": "sizes",
        "source": {"topic": between, "format": written},
        "columns": {"name": "STRING", "n": "BIGINT", "top": "BIGINT"},
        "query": "SELECT n, COUNT(*) AS names, SUM(top) AS tops FROM items GROUP BY n",
        "minibatch": {"size": 1, "max_rows": ODD_ROWS},
        "sink": {"topic": f"{topic}-sizes", "partitions": 2},
        "state": {"buckets": 4},
    }
    if written == "upsert-json":
        sizes |= {"primary_key": ["name"], "dedupe": "pk"}
    first = RunningJob(items, home / "items", broker.address)
    return first, RunningJob(sizes, home / "sizes", broker.address)


def nested(made: History) -> dict[int, tuple[int, int | None]]:
    """The query over the query over the live rows."""
    names: dict[Any, list[int | None]] = {}
    for row in live_rows({}, made.messages).values():
        cnt = row[CNT]
        assert cnt is None or isinstance(cnt, int)
        names.setdefault(row[NAME], []).append(cnt)
    groups: dict[int, list[int | None]] = {}
    for counts in names.values():
        known = [cnt for cnt in counts if cnt is not None]
        groups.setdefault(len(counts), []).append(max(known, default=None))
    return {
        size: (len(tops), sum(some) if (some := [t for t in tops if t is not None]) else None)
        for size, tops in groups.items()
    }


@pytest.mark.faults
@pytest.mark.parametrize("written", ["changelog-json", "upsert-json"])
def test_a_chain_whose_jobs_are_killed_is_the_nested_query(
    written: str, broker: Broker, topic: str, tmp_path: Path
) -> None:
    items, sizes = jobs_on(broker, topic, tmp_path, written)
    made = history(31, messages=400)
    half = len(made.messages) // 2
    produce(broker.address, topic, [(m.partition, m.value) for m in made.messages[:half]])
    items.must_die_at("epoch_sent", "kill@3")
    sizes.must_die_at("before_commit", "kill@2")
    produce(broker.address, topic, [(m.partition, m.value) for m in made.messages[half:]])
    items.must_run()
    sizes.must_die_at("after_commit", "kill@2")
    sizes.must_run()
    must_be_exact(sizes, made)
    for job in (items, sizes):
        report = job.ask("audit", str(job.spec["name"]), "--brokers", broker.address)[0]
        assert report["verdict"] == "equal", report
    if written == "changelog-json":
        must_have_cut_updates(items, sizes)


def must_be_exact(job: RunningJob, made: History) -> None:
    """Table and topic of the second job tell one story, and it ends in the truth."""
    records = consumed(job.brokers, job.spec["sink"]["topic"])
    published = [record["value"] for record in records]
    assert sorted(published, key=place) == job.ask("changes", job.spec["name"])
    assert len({place(change) for change in published}) == len(published), "a row came twice"
    must_be_in_order(records)
    results = {row["n"]: (row["names"], row["tops"]) for row in job.ask("results", "sizes")}
    assert results == nested(made)
    folded = fold_changelog(
        {},
        [
            (Op(change["op"]), key_of(job.plan, change["row"]), change["row"])
            for change in sorted(published, key=place)
        ],
    )
    assert {row["n"]: (row["names"], row["tops"]) for row in folded.values()} == results
    counters: Counter[str] = Counter()
    for epoch in job.epochs():
        counters.update({name: epoch.counters.get(name, 0) for name in ("quarantined", "rows")})
    assert counters["quarantined"] == 0 and counters["rows"] > 0


def must_have_cut_updates(items: RunningJob, sizes: RunningJob) -> None:
    """The test is one of pairs that are cut apart: some epoch ended on a -U."""
    offsets: dict[int, list[str]] = {}
    for record in consumed(items.brokers, items.spec["sink"]["topic"]):
        offsets.setdefault(record["partition"], []).append(record["value"]["op"])
    assert sum(ops.count("-U") for ops in offsets.values()) > 20
    odd = [epoch for epoch in sizes.epochs() if epoch.counters.get("rows", 0) % 2]
    assert len(odd) > 3, "no epoch has an odd number of rows"
