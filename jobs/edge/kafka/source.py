"""Read the source topics with Spark, and check that they still fit the job's offsets.

Spark's stream only plans micro-batches: the job uses their end offsets, and decode tasks read the
records.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce

import msgspec
from pyspark.sql import DataFrame, SparkSession

from jobs.edge.kafka.admin import KafkaAdmin, TopicMissing
from schemas.failures.catalogue import CodedError
from schemas.spec.job import JobSpec, MiniBatch
from schemas.spec.source import StartAt
from schemas.spec.source_rows import locate_key
from schemas.table.epoch import EpochRow, Offsets, TopicIdentity

_NAMED = 5  # known topics in the error for an unknown one
NEW_PARTITION = -2  # Spark's offset for the first record of a partition


class SourceChanged(CodedError, code="source-changed"):
    """The job's offsets do not fit the topic; going on would skip changes."""


def read_changes(
    spark: SparkSession,
    clusters: Sequence[tuple[Mapping[str, str], Offsets]],
    minibatch: MiniBatch,
    *,
    some: bool = False,
) -> DataFrame:
    """Return the stream of topics from the offsets of each cluster on, in micro-batches.

    With `some`, read only the partitions in the offsets; else also those that a topic gets later.
    """
    shares = len(clusters)
    streams = [
        _read_cluster(spark, options, starts, minibatch, shares, some=some)
        for options, starts in clusters
    ]
    return reduce(DataFrame.union, streams)


def _read_cluster(
    spark: SparkSession,
    connection: Mapping[str, str],
    starts: Offsets,
    minibatch: MiniBatch,
    shares: int,
    *,
    some: bool,
) -> DataFrame:
    """Return the stream of one cluster, with its share of a bundle's records."""
    assert minibatch.max_rows is not None
    size = None if minibatch.size is None else minibatch.size // shares
    option = "assign" if some else "subscribe"
    names = {topic: [int(p) for p in sorted(found)] for topic, found in starts.items()}
    reader = (
        spark.readStream.format("kafka")
        .options(**connection)
        .option(option, json.dumps(names) if some else ",".join(sorted(starts)))
        .option("startingOffsets", json.dumps(starts))
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", str(max(1, minibatch.max_rows // shares)))
    )
    if size is not None and size > 1:
        reader = reader.option("minOffsetsPerTrigger", str(size))
        reader = reader.option("maxTriggerDelay", f"{minibatch.latency_ms}ms")
    return reader.load()


def read_planned_ends(spark: SparkSession) -> Offsets:
    """Return the end offsets of the micro-batch that runs in the calling thread.

    The query has them of each cluster. Its rows do not show them: a transactional topic ends in
    control records, and a compacted topic has gaps.
    """
    query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    execution = spark._jsparkSession.streams().get(query).streamingQuery()
    clusters, planned = execution.availableOffsets().values().iterator(), Offsets()
    while clusters.hasNext():
        planned |= json.loads(clusters.next().json())
    return planned


def find_topics(admin: KafkaAdmin, topics: Sequence[str]) -> dict[str, TopicIdentity]:
    """Return the identity of each topic; raise TopicMissing if one does not exist."""
    found = {name: admin.topic(name) for name in topics}
    missing = [name for name, identity in found.items() if identity is None]
    if missing:
        name = missing[0]
        raise TopicMissing(
            f"source topic {name!r} does not exist; create it or correct its name in the spec "
            f"(retally topics create {name}){_describe_known(name, admin.topics(beside=name))}"
        )
    return {name: identity for name, identity in found.items() if identity is not None}


def _describe_known(missing: str, known: Sequence[str]) -> str:
    """Return the topics with a similar name, or else the first ones."""
    named = get_close_matches(missing, known, _NAMED) or known[:_NAMED]
    return f"; known topics: {', '.join(named)}" if named else "; the brokers have no topic yet"


def require_same_topics(admin: KafkaAdmin, known: Mapping[str, TopicIdentity]) -> None:
    """Raise SourceChanged unless each topic still has its known id.

    The job calls this after its tasks have read, because Spark checks only names and offsets.
    """
    for topic, identity in find_topics(admin, tuple(known)).items():
        _require_same_id(topic, known[topic], identity)


def _require_same_id(topic: str, known: TopicIdentity, found: TopicIdentity) -> None:
    if known.id != found.id and "/" in topic:
        raise SourceChanged(
            f"the log of directory {topic} is not the one that the job has read with, so the job's "
            "offsets mean other lines; restore the directory `files` of the data directory, or "
            "start a new job"
        )
    if known.id != found.id:
        raise SourceChanged(
            f"topic {topic!r} was deleted and created again, or its connection is now another "
            f"cluster (id {known.id} is now {found.id}), so the job's offsets mean other records; "
            "start a new job, or connect it to the old cluster"
        )


def first_offsets(admin: KafkaAdmin, spec: JobSpec, known: Collection[str] = ()) -> Offsets:
    """Return the fixed offsets at which a job starts to read topics, but those that it knows."""
    offsets: Offsets = {}
    for name, alone in spec.source_specs.items():
        for topic in (each for each in alone.source.topics if each not in known):
            key = ".".join(locate_key(("source", "start"), name))
            found = _find_start(admin, topic, alone.source.start, key)
            offsets[topic] = {str(partition): at for partition, at in sorted(found.items())}
    return offsets


def _find_start(admin: KafkaAdmin, topic: str, start: str | StartAt, key: str) -> Mapping[int, int]:
    """Return the first offsets of a topic; `key` is where the spec has the start."""
    beginning = admin.beginning_offsets(topic)
    if start == "earliest":
        return beginning
    if start == "latest":
        return admin.end_offsets(topic)
    assert isinstance(start, StartAt)
    if start.offsets is None:
        return admin.offsets_at(topic, start.timestamp_ms or 0)
    unknown = sorted(set(start.offsets) - set(beginning))
    if unknown:
        raise SourceChanged(
            f"{key} names partition {unknown[0]}, but {topic} has {len(beginning)} partitions; "
            f"correct {key}"
        )
    return beginning | start.offsets


def check_starts(
    admin: KafkaAdmin,
    offsets: Offsets,
    known: Mapping[str, TopicIdentity],
    found: Mapping[str, TopicIdentity],
    advice: str = "start a new job, or raise the topic's retention and rewind",
) -> Offsets:
    """Return the offsets to resume from, with new partitions added, or raise SourceChanged.

    A recreated topic, a topic that lost partitions, and offsets before or after the topic's records
    would all skip changes silently. `advice` is for records that retention has removed.
    """
    left = sorted(set(offsets) - set(found))
    if left:
        raise SourceChanged(
            f"the job has read topic {left[0]!r}, which the spec no longer names; the state keeps "
            "its rows; name the topic again, or give the job a new name"
        )
    starts: Offsets = {}
    for topic, identity in found.items():
        before = known.get(topic)
        if before is not None:
            _require_same_id(topic, before, identity)
        if before is not None and before.partitions > identity.partitions:
            raise SourceChanged(
                f"topic {topic!r} has {identity.partitions} partitions, but the job has read "
                f"{before.partitions}: it was recreated; start a new job with another name and "
                "sink topic"
            )
        beginning, end = admin.beginning_offsets(topic), admin.end_offsets(topic)
        at = offsets.get(topic, {})
        for partition, offset in at.items():
            first, last = beginning.get(int(partition), 0), end.get(int(partition), 0)
            if offset < first:
                raise SourceChanged(
                    f"{topic}/{partition}: the job is at offset {offset}, but retention has "
                    f"removed everything before {first}; {first - offset} offsets are lost; "
                    f"{advice}"
                )
            if offset > last:
                raise SourceChanged(
                    f"{topic}/{partition}: the job is at offset {offset}, but the topic ends at "
                    f"{last}, so it is not the topic that the job has read; start a new job"
                )
        starts[topic] = {
            str(partition): at.get(str(partition), NEW_PARTITION if at else first)
            for partition, first in sorted(beginning.items())
        }
    return starts


def begin_new_topics(admin: KafkaAdmin, spec: JobSpec, newest: EpochRow) -> EpochRow:
    """Return the epoch with the first offsets of topics that the spec did not have in it."""
    new = first_offsets(admin, spec, newest.offsets)
    if not new:
        return newest
    counters = {**newest.counters, "began": {**newest.counts.began, **new}}
    if newest.counts.sources:
        counters["sources"] = spec.topics_by_source
    return msgspec.structs.replace(newest, offsets={**newest.offsets, **new}, counters=counters)


def add_new_partitions(offsets: Offsets, ends: Offsets) -> Offsets:
    """Return the offsets with the partitions that topics got later; Spark requires all of them."""
    return {
        topic: dict.fromkeys(found, NEW_PARTITION) | offsets.get(topic, {})
        for topic, found in ends.items()
    }


def has_reached(offsets: Offsets, goal: Offsets) -> bool:
    """Return whether no partition is before its goal."""
    return all(
        offsets.get(topic, {}).get(partition, 0) >= end
        for topic, partitions in goal.items()
        for partition, end in partitions.items()
    )


def sum_lag(offsets: Offsets, ends: Offsets) -> int:
    """Return the number of offsets from `offsets` to `ends`, over all partitions."""
    return sum(
        max(0, end - offsets.get(topic, {}).get(partition, 0))
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )
