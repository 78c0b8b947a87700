"""The history of one key: what its row is, although changes of keys come in any order.

    UPDATE t SET id = 2 WHERE id = 1     one message, in the partition of the new key

    partition of key 2    an own change of key 2: ARRIVE, with the image after
    another partition?    LEAVE of key 1, with the image before, early or late

The *own* changes of a key (it arrives, is set in place, is deleted) come in one partition, so in
order. That the key was left may come elsewhere. So leaves are matched with the lives of the key:

- A key that arrives although its row was not deleted has *closed* a life: its last image was left.
- A leave of image X ends a closed life with X, or else the current row if it is X. Otherwise it
  waits until the row is X. Two lives with equal images need two leaves.

Times are those of the source (`es`); several changes may have the same. A leave at `e` can only end
a life that was set at or before `e` and closed at or after `e`. So a source that repeats itself
does no harm: its leaves are older than the row that came since. Only if a key got the same row
twice within one unit of time, around the restart, repeats and changes look alike: `ambiguous`.
Without repeats the matching is exact for any order of the partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

import msgspec

from jobs.core.rows.truncations import Fate
from jobs.core.values.change import Row
from schemas.limits import KEY_ENDS_MAX, LEFT_KEY_KEPT_MS

Fingerprint = Callable[[Row], int]  # equal images have equal numbers


class Kind(IntEnum):
    """What a change says of its key."""

    SET = 0  # the row is now this image
    ARRIVE = 1  # the same, and before there was no row: an insert, or an update of the key
    DELETE = 2
    LEAVE = 3  # an update gave this row another key; not an own change


class KeyEnd(NamedTuple):
    """Leaves and closed lives with one image at one time; equal numbers have met each other."""

    image: int  # its fingerprint
    time: int  # of the leaves, or of the changes that closed the lives
    leaves: int
    closed: int


class KeyState(msgspec.Struct, frozen=True, gc=False):
    """What a job keeps of a key."""

    image: Row | None = None  # None: there is no row
    time: int | None = None  # of the last own change
    partition: int | None = None  # of the own changes; see `number_partition`
    left: int | None = None  # the fingerprint of the last image, if a leave took the row away
    ends: tuple[KeyEnd, ...] = ()

    @property
    def is_row(self) -> bool:
        """Whether there is a row, and nothing of an earlier one."""
        return self.image is not None and not self.ends

    @property
    def forget_at(self) -> int | None:
        """The time of the source from which a key without a row is forgotten."""
        if self.image is not None:
            return None
        times = [end.time for end in self.ends]
        return max(times, default=self.time or 0) + LEFT_KEY_KEPT_MS


NO_ROW = KeyState()


class KeyHistory:
    """One key while its changes are applied. Apply own changes in the order of their partition."""

    def __init__(self, state: KeyState | None, fingerprint: Fingerprint) -> None:
        state = state or NO_ROW
        self._image, self._time, self._left = state.image, state.time, state.left
        self._partition = state.partition
        self._fingerprint = fingerprint
        self._ends: dict[int, dict[int, _Counts]] = {}  # by image and time
        for image, time, leaves, closed in state.ends:
            self._ends.setdefault(image, {})[time] = _Counts(leaves, closed)
        self.ambiguous = False  # a repeat, or a change that only looks like one
        self.moved = False  # own changes came from several partitions, so they have no order

    def apply(self, kind: int, image: Row, time: int | None, partition: int | None) -> None:
        """Apply one change. Without a time it counts as simultaneous with the last own change."""
        time = (self._time or 0) if time is None else time
        if kind == Kind.LEAVE:
            self._leave(self._fingerprint(image), time)
            return
        if kind == Kind.ARRIVE and (self._time is None or time >= self._time):
            self._close(time)
        self.moved |= self._partition not in (None, partition)
        self._image = None if kind == Kind.DELETE else image
        self._time, self._partition, self._left = time, partition, None

    def truncate(self, fate: Fate) -> None:
        """Delete the row that an own change has set, if a TRUNCATE has removed it."""
        self.ambiguous |= fate is Fate.AMBIGUOUS
        if fate is Fate.GONE:
            self._image = None

    def end(self) -> KeyState | None:
        """Return the state after the changes; None if nothing must be kept."""
        image, left = self._image, self._left
        ends: list[KeyEnd] = []
        if self._ends:
            last = self._last()
            ends = list(self._keep_ends(last))
            if any(end.image == last and end.leaves > end.closed for end in ends):
                image, left = None, last
            if len(ends) > KEY_ENDS_MAX:
                self.ambiguous = True
                ends = sorted(ends, key=lambda end: end.time)[-KEY_ENDS_MAX:]
        if image is None and left is None and not ends:
            return None
        return KeyState(image, self._time, self._partition, left, tuple(ends))

    def _leave(self, image: int, time: int) -> None:
        of_image = self._ends.get(image, {})
        closed = [at for at, counts in of_image.items() if at >= time and counts.balance < 0]
        later = [at for at, counts in of_image.items() if at > time and counts.closed > 0]
        if closed:
            self._count(image, time, 1, 0, met=min(closed))
        elif later:
            # A leave at the time of the closing change met it, but this one is earlier.
            self._count(image, time, 1, 0, met=min(later))
            self.ambiguous |= image == self._last()
        elif self._time is None or time >= self._time:
            self._count(image, time, 1, 0)
        elif self._image is not None:
            # It is older than the row, so it took an earlier row away; or its statement waited.
            self.ambiguous |= image == self._last()

    def _close(self, time: int) -> None:
        """End the life of the current row: its leave is here, or is still to come."""
        image = self._last()
        if image is None:
            return
        since = self._time or 0
        of_image = self._ends.get(image, {})
        here = [at for at, counts in of_image.items() if since <= at <= time and counts.balance > 0]
        self._count(image, time, 0, 1, met=min(here, default=None))

    def _count(
        self, image: int, time: int, leaves: int, closed: int, *, met: int | None = None
    ) -> None:
        """Count a leave or a closed life, or match it with its counterpart at the time `met`.

        If both have the same time, both stay known, because they could be repeated.
        """
        if met is not None and met != time:
            time, leaves, closed = met, -closed, -leaves
        counts = self._ends.setdefault(image, {}).setdefault(time, _Counts())
        counts.leaves += leaves
        counts.closed += closed

    def _keep_ends(self, last: int | None) -> Iterator[KeyEnd]:
        """Yield what may still meet its counterpart; `last` is the image of the last own change."""
        now = self._time or 0
        for image, of_image in self._ends.items():
            for time, counts in of_image.items():
                same = image == last
                if time < now and counts.balance >= 0:
                    # A leave of this very row, but older: repeated, or its statement waited.
                    self.ambiguous |= same and counts.balance > 0
                elif time >= now - LEFT_KEY_KEPT_MS and (counts.leaves or counts.closed):
                    alike = counts.leaves > 0 and counts.leaves + counts.closed > 1
                    self.ambiguous |= same and time == now and alike
                    yield KeyEnd(image, time, counts.leaves, counts.closed)

    def _last(self) -> int | None:
        """Return the fingerprint of the last image that an own change set."""
        return self._left if self._image is None else self._fingerprint(self._image)


class _Counts(msgspec.Struct, gc=False):
    leaves: int = 0
    closed: int = 0

    @property
    def balance(self) -> int:
        return self.leaves - self.closed
