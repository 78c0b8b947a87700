"""What a start does when table and topic say different things of how far the job has come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer

from jobs.core.publish.protocol import TopicPosition
from jobs.edge.process.broker import Broker
from jobs.edge.publisher.handle import PublisherFailed
from jobs.edge.publisher.job_publisher import (
    HistoryMissing,
    JobPublisher,
    SinkAhead,
    find_last_published,
)
from jobs.edge.publisher.session import read_progress
from jobs.edge.table.compaction import Merge
from jobs.edge.table.delta_epochs import Fenced
from jobs.edge.table.retention import expire_history
from jobs.reading.parts import CHANGELOG, EPOCHS
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec
from schemas.table.changelog import progress_topic
from schemas.table.epoch import EpochRow
from tests.support.epoch_rows import epoch_row
from tests.support.jobs.running_job import consumed
from tests.support.tables.folded_table import FoldedTable, insert


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


@pytest.mark.broker
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


@pytest.mark.broker
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


@pytest.mark.broker
@pytest.mark.slow
def test_a_topic_inside_an_epoch_that_the_table_lacks_is_refused(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The table was restored to just before an epoch of which a part is published."""
    table = FoldedTable(tmp_path)
    table.epoch(insert("a", 1))
    publish(table, broker, topic)
    newest, *_ = read_progress(
        {"bootstrap.servers": broker.address}, progress_topic(topic), "items"
    )
    assert newest is not None
    begun = msgspec.structs.replace(newest, epoch=2, seq=0, complete=False)
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(progress_topic(topic), key="items", value=msgspec.json.encode(begun))
    producer.flush()
    with pytest.raises(SinkAhead, match="has epoch 2, but the table is at epoch 1"):
        publish(table, broker, topic)


@pytest.mark.broker
def test_changelog_rows_that_retention_removed_before_their_epochs_are_missed(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """Only whole files expire: epoch rows that were merged stay longer than their changelog."""
    table = FoldedTable(tmp_path)
    for number, rows in enumerate((1, 2, 2)):
        table.epoch(insert("a", number), counters={"groups": 1, "changelog_rows": rows})
    publish(table, broker, topic)
    epochs = tuple(file for file in table.table.live_files() if file.part == EPOCHS)
    table.merge(Merge(EPOCHS, 1, epochs))
    old = expire_history(table.table, 10**18, 2, "0" * 32)
    assert old is not None and {file.part for file in old.removed} == {CHANGELOG}
    table.table.commit(old.added, old.removed, uuid="0" * 32, what="retention")
    table.epoch(insert("a", 3), counters={"groups": 1, "changelog_rows": 2})

    publish(table, broker, topic)  # it has the removed rows
    with pytest.raises(PublisherFailed, match=r"history-missing: epoch 1 .* only 0 .*clone the"):
        publish(table, broker, f"{topic}-new")
    assert consumed(broker.address, f"{topic}-new") == []


def position(epoch: int, **fields: Any) -> TopicPosition:
    return TopicPosition("id", 2, epoch, **fields)


def test_a_topic_goes_on_inside_the_first_epoch_of_its_history() -> None:
    rows = [epoch_row(number) for number in (3, 4)] + [epoch_row(5, counters={"begins": 1})]
    assert find_last_published("t", position(5, complete=False), rows) == 4
    assert find_last_published("t", TopicPosition("id", 2), rows) == 4
    assert find_last_published("t", position(5), rows) == 5
    for older in (position(4), position(4, complete=False), position(3)):
        with pytest.raises(HistoryMissing, match="starts with epoch 5, and topic 't' has an older"):
            find_last_published("t", older, rows)


def test_a_table_that_differs_from_what_a_helper_has_published_is_refused() -> None:
    rows = [epoch_row(number) for number in (3, 4)]
    ahead = [(5, -1, rows[1].uuid)]
    assert find_last_published("t", position(3, ahead=ahead), rows) == 3
    with pytest.raises(SinkAhead, match="epoch 4 of topic 't' differs from the table's epoch 4"):
        find_last_published("t", position(3, ahead=[(5, -1, "other")]), rows)
    begun = [epoch_row(3, counters={"begins": 1})]
    assert find_last_published("t", TopicPosition("id", 2), begun) == 2
    for own in [(4, -1, begun[0].uuid)], [(3, 5, ""), (4, -1, begun[0].uuid)]:  # share 0 has none
        assert find_last_published("t", TopicPosition("id", 2, ahead=own), begun) == 2
    of_new_job = TopicPosition("id", 2, ahead=[(1, -1, "")])
    assert find_last_published("t", of_new_job, [epoch_row(0), epoch_row(1)]) == -1
    with pytest.raises(HistoryMissing, match="has an older changelog"):
        find_last_published("t", TopicPosition("id", 2, ahead=[(2, -1, "")]), begun)
