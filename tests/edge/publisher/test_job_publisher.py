"""What a start does when table and topic say different things of how far the job has come."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from jobs.edge.publisher.handle import PublisherFailed
from jobs.edge.publisher.job_publisher import JobPublisher, SinkAhead
from jobs.edge.table.delta_epochs import Fenced
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec
from schemas.table.epoch import EpochRow
from tests.support.tables.folded_table import FoldedTable, insert

pytestmark = pytest.mark.broker


def publish(table: FoldedTable, broker: Broker, topic: str, newest: EpochRow | None = None) -> None:
    spec = load_spec(
        {
            "name": "items",
            "source": {"topic": "t"},
            "columns": {"name": "STRING", "v": "BIGINT"},
            "query": "SELECT name, SUM(v) AS total FROM t GROUP BY name",
            "sink": {"topic": topic, "partitions": 2},
        }
    )
    connection = load_connections(None, broker.address).lookup("default")
    publishing = JobPublisher(
        spec, {"": table.plan}, table.table, newest or table.newest, connection
    ).start()
    try:
        publishing.drain()
    finally:
        publishing.close()


def test_a_topic_that_is_ahead_of_the_table_is_refused(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """A table of the same age in another directory, or one that was restored, would make other
    epochs of the same numbers; and those the topic has already would not be sent."""
    made = FoldedTable(tmp_path / "made")
    for number in range(2):
        made.epoch(insert("a", number))
    restored = made.copied(tmp_path / "restored")
    made.epoch(insert("a", 2))
    publish(made, broker, topic)
    publish(made, broker, topic)  # as far as the topic: nothing is left to do

    restored.table.version = made.table.version  # the writer's generation does not tell
    with pytest.raises(SinkAhead, match=r"has epoch 3, but the table is at epoch 2.*restored"):
        publish(restored, broker, topic)
    restored.table.version = restored.table.handle.version()
    restored.epoch(insert("a", 3))
    with pytest.raises(SinkAhead, match=r"epoch 3 of topic .* differs from the table's"):
        publish(restored, broker, topic)
    other = FoldedTable(tmp_path / "other")
    other.epoch(insert("a", 1))
    with pytest.raises(PublisherFailed, match="changelog of job 'items', which has another table"):
        publish(other, broker, topic)


def test_a_start_that_another_writer_has_overtaken_is_fenced(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The topic is ahead of the epoch that this start has read, but the table is so as well: it
    was not restored, and nobody should look for a backup. (Found by simulation, seed 52.)"""
    table = FoldedTable(tmp_path)
    table.epoch(insert("a", 1))
    begun_at = table.newest
    table.epoch(insert("a", 2))
    publish(table, broker, topic)
    with pytest.raises(Fenced, match="is now at epoch 2, but this job started at epoch 1"):
        publish(table, broker, topic, begun_at)
