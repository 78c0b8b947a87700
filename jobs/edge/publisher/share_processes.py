"""The publishers of further shares, as processes of share 0 (see jobs.core.publish.shares).

    share 0 ── epochs ──► helper k: its rows, its transactions, its progress in <topic>-shares
            ◄─ published ─ share 0 commits an epoch's progress after all helpers have published it

A helper is a publisher process like its parent, with the same lines. It ends with its parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jobs.core.publish.protocol import Configuration, EpochToPublish
from jobs.edge.publisher.handle import Publisher, PublisherFailed
from jobs.edge.publisher.session import PublishFailed

_WATCH_SECONDS = 0.5


class Helpers:
    """The helpers of a publisher; none in a job with one publisher."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._processes: list[Publisher] = []

    def start(self, writer: str) -> None:
        """Start all helpers at once, after share 0 has claimed the topics as `writer`."""
        of = self._configuration
        shares = () if of.share else range(1, of.publishers)
        self._processes = [Publisher(of.of_share(share, writer)) for share in shares]
        with _as_own_failure():
            for each in self._processes:
                each.launch()
            for each in self._processes:
                each.wait_until_ready()

    def send(self, epoch: EpochToPublish) -> None:
        """Send the next epoch to all helpers."""
        with _as_own_failure():
            for each in self._processes:
                each.send(epoch)

    def wait_until_published(self, epoch: int, watch: Callable[[], None]) -> None:
        """Wait until all helpers have published an epoch; `watch` may raise meanwhile."""
        with _as_own_failure():
            for each in self._processes:
                while not each.flush(_WATCH_SECONDS, epoch):
                    watch()

    def kill(self) -> None:
        """End all helpers. What they have committed stays; an open transaction is aborted."""
        for each in self._processes:
            each.kill()


@contextmanager
def _as_own_failure() -> Iterator[None]:
    """Raise the failure of a helper as one of this process."""
    try:
        yield
    except PublisherFailed as failed:
        raise PublishFailed(failed.fatal.code, failed.fatal.reason, failed.fatal.hint) from None
