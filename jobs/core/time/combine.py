"""Combine watermarks: of partitions to topics, of topics to a job, of two inputs.

    partition 0 ──┐
    partition 1 ──┼─► Multiplexer ──┐ watermarks,
    partition 2 ──┘                 ├─► StatusWatermarkValve ──► the job's watermark and status
    the other topic's partitions ───┘ idle, active

Both emit the minimum over the members that count, and never a lower watermark than before. When
all members are idle, they emit the maximum over all members first and then IDLE, once. Which
members count differs, as in Flink:

- Multiplexer: every active member counts. A partition that becomes active behind the watermark
  holds the watermark until the partition has caught up.
- StatusWatermarkValve: a member that becomes active behind the last output counts only after it has
  caught up.

Every change computes the output from the members' present state; no history is stored. So Flink's
bugs do not occur here:

- The maximum is emitted whichever member becomes idle last.
- The only active member emits at once when it becomes active (FLINK-40475).
- A partition that becomes active behind the emitted maximum makes the source ACTIVE, although its
  watermark is not higher (FLINK-40504).
- Removing all members leaves the status unchanged; the next member makes it ACTIVE (FLINK-39586).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from enum import StrEnum
from typing import Generic, TypeVar


class Status(StrEnum):
    ACTIVE = "active"
    IDLE = "idle"


Signal = int | Status  # a new watermark, or a new status
Name = TypeVar("Name", bound=Hashable)


class Member:
    """One input of a combination; without a watermark (None) it holds the others back."""

    __slots__ = ("counts", "idle", "watermark")

    def __init__(self) -> None:
        self.watermark: int | None = None
        self.idle = False
        self.counts = True  # while it is active

    def raise_to(self, watermark: int) -> bool:
        """Raise the watermark if the new one is higher; return whether it is."""
        if self.watermark is not None and watermark <= self.watermark:
            return False
        self.watermark = watermark
        return True


class Combination(Generic[Name]):
    """The members, and the watermark and status that were emitted last."""

    __slots__ = ("last", "members", "status")

    def __init__(self) -> None:
        self.members: dict[Name, Member] = {}
        self.last: int | None = None
        self.status = Status.ACTIVE

    def combine(self) -> list[Signal]:
        """Return the signals that follow from the members' present state.

        ACTIVE comes before a watermark and IDLE after it, so a watermark meets an active receiver.
        """
        members = self.members.values()
        if not members:
            return []
        idle = all(member.idle for member in members)
        signals: list[Signal] = []
        if self.status is Status.IDLE and not idle:
            self.status = Status.ACTIVE
            signals.append(Status.ACTIVE)
        if self._raise_to(_find_highest(members) if idle else _find_lowest(members)):
            assert self.last is not None
            signals.append(self.last)
        if self.status is Status.ACTIVE and idle:
            self.status = Status.IDLE
            signals.append(Status.IDLE)
        return signals

    def find_slowest(self) -> list[Name]:
        """Return the members that hold the others back: without a watermark, else the lowest."""
        counting = {
            name: member.watermark
            for name, member in self.members.items()
            if member.counts and not member.idle
        }
        unknown = [name for name, watermark in counting.items() if watermark is None]
        lowest = min((at for at in counting.values() if at is not None), default=None)
        return unknown or [name for name, watermark in counting.items() if watermark == lowest]

    def _raise_to(self, watermark: int | None) -> bool:
        if watermark is None or (self.last is not None and watermark <= self.last):
            return False
        self.last = watermark
        return True

    def restore(self, last: int | None, status: Status) -> None:
        """Continue from the last output; the owner of the members stores it, and them."""
        self.last, self.status = last, status


class Multiplexer(Combination[Name]):
    """Combines the partitions of one topic, or two inputs of an operator.

    Changes take effect when `combine` is called: at once for a punctuated watermark, at the
    periodic emission for every other.
    """

    __slots__ = ()

    def register(self, name: Name) -> None:
        self.members[name] = Member()

    def unregister(self, name: Name) -> None:
        del self.members[name]

    def advance(self, name: Name, watermark: int) -> bool:
        """Raise a member's watermark and make it active; return whether the member changed."""
        member = self.members[name]
        was_idle, member.idle = member.idle, False
        return member.raise_to(watermark) or was_idle

    def mark_idle(self, name: Name) -> None:
        self.members[name].idle = True

    def mark_active(self, name: Name) -> None:
        self.members[name].idle = False

    def advance_at_once(self, name: Name, watermark: int) -> list[Signal]:
        """Raise a member's watermark and return the signals that follow from it."""
        return self.combine() if self.advance(name, watermark) else []


class StatusWatermarkValve(Combination[Name]):
    """Combines inputs like Flink's class of this name; each call returns the new signals."""

    __slots__ = ()

    def __init__(self, names: Iterable[Name]) -> None:
        super().__init__()
        self.members = {name: Member() for name in names}

    def advance(self, name: Name, watermark: int) -> list[Signal]:
        """Raise an input's watermark; ignore it if the input is idle or it is not higher."""
        member = self.members[name]
        if member.idle or not member.raise_to(watermark):
            return []
        member.counts = member.counts or self._has_caught_up(member)
        return self.combine()

    def set_status(self, name: Name, status: Status) -> list[Signal]:
        """Set an input's status; ignore a repeated one."""
        member = self.members[name]
        if member.idle is (status is Status.IDLE):
            return []
        member.idle = status is Status.IDLE
        member.counts = not member.idle and self._has_caught_up(member)
        return self.combine()

    def apply(self, name: Name, signals: Iterable[Signal]) -> list[Signal]:
        """Apply the signals of a Multiplexer to one input, in order."""
        emitted: list[Signal] = []
        for signal in signals:
            if isinstance(signal, Status):
                emitted += self.set_status(name, signal)
            else:
                emitted += self.advance(name, signal)
        return emitted

    def _has_caught_up(self, member: Member) -> bool:
        if self.last is None:
            return True
        return member.watermark is not None and member.watermark >= self.last


def _find_lowest(members: Iterable[Member]) -> int | None:
    """Return the minimum over the active members that count.

    None if there is none, or if one of them has no watermark yet.
    """
    lowest: int | None = None
    for member in members:
        if member.idle or not member.counts:
            continue
        if member.watermark is None:
            return None
        lowest = member.watermark if lowest is None else min(lowest, member.watermark)
    return lowest


def _find_highest(members: Iterable[Member]) -> int | None:
    return max((m.watermark for m in members if m.watermark is not None), default=None)
