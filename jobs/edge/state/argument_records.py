"""Argument records: how the values of one argument are written in the hot state, and read back.

values with multiplicities ──► one small record, or order keys with an entry each (and marks)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import lmdb
import msgspec

from jobs.core.fold.state import Counts
from jobs.core.values.change import Value
from jobs.core.values.order_key import ValueDecoder, value_decoder, value_encoder
from jobs.edge.rows.columns import WORD_DIGITS_MAX
from schemas import limits
from schemas.types.sql_types import BIGINT, Kind, SqlType


def checked(sql_type: SqlType) -> ValueDecoder:
    """A decoder that calls what it cannot read damage."""
    decode = value_decoder(sql_type)

    def value(key: bytes) -> Value:
        try:
            return decode(key)
        except (ValueError, IndexError, struct.error) as error:
            raise lmdb.CorruptedError(f"{key!r} is not the key of a {sql_type}: {error}") from error

    return value


class _Memo(dict[Any, Any]):
    """What a function has made of its arguments: most columns have few distinct values."""

    def __init__(self, make: Callable[[Any], Any], entries_max: int) -> None:
        self._make = make
        self._entries_max = entries_max

    def __missing__(self, given: Any) -> Any:
        if len(self) >= self._entries_max:
            self.clear()
        made = self[given] = self._make(given)
        return made


class Marks(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What is known of a large multiset: of some places how many values are there before them, and
    the place that is there most often, with how often."""

    places: tuple[tuple[bytes, int], ...] = ()
    top: tuple[bytes, int] | None = None


_WORDS = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)


class Argument:
    """How the values of one argument are written.

    In a small multiset they stand as they are where msgspec reads back what it wrote, and as
    their order keys where it does not (NaN, wide decimals).
    """

    def __init__(self, number: int, sql_type: SqlType) -> None:
        self.prefix = value_encoder(BIGINT)(number)
        rows = sql_type.kind is Kind.ROW
        remembered = limits.ROW_MEMO_ENTRIES_MAX if rows else limits.MEMO_ENTRIES_MAX
        self.orders: Mapping[Value, bytes] = _Memo(value_encoder(sql_type), remembered)
        self.value = checked(sql_type)
        self._values: Mapping[bytes, Value] = _Memo(self.value, limits.ROW_MEMO_ENTRIES_MAX)
        as_it_is = _form(sql_type)
        self.plain = as_it_is is not None
        kind: Any = bytes if as_it_is is None else as_it_is | None
        self.multiset = msgspec.msgpack.Decoder(dict[kind, int] | Marks).decode

    def written(self, counts: Mapping[Value, int]) -> Mapping[Any, int]:
        """Multiplicities under what stands for their values in a small multiset."""
        if self.plain:
            return counts
        orders = self.orders
        return {orders[value]: count for value, count in counts.items()}

    def ordered(self, small: Mapping[Any, int]) -> Iterator[tuple[bytes, int]]:
        """A small multiset under the order keys of its values."""
        for written, count in small.items():
            yield (self.orders[written] if self.plain else written), count

    def read(self, written: Any) -> Value:
        """The value that something stands for in a small multiset."""
        return written if self.plain else self._values[written]

    def asked(self, small: dict[Any, int], values: Iterable[Value]) -> Counts:
        """The multiplicities of these values at least."""
        if self.plain:
            return small
        orders = self.orders
        return {value: small.get(orders[value], 0) for value in values}


def _form(sql_type: SqlType) -> type[int] | type[str] | None:
    """What a value is that MessagePack gives back as it was; None where it might not."""
    if sql_type.kind is Kind.STRING or sql_type.textual_time:
        return str
    if sql_type.kind is Kind.DECIMAL:
        return int if (sql_type.precision or 0) <= WORD_DIGITS_MAX else None
    return int if sql_type.integer or sql_type.kind in _WORDS else None
