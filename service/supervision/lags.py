"""Lags: how far jobs are from the ends of their topics, asked of the brokers now and then.

    offsets of the newest epoch ◄──► end offsets, every few seconds, one connection a name

A broker that does not answer costs this thread time, and nobody else: the lag is unknown then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec

from schemas.spec.broker_address import require_allowed_brokers
from schemas.spec.connections import Connections, UnknownConnectionError, kafka_python_options
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow, Offsets

log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0
_FIRST_SECONDS = 0.5
_ANSWER_MS_MAX = 5_000
_STALE_SECONDS = 30.0
_AFTER_FAILURE_SECONDS = 30.0  # a broker that did not answer is left alone for so long
_READ_COMMITTED = 1

# The jobs to ask for: name, spec and the newest epoch of each. Who is told of the answers.
Jobs = Callable[[], list[tuple[str, JobSpec, EpochRow]]]
Told = Callable[[str], None]


class Lags:
    """One thread; `of` and `ends` give what it found last."""

    def __init__(self, connections: Connections, jobs: Jobs, told: Told) -> None:
        self._connections = connections
        self._jobs = jobs
        self._told = told
        self._clients: dict[str, Any] = {}
        self._failed: dict[str, float] = {}
        self._found: dict[str, tuple[float, Offsets]] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lags", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """The thread may hang in a client for some seconds; it holds nothing that matters."""
        self._closed.set()

    def ends(self, name: str) -> Offsets:
        """The end offsets of a job's topics; empty where they are not known."""
        at, found = self._found.get(name, (0.0, {}))
        return found if time.monotonic() - at < _STALE_SECONDS else {}

    def of(self, name: str, newest: EpochRow) -> dict[str, Any] | None:
        """The lag of a job: in all, and of each partition; None where it is not known."""
        ends = self.ends(name)
        if not ends:
            return None
        partitions = {
            f"{topic}/{partition}": max(0, end - newest.offsets.get(topic, {}).get(partition, 0))
            for topic, found in ends.items()
            for partition, end in found.items()
        }
        return {"records": sum(partitions.values()), "partitions": partitions}

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.wait(_EVERY_SECONDS if self._found else _FIRST_SECONDS):
            try:
                for name, spec, newest in self._jobs():
                    if self._closed.is_set():
                        return
                    self._ask(name, spec, newest)
            except Exception:
                if not self._closed.is_set():
                    log.exception("lags")

    def _ask(self, name: str, spec: JobSpec, newest: EpochRow) -> None:
        connection = spec.source.connection
        if time.monotonic() - self._failed.get(connection, -1e9) < _AFTER_FAILURE_SECONDS:
            return
        try:
            client = self._client(connection)
            places = {
                TopicPartition(topic, int(partition)): OffsetSpec.LATEST
                for topic, partitions in newest.offsets.items()
                for partition in partitions
            }
            told = client.list_partition_offsets(places, _READ_COMMITTED) if places else {}
        except Exception as error:
            log.debug("the lag of job %s is not known: %s", name, type(error).__name__)
            self._failed[connection] = time.monotonic()
            with suppress(Exception):
                self._clients.pop(connection).close()
            return
        self._found[name] = (time.monotonic(), _by_topic(told))
        self._told(name)

    def _client(self, name: str) -> Any:
        client = self._clients.get(name)
        if client is None:
            with suppress(UnknownConnectionError):
                options: Mapping[str, Any] = kafka_python_options(self._connections.named(name))
                client = self._clients[name] = KafkaAdminClient(
                    **options,
                    bootstrap_timeout_ms=_ANSWER_MS_MAX,
                    request_timeout_ms=_ANSWER_MS_MAX,
                )
                require_allowed_brokers(client._client.cluster)
        return client


def _by_topic(told: Mapping[Any, Any]) -> Offsets:
    found: Offsets = {}
    for place, at in told.items():
        found.setdefault(place.topic, {})[str(place.partition)] = at.offset
    return found
