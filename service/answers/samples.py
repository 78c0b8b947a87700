"""Samples: the newest messages of a topic, read in a child process with limits.

    request ──► cached? ──► child: a consumer ──► the newest messages, cut (jobs.topics.samples)

A small batch of messages may unpack to gigabytes; then the kernel ends the child. One read at a
time; a repeated read within some seconds is answered from memory. A broker that does not respond
delays only the user who requested it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial

from jobs.topics.consumer import BrokersRefused, CodecMissing, TopicsUnreadable, TopicUnknown
from jobs.topics.samples import Sample, read_newest
from schemas.limits import SAMPLE_KEPT_SECONDS, SAMPLE_SECONDS_MAX, SAMPLES_KEPT_MAX
from schemas.spec.connections import Connections, UnknownConnectionError
from service.attempts import Attempts
from service.problems import Problem

log = logging.getLogger(__name__)

_Source = tuple[str, tuple[str, ...]]


class Samples:
    """The samples of all topics; call it on the event loop."""

    def __init__(self, connections: Connections, attempts: Attempts) -> None:
        self._connections = connections
        self._attempts = attempts
        self._reading = asyncio.Lock()
        self._cached: dict[_Source, tuple[float, list[Sample]]] = {}  # oldest first

    async def read_newest(self, connection: str, topics: Sequence[str]) -> list[Sample]:
        """Return the newest messages of some topics, newest first.

        Raise a Problem if the brokers do not return them.
        """
        source = (connection, tuple(topics))
        try:
            async with asyncio.timeout(SAMPLE_SECONDS_MAX):
                await self._reading.acquire()
        except TimeoutError:
            detail = "another request is reading messages; try again in a moment"
            raise Problem("too-many-requests", detail, headers={"Retry-After": "5"}) from None
        try:
            self._discard_old()
            if source not in self._cached:
                found = await self._read(connection, topics)
                self._cached[source] = (time.monotonic(), found)
            return self._cached[source][1]
        finally:
            self._reading.release()

    async def _read(self, connection: str, topics: Sequence[str]) -> list[Sample]:
        try:
            read = partial(read_newest, self._connections.lookup(connection), topics)
            return await self._attempts.run(read)
        except UnknownConnectionError as error:
            raise Problem("not-found", str(error)) from None
        except TopicsUnreadable as error:
            raise make_topics_problem(connection, error) from None

    def _discard_old(self) -> None:
        """Keep the newest samples that are not too old, with room for one more."""
        oldest = time.monotonic() - SAMPLE_KEPT_SECONDS
        fresh = [(each, cached) for each, cached in self._cached.items() if cached[0] > oldest]
        self._cached = dict(fresh[-(SAMPLES_KEPT_MAX - 1) :])


def make_topics_problem(connection: str, error: TopicsUnreadable) -> Problem:
    """Return the response for brokers that cannot be read; log the cause."""
    detail = str(error)
    if error.cause:
        log.warning("connection %s: %s", connection, error.cause)
    if isinstance(error, TopicUnknown):
        return Problem("topic-unknown", detail)
    if isinstance(error, BrokersRefused):
        return Problem("address-refused", detail)
    if isinstance(error, CodecMissing):
        return Problem("codec-missing", detail)
    return Problem("broker-silent", detail)
