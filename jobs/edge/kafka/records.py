"""Records of one partition as arrays, in the order of their offsets.

    buffer   value │ 0 │ value │ 0 │ ... │ PAD      starts   of each value, and of the end
    keys     key │ key │ ...                        key_starts
    offsets, stamps, has_value, has_key             one for each record

The scanner reads the buffer as it is; a record is only made into an object where one is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import NamedTuple

import numpy as np
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

from jobs.core.formats.scanned import Array
from jobs.core.kernels.foreign_messages import NO_STAMP
from jobs.core.kernels.json_bytes import PAD
from schemas.limits import MESSAGE_BYTES_MAX
from schemas.table.epoch import TopicPartition

Header = tuple[str, bytes | None]
# A longer value is refused without being parsed, and the client holds it already: one more byte
# than the limit says enough of it.
VALUE_BYTES_READ = MESSAGE_BYTES_MAX + 1


class Record(NamedTuple):
    """One record of a topic."""

    offset: int
    timestamp_ms: int | None  # Kafka's; None if it has none
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()  # only of records that were read as messages
    value_bytes: int = 0  # in the topic; `value` is cut above VALUE_BYTES_READ


@dataclass(frozen=True, slots=True)
class Records:
    """Some records of a partition."""

    buffer: Array
    starts: Array
    keys: Array
    key_starts: Array
    offsets: Array
    stamps: Array  # NO_STAMP of a record without one
    has_value: Array
    has_key: Array
    value_bytes: Array  # of each value in the topic
    headers: Sequence[Sequence[Header]] = ()

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Records:
        """Return the records of messages that the client gave as objects."""
        whole, keys = [each.value() for each in messages], [each.key() for each in messages]
        values = [_cut(value) for value in whole]
        times = [each.timestamp() for each in messages]
        return cls(
            np.frombuffer(b"\0".join([*(value or b"" for value in values), bytes(PAD)]), np.uint8),
            _starts(values, 1),
            np.frombuffer(b"".join(key or b"" for key in keys), np.uint8),
            _starts(keys, 0),
            np.array([each.offset() or 0 for each in messages], np.int64),
            np.array(
                [NO_STAMP if kind == TIMESTAMP_NOT_AVAILABLE else time for kind, time in times],
                np.int64,
            ),
            np.array([value is not None for value in values], bool),
            np.array([key is not None for key in keys], bool),
            np.array([len(value or b"") for value in whole], np.int64),
            [[*(each.headers() or ())] for each in messages],
        )

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record]:
        stamps = (None if stamp == NO_STAMP else stamp for stamp in self.stamps.tolist())
        keys = _take_apart(self.keys, self.key_starts, self.has_key, 0)
        headers = self.headers or repeat(())
        sizes = self.value_bytes.tolist()
        return map(Record, self.offsets.tolist(), stamps, keys, self.values(), headers, sizes)

    def __getitem__(self, number: int) -> Record:
        return next(iter(self.between(number, number + 1)))

    def between(self, first: int, last: int) -> Records:
        """Return these of the records; the buffers are not copied."""
        return Records(
            self.buffer,
            self.starts[first : last + 1],
            self.keys,
            self.key_starts[first : last + 1],
            self.offsets[first:last],
            self.stamps[first:last],
            self.has_value[first:last],
            self.has_key[first:last],
            self.value_bytes[first:last],
            self.headers[first:last],
        )

    def before(self, offset: int) -> Records:
        """Return the records with smaller offsets."""
        return self.between(0, int(np.searchsorted(self.offsets, offset)))

    @property
    def bytes_of_values(self) -> int:
        return int(self.starts[-1] - self.starts[0])

    def value(self, number: int) -> bytes:
        """Return one value; empty if the record has none."""
        return self.buffer[self.starts[number] : self.starts[number + 1] - 1].tobytes()

    def values(self) -> list[bytes | None]:
        return _take_apart(self.buffer, self.starts, self.has_value, 1)


def _cut(value: bytes | None) -> bytes | None:
    """Return a value that is too long to be parsed as one that still is."""
    return value[:VALUE_BYTES_READ] if value and len(value) > VALUE_BYTES_READ else value


def _take_apart(data: Array, starts: Array, present: Array, between: int) -> list[bytes | None]:
    """Return the texts in `data`, each as an object."""
    edges = starts.tolist()
    first, last = edges[0], edges[-1]
    joined = data[first:last].tobytes()
    return [
        joined[start - first : end - first - between] if has else None
        for (start, end), has in zip(pairwise(edges), present.tolist(), strict=True)
    ]


def _starts(texts: Sequence[bytes | None], between: int) -> Array:
    return np.cumsum([0, *(len(text or b"") + between for text in texts)]).astype(np.int64)


class Problem(NamedTuple):
    """An error that a poll returned instead of a record; the end of a partition is one too."""

    partition: TopicPartition
    error: KafkaError
    offset: int


class PollResult(NamedTuple):
    """The records of each partition, and the problems."""

    records: Sequence[tuple[TopicPartition, Records]]
    problems: Sequence[Problem]
