"""A job with three views over random histories, run as a process; each view has a topic."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from jobs.core.plan.tree import Plan
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Op
from jobs.edge.publisher.session import read_progress
from jobs.reading.files import live_files, open_table
from jobs.reading.parts import ACCUMULATORS
from schemas.directory.paths import JobDirectory
from schemas.table.changelog import progress_topic
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.histories.judge import QUERIES, TYPES, Judge, internal
from tests.support.histories.products import (
    COLUMNS,
    DATABASE,
    PARTITIONS,
    TABLE,
    Message,
    live_rows,
)
from tests.support.jobs.published_records import key_of, must_be_in_order, place
from tests.support.jobs.running_job import RunningJob, consumed, create_topic

VIEWS = ("view-0", "view-1", "view-2")
# One table has all views, so a result has another name in each.
VIEW_QUERIES = [re.sub(r"AS (\w+)", rf"AS \1_{n}", QUERIES[n][0]) for n in range(3)]


def make_shop_views(brokers: str, topic: str, home: Path, **keys: Any) -> RunningJob:
    """Create the source topic, and return a job with three views over it."""
    create_topic(brokers, topic, PARTITIONS)
    views = {
        name: {
            "query": VIEW_QUERIES[number],
            "sink": {"topic": f"{topic}-{number}", "partitions": 2},
            "state": {"buckets": 4},
        }
        for number, name in enumerate(VIEWS)
    }
    spec: dict[str, Any] = {
        "name": "items",
        "source": {"topic": topic, "database": DATABASE, "table": TABLE},
        "columns": dict(COLUMNS),
        "minibatch": {"size": 1, "max_rows": 60},
        "views": views,
        **keys,
    }
    return RunningJob(spec, home, brokers)


def damage_results(place: JobDirectory, column: str) -> None:
    """Add 1 to a whole number in the newest accumulators, as a bug or a bad disk could."""
    root = place.table
    assert isinstance(root, Path)
    file = [each for each in live_files(open_table(root)) if each.part == ACCUMULATORS][-1]
    table = pq.ParquetFile(root / file.path).read()
    values = table[column].to_pylist()
    at = next(index for index, value in enumerate(values) if value is not None)
    values[at] += 1
    index = table.schema.get_field_index(column)
    kind = table.schema.field(index)
    pq.write_table(table.set_column(index, kind, pa.array(values, kind.type)), root / file.path)


def views_must_be_exact(
    job: RunningJob, messages: Iterable[Message], *, published: bool = True
) -> None:
    """Check the results of each view with DuckDB, and its topic with its changelog and results.

    Without `published`, the newest epoch is not in the topics yet, and only results are checked.
    """
    live = live_rows({}, messages)
    positions = set()
    for number, name in enumerate(VIEWS):
        plan = parse_query(VIEW_QUERIES[number], TYPES)
        rows = job.ask("results", "items", "--view", name)
        results = {key_of(plan, row): row for row in rows}
        judge = Judge(number)
        judge.claim(judge.begin(name), 0, internal(plan, results), live.values())
        assert judge.decide(duckdb.connect()) == 1
        if published:
            topic = job.spec["views"][name]["sink"]["topic"]
            assert _fold_topic(job, name, topic, plan) == results, name
            positions.add(_read_position(job.brokers, topic))
    assert len(positions) <= 1, "the topics are at different epochs"


def _fold_topic(job: RunningJob, view: str, topic: str, plan: Plan) -> dict[Any, Any]:
    """Return what a topic folds to; it must have each change of the changelog once, in order."""
    records = consumed(job.brokers, topic)
    changes = sorted((record["value"] for record in records), key=place)
    assert changes == job.ask("changes", "items", "--view", view)
    assert len({place(change) for change in changes}) == len(changes)
    must_be_in_order(records)
    rows = [(Op(each["op"]), key_of(plan, each["row"]), each["row"]) for each in changes]
    return fold_changelog({}, rows)


def _read_position(brokers: str, topic: str) -> tuple[int | None, str, str]:
    """Return how far a topic is, as its progress says."""
    options = {"bootstrap.servers": brokers}
    own, others = read_progress(options, progress_topic(topic), "items")
    assert own is not None and own.complete and not others
    return own.epoch, own.uuid, str(own.offsets)
