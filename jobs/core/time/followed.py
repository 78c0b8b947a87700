"""The progress of the job that writes a topic, held back until its records have been read.

    progress record ──► observed, then the topic's end offsets ──► waits ──► acts
                                                                      └─ until this job has read
                                                                         up to these offsets

A progress record says up to which watermark results are published. Kafka shows it in the same
transaction as the results, but not at the same moment: another partition's end of the transaction
may come later. So end offsets that are read after the record, and that include open transactions,
cover every result of that watermark. When this job has read up to them, the watermark is true here.

This needs no state: after a restart or a rewind the newest record is observed again, with the end
offsets of that time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FollowedProgress:
    """The watermark and the status of the other job, and what must be read before it acts."""

    watermark: int | None
    idle: bool
    ends: Mapping[str, int]  # by partition of the topic, as text

    def is_covered(self, offsets: Mapping[str, int]) -> bool:
        return all(offsets.get(partition, 0) >= end for partition, end in self.ends.items())


class FollowedTopic:
    """The progress records of one topic that wait for their results.

    Two are enough: the first, so that waiting ends, and the newest, which covers those in between.
    """

    __slots__ = ("_first", "_newest")

    def __init__(self) -> None:
        self._first: FollowedProgress | None = None
        self._newest: FollowedProgress | None = None

    def observe(self, progress: FollowedProgress) -> None:
        """Observe a progress record that is newer than those before."""
        if self._first is None:
            self._first = progress
        else:
            self._newest = progress

    def release(self, offsets: Mapping[str, int]) -> FollowedProgress | None:
        """Return the newest progress whose results are all read; None if there is no new one."""
        released = None
        while self._first is not None and self._first.is_covered(offsets):
            released, self._first, self._newest = self._first, self._newest, None
        return released
