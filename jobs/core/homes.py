"""Give each bucket a home: the slot of an executor whose task always has this bucket.

    executors and slots      assign_homes: evenly, and a bucket moves only if it must
      A 2  ─► A0 A1  ──┐
      B 1  ─► B0     ──┴──►  bucket  0  1  2  3  4  5
                             slot    A0 B0 A1 A0 B0 A1     one task a slot, of two buckets each

An executor keeps the hot states of its buckets. If another one gets a bucket, this one first
catches up with all epochs in which others had it. So a bucket moves only if its executor is gone,
or to one that is new; and an epoch has a task for each slot, or just one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from jobs.core.rows.consolidate import Integers
from schemas.limits import SMALL_EPOCHS_IN_HOMES_MAX


class Slot(NamedTuple):
    """A core of an executor; in order, the first slots of all executors are first."""

    number: int
    executor: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Which task has which bucket, and on which executor it runs; a value, to send to workers."""

    tasks: int
    of_buckets: tuple[int, ...] = ()  # the task of each bucket; none: the rest of a division
    executors: tuple[str, ...] = ()  # of each task; none: anywhere

    def find_tasks(self, buckets: Integers) -> Integers:
        """Return the task of each of these buckets."""
        if not self.of_buckets:
            return buckets % self.tasks
        return np.array(self.of_buckets, np.int64)[buckets]

    def divide(self, buckets: range) -> list[list[int]]:
        """Return the buckets of each task."""
        found: list[list[int]] = [[] for _ in range(self.tasks)]
        for bucket, task in zip(buckets, self.find_tasks(np.array(buckets)).tolist(), strict=True):
            found[task].append(bucket)
        return found


ONE_TASK = Placement(1)


def assign_homes(before: Sequence[Slot], slots: Collection[Slot], buckets: int) -> tuple[Slot, ...]:
    """Return a slot for each bucket, as even as can be, given those of `before`."""
    held: dict[Slot, list[int]] = {slot: [] for slot in sorted(slots)}
    for bucket, slot in enumerate(before):
        if slot in held:
            held[slot].append(bucket)
    share, larger = divmod(buckets, len(held))
    fullest = sorted(held, key=lambda slot: -len(held[slot]))
    shares = {slot: share + (rank < larger) for rank, slot in enumerate(fullest)}
    homes = {bucket: slot for slot, own in held.items() for bucket in own[: shares[slot]]}
    room = [
        (number, slot)
        for slot, own in held.items()
        for number in range(min(len(own), shares[slot]), shares[slot])
    ]
    homeless = (bucket for bucket in range(buckets) if bucket not in homes)
    homes |= {bucket: slot for bucket, (_, slot) in zip(homeless, sorted(room), strict=True)}
    return tuple(homes[bucket] for bucket in range(buckets))


@dataclass(slots=True)
class Homes:
    """The homes of a job's buckets; without executors every bucket is at home everywhere."""

    buckets: int
    slots: tuple[Slot, ...] = ()  # of each bucket
    _executors: Mapping[str, int] | None = None
    _small_epochs: int = SMALL_EPOCHS_IN_HOMES_MAX  # since the last large one

    def observe(self, executors: Mapping[str, int]) -> None:
        """Take the executors that there are now, with their slots."""
        if executors == self._executors or not any(executors.values()):
            return
        self._executors = dict(executors)
        slots = [Slot(number, name) for name, count in executors.items() for number in range(count)]
        self.slots = assign_homes(self.slots, slots, self.buckets)

    def place(self, tasks: int) -> Placement:
        """Return the tasks of an epoch that would be divided among `tasks`, if all were alike.

        Between one task and many, buckets change their homes. So an epoch needs one task only if
        many before it would have been content with one.
        """
        small = self._small_epochs + 1 if tasks == 1 else 0
        self._small_epochs = min(small, SMALL_EPOCHS_IN_HOMES_MAX)
        return self.current or Placement(tasks)

    @property
    def current(self) -> Placement | None:
        """The tasks of the epoch that was placed last; None if all executors are alike."""
        if len(self._executors or ()) < 2:
            return None
        if self._small_epochs == SMALL_EPOCHS_IN_HOMES_MAX:
            return Placement(1, (), (self.slots[0].executor,))
        used = sorted(set(self.slots))
        numbers = {slot: number for number, slot in enumerate(used)}
        of_buckets = tuple(numbers[slot] for slot in self.slots)
        return Placement(len(used), of_buckets, tuple(slot.executor for slot in used))
