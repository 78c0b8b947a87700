"""Where a job may go on reading, asked of a real broker."""

from __future__ import annotations

from typing import Any

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
from schemas.spec.file import Document, load_spec, validate
from schemas.spec.job import JobSpec
from tests.support.jobs.running_job import produce

COLUMNS = {"id": "BIGINT"}
SPEC = {"name": "a", "columns": COLUMNS, "query": "SELECT COUNT(*) AS n FROM t"}
JOINED = {"name": "a", "query": "SELECT COUNT(*) AS n FROM a JOIN b ON a.id = b.id"}


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
    spec = load_spec({**SPEC, "source": {"topic": topic, "start": {"offsets": {"5": 1}}}})
    with pytest.raises(SourceChanged, match=r"source\.start names partition 5"):
        first_offsets(admin, spec)


def test_each_source_begins_at_its_own_start(admin: KafkaAdmin, broker: Broker, topic: str) -> None:
    other = f"{topic}-other"
    for name in (topic, other):
        admin.ensure_topic(name, 1, {})
        produce(broker.address, name, [(0, b"1"), (0, b"2")])
    sources: dict[str, dict[str, Any]] = {
        "a": {"topic": topic, "columns": COLUMNS, "start": "latest"},
        "b": {"topic": other, "columns": COLUMNS, "start": {"offsets": {"0": 1}}},
    }
    spec = validate(JobSpec, Document("", {**JOINED, "sources": sources}))
    assert first_offsets(admin, spec) == {topic: {"0": 2}, other: {"0": 1}}
    sources["b"]["start"] = {"offsets": {"3": 1}}
    spec = validate(JobSpec, Document("", {**JOINED, "sources": sources}))
    with pytest.raises(SourceChanged, match=r"sources\.b\.start names partition 3"):
        first_offsets(admin, spec)
