"""Where a job may go on reading, asked of a real broker."""

from __future__ import annotations

import pytest

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import (
    NEW_PARTITION,
    SourceChanged,
    check_starts,
    find_topics,
    first_offsets,
)
from jobs.edge.process.broker import Broker
from schemas.spec.source import StartAt


@pytest.fixture
def admin(broker: Broker) -> KafkaAdmin:
    return KafkaAdmin({"bootstrap_servers": [broker.address]})


def test_a_topic_that_the_spec_no_longer_names_is_refused(admin: KafkaAdmin, topic: str) -> None:
    admin.ensure_topic(topic, 1, {})
    found = find_topics(admin, [topic])
    with pytest.raises(SourceChanged, match="no longer names"):
        check_starts(admin, {topic: {"0": 0}, "another": {"0": 3}}, found, found)


def test_partitions_that_are_new_begin_at_their_first_record(admin: KafkaAdmin, topic: str) -> None:
    admin.ensure_topic(topic, 3, {})
    found = find_topics(admin, [topic])
    starts = check_starts(admin, {topic: {"0": 0}}, found, found)
    assert starts == {topic: {"0": 0, "1": NEW_PARTITION, "2": NEW_PARTITION}}


def test_an_offset_beyond_the_end_is_another_topics(admin: KafkaAdmin, topic: str) -> None:
    admin.ensure_topic(topic, 1, {})
    found = find_topics(admin, [topic])
    with pytest.raises(SourceChanged, match="ends at 0"):
        check_starts(admin, {topic: {"0": 7}}, found, found)


def test_start_offsets_of_a_partition_that_is_not_there_are_refused(
    admin: KafkaAdmin, topic: str
) -> None:
    admin.ensure_topic(topic, 2, {})
    assert first_offsets(admin, [topic], "latest") == {topic: {"0": 0, "1": 0}}
    with pytest.raises(SourceChanged, match="partition 5"):
        first_offsets(admin, [topic], StartAt.model_validate({"offsets": {"5": 1}}))
