"""Lags: the number of unread records of each job, from end offsets that the brokers report.

    offsets of the newest epoch ◄──► end offsets, every few seconds, one connection for each name

A broker that does not respond delays this thread only; the lag is unknown then. A missing topic is
a problem of its job, and the other jobs of the connection go on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import (
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from schemas.directory.file_log import file_log_path, read_file_log
from schemas.documents.answers import Lag
from schemas.limits import LAG_ANSWER_MS_MAX
from schemas.spec.broker_address import require_allowed_brokers
from schemas.spec.connections import Connections, UnknownConnectionError, kafka_python_options
from schemas.spec.job import JobSpec
from schemas.spec.source import Files
from schemas.table.epoch import EpochRow, Offsets

log = logging.getLogger(__name__)

_INTERVAL_SECONDS = 5.0
_FIRST_SECONDS = 0.5
_STALE_SECONDS = 30.0
_AFTER_FAILURE_SECONDS = 30.0  # no request to an unresponsive broker for this time
_READ_COMMITTED = 1
_OF_TOPIC = (
    NotLeaderForPartitionError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

# Return name, spec and newest epoch of each job to measure.
ListJobs = Callable[[], list[tuple[str, JobSpec, EpochRow]]]
# Called with a job's name when its end offsets are known.
OnEnds = Callable[[str], None]


class Lags:
    """One thread that requests end offsets; the methods return the last known values."""

    def __init__(
        self, data: Path, connections: Connections, list_jobs: ListJobs, on_ends: OnEnds
    ) -> None:
        self._data = data
        self._connections = connections
        self._list_jobs = list_jobs
        self._on_ends = on_ends
        self._clients: dict[str, KafkaAdminClient] = {}
        self._retry_at: dict[tuple[str, str], float] = {}  # by connection, or by job
        self._found: dict[str, tuple[float, Offsets]] = {}
        self._logged: dict[Path, tuple[int, int]] = {}  # bytes and lines read of each file log
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lags", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; it may block in a client for some seconds, but holds no resources."""
        self._closed.set()

    def find_ends(self, name: str) -> Offsets:
        """Return the end offsets of a job's topics; empty if unknown."""
        at, found = self._found.get(name, (0.0, {}))
        return found if time.monotonic() - at < _STALE_SECONDS else {}

    def compute_lag(self, name: str, spec: JobSpec, newest: EpochRow) -> Lag | None:
        """Return the lag of a job: in total, by partition, by source of several; None: unknown."""
        ends = self.find_ends(name)
        if not ends:
            return None
        partitions = {
            f"{topic}/{partition}": max(0, end - newest.offsets.get(topic, {}).get(partition, 0))
            for topic, found in ends.items()
            for partition, end in found.items()
        }
        by_source = None if spec.sources is None else lag_by_source(spec, partitions)
        return Lag(sum(partitions.values()), partitions, by_source)

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_SECONDS if self._found else _FIRST_SECONDS):
            try:
                for name, spec, newest in self._list_jobs():
                    if self._closed.is_set():
                        return
                    self._request_ends(name, spec, newest)
            except Exception:
                if not self._closed.is_set():
                    log.exception("cannot measure lags")

    def _request_ends(self, name: str, spec: JobSpec, newest: EpochRow) -> None:
        found: Offsets = {}
        for files in (alone.source.files for alone in spec.source_specs.values()):
            if files is not None:
                found[files.path] = {"0": self._count_logged(files)}
        for connection, topics in spec.topics_by_connection.items():
            known = {topic: newest.offsets[topic] for topic in topics if topic in newest.offsets}
            ends = self._request_of(connection, name, known)
            if ends is None:
                return
            found |= ends
        self._found[name] = (time.monotonic(), found)
        self._on_ends(name)

    def _count_logged(self, files: Files) -> int:
        """Return the lines that a job has noticed; read what was logged since the last round."""
        path = file_log_path(self._data, files.path, header=files.header)
        at, lines = self._logged.get(path, (0, 0))
        _, logged, at = read_file_log(path, at)
        lines = sum((each.lines for each in logged), lines if at else 0)
        self._logged[path] = at, lines
        return lines

    def _request_of(self, connection: str, name: str, known: Offsets) -> Offsets | None:
        """Return the end offsets of a job's topics of one connection; None if unknown."""
        now = time.monotonic()
        if any(now < self._retry_at.get(each, 0) for each in ((connection, ""), ("", name))):
            return None
        try:
            client = self._connect(connection)
            wanted = {
                TopicPartition(topic, int(partition)): OffsetSpec.LATEST
                for topic, partitions in known.items()
                for partition in partitions
            }
            offsets = client.list_partition_offsets(wanted, _READ_COMMITTED) if wanted else {}
        except Exception as error:
            log.debug("the lag of job %s is unknown: %s", name, type(error).__name__)
            of_topic = isinstance(error, _OF_TOPIC)  # the other jobs of the connection go on
            failed = ("", name) if of_topic else (connection, "")
            self._retry_at[failed] = time.monotonic() + _AFTER_FAILURE_SECONDS
            if not of_topic:
                with suppress(Exception):
                    self._clients.pop(connection).close()
            return None
        return _group_by_topic(offsets)

    def _connect(self, name: str) -> Any:
        client = self._clients.get(name)
        if client is None:
            with suppress(UnknownConnectionError):
                options: Mapping[str, Any] = kafka_python_options(self._connections.lookup(name))
                client = self._clients[name] = KafkaAdminClient(
                    **options,
                    bootstrap_timeout_ms=LAG_ANSWER_MS_MAX,
                    request_timeout_ms=LAG_ANSWER_MS_MAX,
                )
                require_allowed_brokers(client._client.cluster)
        return client


def lag_by_source(spec: JobSpec, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the lag of each source; records of a topic that two sources read are in both."""
    lags = dict.fromkeys(spec.topics_by_source, 0)
    for partition, records in partitions.items():
        for source in spec.sources_of(partition.rpartition("/")[0]):
            lags[source] += records
    return lags


def _group_by_topic(offsets: Mapping[Any, Any]) -> Offsets:
    found: Offsets = {}
    for partition, at in offsets.items():
        found.setdefault(partition.topic, {})[str(partition.partition)] = at.offset
    return found
