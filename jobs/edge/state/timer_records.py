"""Encode timers for the hot state, so that due timers come first.

key      clock, time, namespace, order key of the group (which may be cut)
value    namespace, the group's full values
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import lmdb
import msgspec

from jobs.core.fold.state import Clock, GroupTimer
from schemas.limits import TIMER_NAMESPACE_BYTES_MAX

_CLOCKS = {Clock.PROCESSING: b"p", Clock.EVENT: b"e"}
_TIME = struct.Struct(">Q")
_BIAS = 1 << 63
_TIME_MAX = _BIAS - 1
_TIME_END = 1 + _TIME.size


_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(tuple[str, list[bytes]]).decode


def encode_key(timer: GroupTimer, group: bytes) -> bytes:
    """Return the key of a timer; `group` is the group's order key."""
    namespace = timer.namespace.encode()
    if len(namespace) > TIMER_NAMESPACE_BYTES_MAX:
        raise ValueError(
            f"timer namespace {timer.namespace!r} is too long; "
            f"use at most {TIMER_NAMESPACE_BYTES_MAX} bytes"
        )
    return _key_prefix(timer.clock, timer.time) + namespace + b"\0" + group


def encode(timer: GroupTimer, values: Sequence[bytes]) -> bytes:
    """Return the value of a timer's record; `values` are the group's full values."""
    return _encode((timer.namespace, values))


def read_timers(
    cursor: lmdb.Cursor[bytes], clock: Clock, after: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield (time, value) of a clock's timers in order, starting after `after`."""
    if after == _TIME_MAX:
        return
    prefix = _CLOCKS[clock]
    if cursor.set_range(prefix if after is None else _key_prefix(clock, after + 1)):
        for key, data in cursor:
            if not key.startswith(prefix):
                return
            yield _decode_time(key), data


def _key_prefix(clock: Clock, time: int) -> bytes:
    return _CLOCKS[clock] + _TIME.pack(time + _BIAS)


def _decode_time(key: bytes) -> int:
    if len(key) < _TIME_END:
        raise lmdb.CorruptedError(f"{key!r} is not the key of a timer")
    time: int = _TIME.unpack_from(key, 1)[0]
    return time - _BIAS
