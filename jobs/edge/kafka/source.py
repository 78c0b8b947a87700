"""Kafka source: the stream that Spark cuts into micro-batches, and where each of them ends.

Only the offsets of a micro-batch are used: the records are read where they are decoded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from jobs.edge.kafka.admin import KafkaAdmin, TopicMissing
from schemas.spec.job import MiniBatch
from schemas.spec.source import StartAt
from schemas.table.epoch import Offsets, TopicIdentity

NEW_PARTITION = -2  # Spark's word for "from its first record"


class SourceChanged(Exception):
    """The topic is not the one that the job's offsets belong to; going on would skip changes."""


def changes_stream(
    spark: SparkSession,
    connection: Mapping[str, str],
    starts: Offsets,
    minibatch: MiniBatch,
    *,
    some: bool = False,
) -> DataFrame:
    """The topics from these offsets on, cut into micro-batches as the bundles are meant. Of
    `some` partitions only those; else those too that a topic gets meanwhile."""
    which = "assign" if some else "subscribe"
    names = {topic: [int(p) for p in sorted(found)] for topic, found in starts.items()}
    reader = (
        spark.readStream.format("kafka")
        .options(**connection)
        .option(which, json.dumps(names) if some else ",".join(sorted(starts)))
        .option("startingOffsets", json.dumps(starts))
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", str(minibatch.max_rows))
    )
    if minibatch.size is not None and minibatch.size > 1:
        reader = reader.option("minOffsetsPerTrigger", str(minibatch.size))
        reader = reader.option("maxTriggerDelay", f"{minibatch.latency_ms}ms")
    return reader.load()


def planned_ends(spark: SparkSession) -> Offsets:
    """The offsets at which the micro-batch ends that the calling thread is handed.

    Rows cannot tell: a transactional topic ends in control records, and a compacted one has gaps.
    So the query itself is asked, of which this is the only source.
    """
    query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    execution = spark._jsparkSession.streams().get(query).streamingQuery()
    planned: Offsets = json.loads(execution.availableOffsets().values().head().json())
    return planned


def topic_identities(admin: KafkaAdmin, topics: Sequence[str]) -> dict[str, TopicIdentity]:
    found = {name: admin.topic(name) for name in topics}
    missing = [name for name, identity in found.items() if identity is None]
    if missing:
        raise TopicMissing(
            f"source topic {missing[0]!r} does not exist; create it or correct source.topic"
        )
    return {name: identity for name, identity in found.items() if identity is not None}


def same_topics(admin: KafkaAdmin, known: Mapping[str, TopicIdentity]) -> None:
    """SourceChanged unless every topic is the one whose offsets are known. Asked after the tasks
    have read, it says that they read that topic: Spark itself goes by names and offsets only."""
    for topic, identity in topic_identities(admin, tuple(known)).items():
        _same(topic, known[topic], identity)


def _same(topic: str, known: TopicIdentity, found: TopicIdentity) -> None:
    if known.id != found.id:
        raise SourceChanged(
            f"topic {topic!r} was deleted and made again (id {known.id} is now {found.id}); its "
            "offsets mean something else. Start a new job, or rewind"
        )


def first_offsets(admin: KafkaAdmin, topics: Sequence[str], start: str | StartAt) -> Offsets:
    """Where a job without a committed epoch begins, as offsets that do not move any more."""
    offsets: Offsets = {}
    for topic in topics:
        beginning = admin.beginning_offsets(topic)
        if start == "earliest":
            found = beginning
        elif start == "latest":
            found = admin.end_offsets(topic)
        else:
            assert isinstance(start, StartAt)
            found = dict(beginning)
            if start.offsets is not None:
                unknown = sorted(set(start.offsets) - set(beginning))
                if unknown:
                    raise SourceChanged(
                        f"source.start names partition {unknown[0]}, but {topic} has "
                        f"{len(beginning)} partitions"
                    )
                found.update(start.offsets)
            else:
                found = admin.offsets_at(topic, start.timestamp_ms or 0)
        offsets[topic] = {str(partition): offset for partition, offset in sorted(found.items())}
    return offsets


def checked_starts(
    admin: KafkaAdmin,
    offsets: Offsets,
    known: Mapping[str, TopicIdentity],
    found: Mapping[str, TopicIdentity],
) -> Offsets:
    """The offsets to go on from, with new partitions added, or SourceChanged.

    A topic that was deleted and made again, one that lost partitions, and offsets that retention
    has passed or the topic has not reached yet would all skip changes silently.
    """
    left = sorted(set(offsets) - set(found))
    if left:
        raise SourceChanged(
            f"the job has read topic {left[0]!r}, which the spec no longer names; its rows are in "
            "the state for good. Name it again, or give the job a new name"
        )
    starts: Offsets = {}
    for topic, identity in found.items():
        before = known.get(topic)
        if before is not None:
            _same(topic, before, identity)
        if before is not None and before.partitions > identity.partitions:
            raise SourceChanged(f"topic {topic!r} lost partitions: it had {before.partitions}")
        beginning, end = admin.beginning_offsets(topic), admin.end_offsets(topic)
        at = offsets.get(topic, {})
        for partition, offset in at.items():
            first, last = beginning.get(int(partition), 0), end.get(int(partition), 0)
            if offset < first:
                raise SourceChanged(
                    f"{topic}/{partition}: the job stands at offset {offset}, but retention has "
                    f"removed everything before {first}; {first - offset} offsets are lost. "
                    "Start a new job, or raise the topic's retention and rewind"
                )
            if offset > last:
                raise SourceChanged(
                    f"{topic}/{partition}: the job stands at offset {offset}, but the topic ends "
                    f"at {last}; it is not the topic that was read"
                )
        starts[topic] = {
            str(partition): at.get(str(partition), NEW_PARTITION if at else first)
            for partition, first in sorted(beginning.items())
        }
    return starts


def with_new_partitions(offsets: Offsets, ends: Offsets) -> Offsets:
    """Return the offsets with the partitions that the topics have got meanwhile: Spark refuses to
    begin unless each of them is named."""
    return {
        topic: dict.fromkeys(found, NEW_PARTITION) | offsets.get(topic, {})
        for topic, found in ends.items()
    }


def reached(offsets: Offsets, goal: Offsets) -> bool:
    return all(
        offsets.get(topic, {}).get(partition, 0) >= end
        for topic, partitions in goal.items()
        for partition, end in partitions.items()
    )


def lag(offsets: Offsets, ends: Offsets) -> int:
    return sum(
        max(0, end - offsets.get(topic, {}).get(partition, 0))
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )
