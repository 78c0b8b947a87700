"""Read and create topics, and read and commit offsets, with kafka-python.

The identity of a topic is its id and partition count. A topic that was deleted and created again
has the same name but other records, so the old offsets mean nothing in it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, OffsetSpec, OffsetTimestamp
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidReplicationFactorError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    TopicAlreadyExistsError,
    for_code,
)
from kafka.structs import OffsetAndMetadata

from jobs.edge.files.log import FileLog
from jobs.topics.consumer import find_listener
from schemas import limits
from schemas.limits import LISTENER_SECONDS_MAX
from schemas.spec.broker_address import require_allowed_brokers
from schemas.spec.connections import Connections, kafka_python_options
from schemas.spec.job import JobSpec
from schemas.table.epoch import TopicIdentity

_READ_COMMITTED = 1
_UNKNOWN_TOPIC = 3
_BROKERS_DEFAULT = -1  # the broker's own default for replication
_PAUSE_SECONDS = 0.1
_COORDINATOR_STARTING = (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)


class TopicMissing(LookupError):
    """The topic does not exist, or its partitions have no leader."""


class BrokerSilent(KafkaTimeoutError):  # type: ignore[misc]
    """No bootstrap address has a broker that answers; the message says what to do."""

    def __init__(self, addresses: Sequence[str], why: str) -> None:
        super().__init__(
            f"no answer from {', '.join(addresses)} ({why}); start a broker with retally broker, "
            "or name yours with --brokers, RETALLY_BROKERS or --connections"
        )

    def __str__(self) -> str:
        return str(self.args[0])


class KafkaAdmin:
    """One connection for administration. Kafka's errors are raised as kafka.errors.KafkaError.

    `options` are kafka-python's (see kafka_python_options). Open it before any other client: it
    reads the brokers' advertised addresses from the bootstrap addresses, and raises AddressRefused
    before a client connects to them.
    """

    def __init__(
        self,
        options: Mapping[str, Any] | None,  # None: no broker, only files
        *,
        seconds_max: float = limits.KAFKA_ADMIN_SECONDS_MAX,
    ) -> None:
        milliseconds = int(seconds_max * 1_000)
        self._seconds_max = seconds_max
        self._elsewhere: dict[str, KafkaAdmin] = {}  # topics of other clusters
        self._files: Mapping[str, FileLog] = {}  # directories, which are topics to a job
        self._client: Any = None
        if options is None:
            return
        given = options["bootstrap_servers"]
        addresses = [given] if isinstance(given, str) else list(given)
        try:
            self._client = KafkaAdminClient(
                **options, bootstrap_timeout_ms=milliseconds, request_timeout_ms=milliseconds
            )
        except KafkaTimeoutError:
            why = find_listener(addresses) or "it listens; is it Kafka, and TLS on both sides?"
            raise BrokerSilent(addresses, why) from None
        try:
            require_allowed_brokers(self._client._client.cluster)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def of_sources(
        cls, connections: Connections, spec: JobSpec, files: Mapping[str, FileLog]
    ) -> Self:
        """Open the clusters of a job's sources; each topic is found where it is."""
        first, *others = spec.topics_by_connection.items() or [("", [])]
        admin = cls(kafka_python_options(connections.lookup(first[0])) if first[0] else None)
        admin._files = files
        try:
            for name, topics in others:
                other = KafkaAdmin(kafka_python_options(connections.lookup(name)))
                admin._elsewhere |= dict.fromkeys(topics, other)
        except BaseException:
            admin.close()
            raise
        return admin

    def close(self) -> None:
        for admin in {id(each): each for each in self._elsewhere.values()}.values():
            admin.close()
        if self._client is not None:
            self._client.close()

    def topics(self, beside: str = "") -> list[str]:
        """Return the names of a cluster's topics, without those of Kafka itself.

        It is the cluster of the topic `beside`."""
        names = self._client_of(beside).list_topics()
        return sorted(name for name in names if not name.startswith("__"))

    def topic(self, name: str) -> TopicIdentity | None:
        """Return the topic's id and partition count; None if there is no such topic."""
        if (log := self._files.get(name)) is not None:
            return TopicIdentity(log.id, 1)
        (topic,) = self._client_of(name).describe_topics([name])
        code = topic["error_code"]
        if code == _UNKNOWN_TOPIC:
            return None
        if code:
            raise for_code(code)(f"topic {name!r}")
        return TopicIdentity(str(topic["topic_id"]), len(topic["partitions"]))

    def cleanup_policy(self, name: str) -> str:
        """Return the topic's cleanup.policy; empty without the permission DescribeConfigs."""
        if name in self._files:
            return "delete"
        wanted = [ConfigResource("topic", name, ["cleanup.policy"])]
        found = self._client_of(name).describe_configs(wanted, config_filter="all")["topic"][name]
        return str(found["cleanup.policy"]["value"]) if found else ""

    def ensure_topic(
        self, name: str, partitions: int, configuration: Mapping[str, str]
    ) -> TopicIdentity:
        """Return the topic; create it if it is absent, but do not change an existing topic."""
        found = self.topic(name)
        if found is not None:
            return found
        wanted = {
            "num_partitions": partitions,
            "replication_factor": _BROKERS_DEFAULT,
            "configs": dict(configuration),
        }
        deadline = time.monotonic() + self._seconds_max
        while True:
            try:
                self._client.create_topics({name: wanted}, wait_for_metadata=True)
            except TopicAlreadyExistsError:  # another client has just created it
                self._client.wait_for_topics([name], int(self._seconds_max * 1_000))
            except InvalidReplicationFactorError:  # also while brokers are late with heartbeats
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
                continue
            break
        found = self.topic(name)
        if found is None:
            raise TopicMissing(f"topic {name!r} disappeared while it was created")
        return found

    def delete_topics(self, names: Sequence[str]) -> None:
        self._client.delete_topics(list(names))

    def beginning_offsets(self, name: str) -> dict[int, int]:
        return self._offsets(name, OffsetSpec.EARLIEST)

    def end_offsets(self, name: str, *, read_committed: bool = True) -> dict[int, int]:
        """Return the end offsets, or with `read_committed` the ends before open transactions."""
        return self._offsets(name, OffsetSpec.LATEST, int(read_committed))

    def offsets_at(self, name: str, timestamp_ms: int) -> dict[int, int]:
        """Return each partition's first offset at or after a time; its end if all are older."""
        end = self.end_offsets(name)
        if (log := self._files.get(name)) is not None:
            return {0: log.offset_at(timestamp_ms)}
        found = self._offsets(name, OffsetTimestamp(timestamp_ms))
        return {number: at if at >= 0 else end[number] for number, at in found.items()}

    def commit_group_offsets(self, group: str, name: str, offsets: Mapping[int, int]) -> None:
        """Report offsets under a group without members, for tools that show its lag."""
        if name in self._files:
            return
        wanted = {
            TopicPartition(name, partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }

        deadline = time.monotonic() + self._seconds_max
        while True:
            try:
                errors = self._client_of(name).alter_group_offsets(group, wanted)
                for partition, error in errors.items():
                    if error.errno:
                        raise error(f"offset of {name} {partition.partition} for group {group!r}")
                return
            except _COORDINATOR_STARTING:  # a broker that has just started chooses or loads one
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)

    def _offsets(self, name: str, spec: int, isolation: int = _READ_COMMITTED) -> dict[int, int]:
        if (log := self._files.get(name)) is not None:
            return {0: 0 if spec == OffsetSpec.EARLIEST else log.end}
        topic = self.topic(name)
        if topic is None:
            raise TopicMissing(f"there is no topic {name!r}")
        wanted = {TopicPartition(name, number): spec for number in range(topic.partitions)}
        found = self._client_of(name).list_partition_offsets(wanted, isolation)
        return {partition.partition: at.offset for partition, at in sorted(found.items())}

    def _client_of(self, topic: str) -> KafkaAdminClient:
        return self._elsewhere.get(topic, self)._client


def require_listener(addresses: Sequence[str], seconds_max: float = LISTENER_SECONDS_MAX) -> None:
    """Raise BrokerSilent if no address has a listener for so long; a client tries for longer."""
    deadline = time.monotonic() + seconds_max
    while why := find_listener(addresses):
        if time.monotonic() >= deadline:
            raise BrokerSilent(addresses, why)
        time.sleep(_PAUSE_SECONDS)


__all__ = ["BrokerSilent", "KafkaAdmin", "KafkaError", "TopicMissing", "require_listener"]
