"""Notice a source that sends messages again: canal after a crash, or from an older position.

    es      70  71  72 │ 70  71  72  73        the source goes back: it is *behind* until it has
    row      a   b   c │  a   b   c   d        passed its latest time
                     └──────────┘              c comes again, so it has repeated what is between

The last message before the source went back comes again, if the source repeats itself. A long
statement goes back too, because MySQL's binlog has the time at which it began, but repeats nothing.
So does a canal that was stopped in order. Some older messages are remembered too, so that a long
repeat is noticed before it ends.

canal numbers its batches from 1 after each start: that `id` goes back shows a restart within one
second. Only messages of a source that is behind are compared, so the others cost nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from jobs.core.kernels.codes import NO_TIME
from jobs.core.rows.consolidate import Integers
from schemas.limits import (
    SOURCE_ES_BACK_MS_MAX,
    SOURCE_ID_AFTER_RESTART_MAX,
    SOURCE_MESSAGES_SEEN_MAX,
)
from schemas.table.epoch import SeenMessage, SourceMemory

NOTHING_SEEN = SourceMemory(offset=-1, es=NO_TIME)
_POWERS_OF_TEN = 10 ** np.arange(19, dtype=np.int64)


class SourceOrder(msgspec.Struct, frozen=True):
    """What the messages of a range show of the order of their source."""

    first: int  # the offset of the first message
    memory: SourceMemory  # after the range
    leads: int | None = None  # where the source went back, if it is behind at the first message
    repeats: int = 0  # how often it repeats itself
    repeats_from: int | None = None  # the offset from which it first does

    def follow(self, memory: SourceMemory | None) -> SourceOrder:
        """Return the order after the ranges before it, which their tasks read at the same time."""
        if memory is None or memory.offset >= self.first:  # offsets were moved by hand
            return self
        new, repeats, repeats_from = self.memory, self.repeats, self.repeats_from
        behind, counted = new.behind, new.counted
        if self.leads is not None and memory.behind is not None:  # it was behind already
            if repeats_from == self.leads:
                repeats -= memory.counted
                repeats_from = memory.behind
            if behind == self.leads:
                behind, counted = memory.behind, counted or memory.counted
        seen = memory.seen
        for each in new.seen:
            seen = _remember(seen, each)
        new = SourceMemory(new.offset, max(memory.es, new.es), new.id, seen, behind, counted)
        return SourceOrder(self.first, new, self.leads, repeats, repeats_from if repeats else None)


class OrderWatch:
    """Watches the order of the messages of one range."""

    def __init__(self, format: str, memory: SourceMemory | None = None, start: int = 0) -> None:
        """Start at an offset with the memory of the messages before it."""
        self._format = format
        moved = memory is None or memory.offset >= start  # by hand: the job reads them again
        self._memory = NOTHING_SEEN if moved or memory is None else memory
        self._seen = self._memory.seen
        self._behind, self._counted = self._memory.behind, self._memory.counted
        self._first: int | None = None
        self._leads: int | None = None
        self._repeats = 0
        self._repeats_from: int | None = None
        self._last: tuple[int, int, bytes] | None = None  # es, size and value of this range's last

    def observe(
        self,
        offsets: Integers,
        ids: Integers,
        es: Integers,
        sizes: Integers,
        value: Callable[[int], bytes],
    ) -> None:
        """Observe messages; `ids` and `es` are NO_TIME where a message has none."""
        if es.min(initial=0) == NO_TIME:
            timed = np.flatnonzero(es != NO_TIME)
            offsets, ids, es, sizes = (each[timed] for each in (offsets, ids, es, sizes))
            value = _select(value, timed)
        if not len(es):
            return
        messages = _Messages(offsets, ids, es, sizes, value)
        before = NO_TIME if self._memory.id is None else self._memory.id
        usual = (
            self._behind is None and _is_ordered(self._memory.es, es) and _is_ordered(before, ids)
        )
        if not usual:
            self._compare(messages, before)
        if self._first is None:
            self._first = int(offsets[0])
        latest = max(self._memory.es, int(es[-1] if usual else es.max()))
        last_id = None if ids[-1] == NO_TIME else int(ids[-1])
        self._memory = SourceMemory(int(offsets[-1]), latest, last_id)
        self._last = messages.read(-1)

    def finish(self) -> SourceOrder | None:
        """Return what the range shows; None if no message has a time."""
        if self._first is None:
            return None
        if self._behind is None:
            self._remember_last()
        memory = msgspec.structs.replace(
            self._memory, seen=self._seen, behind=self._behind, counted=self._counted
        )
        return SourceOrder(self._first, memory, self._leads, self._repeats, self._repeats_from)

    def _compare(self, messages: _Messages, id_before: int) -> None:
        """Compare the messages at which the source is behind with the remembered ones."""
        ids, es, count = messages.ids, messages.es, len(messages.es)
        latest = np.maximum.accumulate(np.append(self._memory.es, es))[:-1]
        ahead, restarts = es > latest, (ids > 0) & (ids < np.append(id_before, ids[:-1]))
        restarts &= ids <= SOURCE_ID_AFTER_RESTART_MAX
        goes_back = (restarts | (es + SOURCE_ES_BACK_MS_MAX < latest)) & ~ahead
        turns = np.maximum.accumulate(np.where(ahead | goes_back, np.arange(count), -1))
        behind = np.where(turns < 0, self._behind is not None, goes_back[turns])
        edges = np.flatnonzero(behind[1:] != behind[:-1]) + 1
        for start, end in pairwise([0, *edges.tolist(), count]):
            if not behind[start]:
                self._behind, self._counted = None, False
                continue
            if self._behind is None:
                if start:
                    self._last = messages.read(start - 1)
                self._remember_last()
                self._behind = int(messages.offsets[start])
            if self._first is None and start == 0:
                self._leads = self._behind
            if not self._counted and self._comes_again(messages.between(start, end)):
                self._counted = True
                self._repeats += 1
                self._repeats_from = self._repeats_from or self._behind

    def _comes_again(self, messages: _Messages) -> bool:
        alike = np.zeros(len(messages.es), bool)
        sizes = messages.sizes - np.searchsorted(_POWERS_OF_TEN, messages.ids, "right")
        for each in self._seen:
            alike |= (messages.es == each.es) & (sizes == each.size)
        found = (self._to_seen(*messages.read(at)) for at in np.flatnonzero(alike).tolist())
        return any(each in self._seen for each in found)

    def _remember_last(self) -> None:
        if self._last is not None:
            self._seen = _remember(self._seen, self._to_seen(*self._last))

    def _to_seen(self, es: int, size: int, value: bytes) -> SeenMessage:
        return SeenMessage(es, size, number_message(self._format, value))


def _is_ordered(before: int, stamps: Integers) -> bool:
    return bool(stamps[0] >= before and (stamps[1:] >= stamps[:-1]).all())


def _select(value: Callable[[int], bytes], indexes: Integers) -> Callable[[int], bytes]:
    return lambda at: value(int(indexes[at]))


class _Messages(NamedTuple):
    """Messages as arrays, and a function that returns the value of one."""

    offsets: Integers
    ids: Integers
    es: Integers
    sizes: Integers
    value: Callable[[int], bytes]

    def between(self, start: int, end: int) -> _Messages:
        offsets, ids, es, sizes = (each[start:end] for each in self[:4])
        return _Messages(offsets, ids, es, sizes, lambda at: self.value(start + at))

    def read(self, at: int) -> tuple[int, int, bytes]:
        """Return the time of a message, its size without the digits of its `id`, and its value."""
        id = int(self.ids[at])
        return (
            int(self.es[at]),
            int(self.sizes[at]) - (len(str(id)) if id > 0 else 0),
            self.value(at),
        )


def _remember(seen: tuple[SeenMessage, ...], new: SeenMessage) -> tuple[SeenMessage, ...]:
    """Return the remembered messages with a new one; of too many, one between close ones goes."""
    if new in seen:
        return seen
    kept = [*seen, new]
    if len(kept) > SOURCE_MESSAGES_SEEN_MAX:
        del kept[min(range(1, len(seen)), key=lambda at: kept[at + 1].es - kept[at - 1].es)]
    return tuple(kept)


def as_stamps(found: Iterable[int | None]) -> Integers:
    """Return the `id` or `es` of messages as an array."""
    return np.array([NO_TIME if each is None else each for each in found], np.int64)


# canal writes the values of rows as texts, so these numbers are those of the message.
_CANAL_KEYED = re.compile(rb'"pkNames"\s*:\s*\[')
_DEBEZIUM_PLACED = re.compile(rb'"(?:pos|lsn)"\s*:\s*\d')
_DIFFERS = {
    "canal-json": re.compile(rb'"(?:id|ts)"\s*:\s*\d+'),
    "debezium-json": re.compile(rb'"ts_(?:ms|us|ns)"\s*:\s*\d+'),
}


def number_content(format: str, key: bytes | None, value: bytes | None) -> int | None:
    """Return the number of a message that is one change; None if two changes may have it.

    The source may send two equal messages that are two changes, as of a table without a key.

    canal      {"data": [..], "es": .., "id": 12, "pkNames": ["id"], "ts": ..}    id and ts differ
    Debezium   {"after": {..}, "source": {"pos": 4, "row": 0, ..}, "ts_ms": ..}   ts_.. differ
    Maxwell    {"data": {..}, "ts": .., "type": "insert", "xid": 23}              nothing differs
    """
    if value is None or not _is_one_change(format, key, value):
        return None
    return number_message(format, value)


def number_message(format: str, value: bytes) -> int:
    """Return a number of 64 bits that messages with the same content have."""
    differs = _DIFFERS.get(format)
    content = value if differs is None else differs.sub(b"", value)
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big", signed=True)


def _is_one_change(format: str, key: bytes | None, value: bytes) -> bool:
    if format == "canal-json":
        return _CANAL_KEYED.search(value) is not None
    if format == "maxwell-json":
        return key is not None and b'"pk.' in key and b'"xid"' in value
    placed = format == "debezium-json" and _DEBEZIUM_PLACED.search(value) is not None
    return placed and key is not None
