"""Capacity: the number of connections, derived from the file descriptors of the process.

    RLIMIT_NOFILE ──► raise the soft limit towards the hard one ──► enough: schemas.limits apply
                                                                └─► too few: lower all of them

Without a free descriptor a process accepts no connection and reads no table. So connections use
three quarters at most; the rest is for tables, indexes, logs and the processes of jobs.
"""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass

from schemas import limits

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The most streams, idle connections and requests in progress."""

    followers: int = limits.FOLLOWERS_MAX
    waiting: int = limits.WAITING_CONNECTIONS_MAX
    requests: int = limits.REQUESTS_AT_WORK_MAX

    @property
    def connections(self) -> int:
        return self.followers + self.waiting + self.requests


def derive_capacity(descriptors: int) -> Capacity:
    """Return the limits for a process with this number of file descriptors."""
    whole = Capacity()
    share = min(1.0, descriptors * 3 / 4 / whole.connections)
    followers, waiting, requests = (
        max(1, int(bound * share)) for bound in (whole.followers, whole.waiting, whole.requests)
    )
    return Capacity(followers, waiting, requests)


def determine_capacity() -> Capacity:
    """Raise the process's limit of open files, and return the limits that fit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < limits.DESCRIPTORS_WANTED:
        most = limits.DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else hard
        raised = max(soft, min(limits.DESCRIPTORS_WANTED, most))
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        log.info("raised the limit of open files from %d to %d", soft, raised)
        soft = raised
    capacity = Capacity() if soft == resource.RLIM_INFINITY else derive_capacity(soft)
    if capacity != Capacity():
        log.warning(
            "the limit of open files (ulimit -n) is %d, so the service accepts at most %d streams, "
            "%d requests in progress and %d idle connections",
            soft,
            capacity.followers,
            capacity.requests,
            capacity.waiting,
        )
    return capacity
