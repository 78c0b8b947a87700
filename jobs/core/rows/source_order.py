"""Notice a source that sends messages again: canal after a crash, or from an old position.

    partition   id  498 499 500 │ 1 2 3         id goes back: canal was restarted
                es   70  70  71 │ 70 70 71      es does not go on: it repeats from here

canal numbers the batches that it sends from 1 after each start, so `id` goes back only by a
restart. If `es` then goes on, nothing was repeated. `es` alone proves nothing: MySQL's binlog has
the time at which a statement began, so a long one makes it go back in a healthy source. It decides
only about messages without `id`, by more than SOURCE_ES_BACK_MS_MAX.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from jobs.core.kernels.codes import NO_TIME
from jobs.core.kernels.compiled import Array
from jobs.core.rows.consolidate import Integers
from schemas.limits import SOURCE_ES_BACK_MS_MAX, SOURCE_ID_AFTER_RESTART_MAX
from schemas.table.epoch import SentMessage


class SourceOrder(msgspec.Struct):
    """The order of the messages of one partition, without those between the first and the last."""

    first: SentMessage | None = None
    last: SentMessage | None = None
    repeats: int = 0  # messages at which the source begins to repeat itself
    repeats_from: int | None = None  # the offset of the first of them

    def observe(self, offsets: Integers, ids: Integers, es: Integers) -> None:
        """Observe messages; `ids` and `es` are NO_TIME where a message has none."""
        if not len(offsets):
            return
        begins = offsets[1:][_goes_back(ids, es)]
        own = SourceOrder(
            _message_at(0, offsets, ids, es),
            _message_at(-1, offsets, ids, es),
            len(begins),
            int(begins[0]) if len(begins) else None,
        )
        self.extend(own)

    def extend(self, order: SourceOrder) -> None:
        """Add the order of later messages; of messages that are read again, only their own."""
        if order.first is None:
            return
        if self.last is not None and self.last.offset < order.first.offset:
            pair = self.last, order.first
            ids, es = as_stamps(each.id for each in pair), as_stamps(each.es for each in pair)
            if _goes_back(ids, es)[0]:
                self._add(1, order.first.offset)
        self._add(order.repeats, order.repeats_from)
        self.first, self.last = self.first or order.first, order.last

    def _add(self, repeats: int, repeats_from: int | None) -> None:
        self.repeats += repeats
        if self.repeats_from is None:
            self.repeats_from = repeats_from


def _goes_back(ids: Integers, es: Integers) -> Array:
    """Return of each message but the first whether the source repeats itself from there."""
    id, id_before, time, time_before = ids[1:], ids[:-1], es[1:], es[:-1]
    numbered = (id > 0) & (id_before > 0)
    timed = (time != NO_TIME) & (time_before != NO_TIME)
    # If two canals write to a partition, their numbers alternate; high ones are not of a restart.
    restarted = (id < id_before) & (id <= SOURCE_ID_AFTER_RESTART_MAX)
    goes_on = timed & (time > time_before)
    far_back = timed & (time < time_before) & (time_before - time > SOURCE_ES_BACK_MS_MAX)
    found: Array = np.where(numbered, restarted & ~goes_on, far_back)
    return found


def as_stamps(found: Iterable[int | None]) -> Integers:
    """Return the `id` or `es` of messages as an array."""
    return np.array([NO_TIME if each is None else each for each in found], np.int64)


def _message_at(index: int, offsets: Integers, ids: Integers, es: Integers) -> SentMessage:
    id, time = (None if array[index] == NO_TIME else int(array[index]) for array in (ids, es))
    return SentMessage(int(offsets[index]), id, time)
