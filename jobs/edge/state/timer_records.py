"""Timer records: how the hot state keeps timers, so that what is due comes first.

key      clock, time, namespace, order key of the group (which may be cut)
value    namespace, the group's values in full
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import lmdb
import msgspec

from jobs.core.fold.state import GroupTimer
from jobs.core.fold.timers import Clock

_CLOCKS = {Clock.PROCESSING: b"p", Clock.EVENT: b"e"}
_TIME = struct.Struct(">Q")
_BIAS = 1 << 63
_TIME_MAX = _BIAS - 1
_TIME_END = 1 + _TIME.size

NAMESPACE_BYTES_MAX = 64  # beside a cut group it fits LMDB's 511 bytes

_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(tuple[str, list[bytes]]).decode


def key(timer: GroupTimer, group: bytes) -> bytes:
    namespace = timer.namespace.encode()
    if len(namespace) > NAMESPACE_BYTES_MAX:
        raise ValueError(f"{timer.namespace!r} is too long for a timer's namespace")
    return _start(timer.clock, timer.time) + namespace + b"\0" + group


def encode(timer: GroupTimer, written: Sequence[bytes]) -> bytes:
    return _encode((timer.namespace, written))


def walk(
    cursor: lmdb.Cursor[bytes], clock: Clock, after: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """The times and values of a clock's timers, in order, from the first one later than `after`."""
    if after == _TIME_MAX:
        return
    prefix = _CLOCKS[clock]
    if cursor.set_range(prefix if after is None else _start(clock, after + 1)):
        for found, data in cursor:
            if not found.startswith(prefix):
                return
            yield _time_of(found), data


def _start(clock: Clock, time: int) -> bytes:
    return _CLOCKS[clock] + _TIME.pack(time + _BIAS)


def _time_of(found: bytes) -> int:
    if len(found) < _TIME_END:
        raise lmdb.CorruptedError(f"{found!r} is not the key of a timer")
    time: int = _TIME.unpack_from(found, 1)[0]
    return time - _BIAS
