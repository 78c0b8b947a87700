"""Capacity: how many connections the service takes, by the descriptors that it may open.

    RLIMIT_NOFILE ──► soft limit raised towards the hard ──► enough: the bounds of schemas.limits
                                                         └─► too few: all of them lowered

A process that has no descriptor left accepts no connection and reads no table. So connections have
three quarters of them at most; the rest is for tables, indexes, logs and the processes of jobs.
"""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass

from schemas.limits import (
    DESCRIPTORS_WANTED,
    FOLLOWERS_MAX,
    REQUESTS_AT_WORK_MAX,
    WAITING_CONNECTIONS_MAX,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Capacity:
    followers: int = FOLLOWERS_MAX
    waiting: int = WAITING_CONNECTIONS_MAX
    requests: int = REQUESTS_AT_WORK_MAX

    @property
    def connections(self) -> int:
        return self.followers + self.waiting + self.requests


def capacity_of(descriptors: int) -> Capacity:
    """Return the bounds that a process with so many descriptors can keep."""
    whole = Capacity()
    share = min(1.0, descriptors * 3 / 4 / whole.connections)
    followers, waiting, requests = (
        max(1, int(bound * share)) for bound in (whole.followers, whole.waiting, whole.requests)
    )
    return Capacity(followers, waiting, requests)


def own_capacity() -> Capacity:
    """Return the bounds of this process; raise its limit before, and log what is done."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < DESCRIPTORS_WANTED:
        most = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else hard
        raised = max(soft, min(DESCRIPTORS_WANTED, most))
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        log.info("raised the limit of open files from %d to %d", soft, raised)
        soft = raised
    capacity = Capacity() if soft == resource.RLIM_INFINITY else capacity_of(soft)
    if capacity != Capacity():
        log.warning(
            "only %d open files are allowed (ulimit -n), so at most %d followers, %d requests at "
            "work and %d waiting connections are taken",
            soft, capacity.followers, capacity.requests, capacity.waiting,
        )  # fmt: skip
    return capacity
