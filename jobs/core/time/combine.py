"""Combining watermarks: the partitions of a topic, the topics of a job, two inputs of an operator.

    partition 0 ──┐
    partition 1 ──┼─► Multiplexer ──┐ watermarks,
    partition 2 ──┘                 ├─► Valve ──► the job's watermark and status
    the other topic's partitions ───┘ idle, active

Both give the minimum over the members that count, never a lower one than before. When all are
idle, the maximum over all is flushed first (nobody is waited for any more) and then the status
goes on, once. What counts differs, as in Flink:

- Multiplexer: every active member counts. A partition that comes back behind the watermark holds
  it where it is until it has caught up.
- Valve: a member that comes back behind counts only when it has caught up with the last output.

The outcome is worked out from the members' present state after every change, and nothing is
remembered of how they got there. So Flink's bugs are not here: the maximum is flushed whichever
member turns idle last, one that comes back as the only candidate speaks at once (FLINK-40475),
and a partition that comes back behind the flushed maximum makes the source ACTIVE although it
brings no higher watermark (FLINK-40504). Members that are all taken away leave the status as it
is, and the next one that joins makes it ACTIVE (FLINK-39586).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar


class Status(StrEnum):
    ACTIVE = "active"
    IDLE = "idle"


Signal = int | Status  # a watermark, or a status that begins
Name = TypeVar("Name", bound=Hashable)


class Member:
    """One input of a combination: its own watermark (None: nothing yet, so it holds all back)."""

    __slots__ = ("counts", "idle", "watermark")

    def __init__(self) -> None:
        self.watermark: int | None = None
        self.idle = False
        self.counts = True  # while it is active

    def risen(self, watermark: int) -> bool:
        if self.watermark is not None and watermark <= self.watermark:
            return False
        self.watermark = watermark
        return True


class Combination(Generic[Name]):
    """Members, and what was last given out of them."""

    __slots__ = ("last", "members", "status")

    def __init__(self) -> None:
        self.members: dict[Name, Member] = {}
        self.last: int | None = None
        self.status = Status.ACTIVE

    def combine(self) -> list[Signal]:
        """What follows from the members as they are now; watermarks come before IDLE and behind
        ACTIVE, so that whoever hears them is active."""
        members = self.members.values()
        if not members:
            return []
        idle = all(member.idle for member in members)
        signals: list[Signal] = []
        if self.status is Status.IDLE and not idle:
            self.status = Status.ACTIVE
            signals.append(Status.ACTIVE)
        if self._raise_to(_highest(members) if idle else _lowest(members)):
            assert self.last is not None
            signals.append(self.last)
        if self.status is Status.ACTIVE and idle:
            self.status = Status.IDLE
            signals.append(Status.IDLE)
        return signals

    def slowest(self) -> list[Name]:
        """The members that hold the others back: those without a watermark, or the lowest."""
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

    def snapshot(self) -> dict[str, Any]:
        """What was given out; the members are kept by who knows their names."""
        state: dict[str, Any] = {} if self.last is None else {"watermark": self.last}
        return state | ({"idle": True} if self.status is Status.IDLE else {})

    def restore(self, state: Mapping[str, Any]) -> None:
        self.last = state.get("watermark")
        self.status = Status.IDLE if state.get("idle") else Status.ACTIVE


class Multiplexer(Combination[Name]):
    """The partitions of one topic, or two inputs of an operator. Changes act when `combine` is
    called: at once for what a punctuated generator says, at the periodic emission otherwise."""

    __slots__ = ()

    def register(self, name: Name) -> None:
        self.members[name] = Member()

    def unregister(self, name: Name) -> None:
        del self.members[name]

    def advance(self, name: Name, watermark: int) -> bool:
        """A member's watermark, which also makes it active; whether that changes the member."""
        member = self.members[name]
        was_idle, member.idle = member.idle, False
        return member.risen(watermark) or was_idle

    def idle(self, name: Name) -> None:
        self.members[name].idle = True

    def active(self, name: Name) -> None:
        self.members[name].idle = False

    def immediate(self, name: Name, watermark: int) -> list[Signal]:
        """A watermark that acts at once, where it can."""
        return self.combine() if self.advance(name, watermark) else []


class Valve(Combination[Name]):
    """Inputs that are combined where they meet; each call gives what goes on from there."""

    __slots__ = ()

    def __init__(self, names: Iterable[Name]) -> None:
        super().__init__()
        self.members = {name: Member() for name in names}

    def advance(self, name: Name, watermark: int) -> list[Signal]:
        """An input's watermark; one of an idle input, or not a higher one, is ignored."""
        member = self.members[name]
        if member.idle or not member.risen(watermark):
            return []
        member.counts = member.counts or self._caught_up(member)
        return self.combine()

    def turn(self, name: Name, status: Status) -> list[Signal]:
        """An input's status; a repeated one is ignored."""
        member = self.members[name]
        if member.idle is (status is Status.IDLE):
            return []
        member.idle = status is Status.IDLE
        member.counts = not member.idle and self._caught_up(member)
        return self.combine()

    def take(self, name: Name, signals: Iterable[Signal]) -> list[Signal]:
        """All that a Multiplexer gave."""
        given: list[Signal] = []
        for signal in signals:
            if isinstance(signal, Status):
                given += self.turn(name, signal)
            else:
                given += self.advance(name, signal)
        return given

    def _caught_up(self, member: Member) -> bool:
        if self.last is None:
            return True
        return member.watermark is not None and member.watermark >= self.last


def _lowest(members: Iterable[Member]) -> int | None:
    """The minimum over active members that count; None where one of them has no watermark yet, or
    where there are none."""
    found: int | None = None
    for member in members:
        if member.idle or not member.counts:
            continue
        if member.watermark is None:
            return None
        found = member.watermark if found is None else min(found, member.watermark)
    return found


def _highest(members: Iterable[Member]) -> int | None:
    return max((m.watermark for m in members if m.watermark is not None), default=None)
