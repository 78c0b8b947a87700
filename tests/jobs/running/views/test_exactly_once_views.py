"""Three views, each with a topic: the driver is killed, and each topic is exact all the same.

random history ──► retally run, killed at a failpoint ──► run again ──► for each view
        its topic (read_committed) == its changelog in the table, folded == DuckDB's results
        and all topics have the same progress
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from jobs.core.fold.changelog_table import fold_changelog
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Op
from jobs.edge.process.broker import Broker
from jobs.edge.publisher.session import read_progress
from schemas.spec.file import load_spec
from schemas.table.changelog import progress_topic
from tests.support.histories.judge import QUERIES, TYPES, Judge, internal
from tests.support.histories.products import (
    COLUMNS,
    DATABASE,
    PARTITIONS,
    TABLE,
    history,
    live_rows,
)
from tests.support.jobs.published_records import key_of, must_be_in_order, place
from tests.support.jobs.running_job import RunningJob, consumed, create_topic, produce
from tests.support.sampling import quick

pytestmark = pytest.mark.spark

KILLS = [("before_commit", "kill@2"), ("after_commit", "kill@2"), ("epoch_sent", "kill@2")]


@pytest.mark.parametrize(("failpoint", "action"), quick(KILLS, KILLS[:1]))
def test_after_a_kill_every_view_and_every_topic_is_exact(
    failpoint: str, action: str, broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, PARTITIONS)
    # One table has all views, so a result has another name in each.
    queries = [re.sub(r"AS (\w+)", rf"AS \1_{n}", QUERIES[n][0]) for n in range(3)]
    views: dict[str, dict[str, Any]] = {
        f"view-{number}": {
            "query": queries[number],
            "sink": {"topic": f"{topic}-{number}", "partitions": 2},
            "state": {"buckets": 4},
        }
        for number in range(3)
    }
    spec: dict[str, Any] = {
        "name": "items",
        "source": {"topic": topic, "database": DATABASE, "table": TABLE},
        "columns": dict(COLUMNS),
        "minibatch": {"size": 1, "max_rows": 60},
        "views": views,
    }
    job = RunningJob(spec, tmp_path, broker.address)
    made = history(21, 240)
    produce(broker.address, topic, ((each.partition, each.value) for each in made.messages))
    job.must_die_at(failpoint, action)
    job.must_run()
    live = live_rows({}, made.messages)
    positions = set()
    for number, (name, view) in enumerate(views.items()):
        plan = parse_query(queries[number], TYPES)
        records = consumed(broker.address, view["sink"]["topic"])
        published = [record["value"] for record in records]
        assert sorted(published, key=place) == job.ask("changes", "items", "--view", name)
        assert len({place(change) for change in published}) == len(published)
        must_be_in_order(records)
        folded = fold_changelog(
            {},
            [
                (Op(change["op"]), key_of(plan, change["row"]), change["row"])
                for change in sorted(published, key=place)
            ],
        )
        rows = job.ask("results", "items", "--view", name)
        results = {key_of(plan, row): row for row in rows}
        assert folded == results
        judge = Judge(number)
        judge.claim(judge.begin(name), 0, internal(plan, results), live.values())
        assert judge.decide(duckdb.connect()) == 1
        own, others = read_progress(
            {"bootstrap.servers": broker.address},
            progress_topic(view["sink"]["topic"]),
            "items",
        )
        assert own is not None and own.complete and not others
        positions.add((own.epoch, own.uuid, str(own.offsets)))
    assert len(positions) == 1, "the topics are at different epochs"
    assert load_spec(spec).view_specs.keys() == views.keys()
    (audited,) = job.ask("audit", "items", "--view", "view-1", "--brokers", broker.address)
    assert audited["verdict"] == "equal"
