"""Encode the values of one argument for the hot state, and decode them.

values with multiplicities ──► one small record, or an entry per order key (and marks)
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
from schemas import limits
from schemas.types.sql_types import BIGINT, WORD_DIGITS_MAX, Kind, SqlType


def make_decoder(sql_type: SqlType) -> ValueDecoder:
    """Return a decoder that raises lmdb.CorruptedError for bytes that it cannot decode."""
    decode = value_decoder(sql_type)

    def value(key: bytes) -> Value:
        try:
            return decode(key)
        except (ValueError, IndexError, struct.error) as error:
            raise lmdb.CorruptedError(f"{key!r} is not the key of a {sql_type}: {error}") from error

    return value


class _Memo(dict[Any, Any]):
    """Caches the results of a function; most columns have few distinct values."""

    def __init__(self, make: Callable[[Any], Any], entries_max: int) -> None:
        self._make = make
        self._entries_max = entries_max

    def __missing__(self, argument: Any) -> Any:
        if len(self) >= self._entries_max:
            self.clear()
        result = self[argument] = self._make(argument)
        return result


class Marks(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Known facts about a large multiset.

    `value_keys` has the number of values before some of them, and `top` the most frequent with its
    multiplicity.
    """

    value_keys: tuple[tuple[bytes, int], ...] = ()
    top: tuple[bytes, int] | None = None


_WORDS = (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)


class Argument:
    """Encodes the values of one argument.

    A small multiset stores plain values if msgspec decodes them unchanged, and otherwise their
    order keys (NaN, wide decimals).
    """

    def __init__(self, number: int, sql_type: SqlType) -> None:
        self.prefix = value_encoder(BIGINT)(number)
        rows = sql_type.kind is Kind.ROW
        entries_max = limits.ROW_MEMO_ENTRIES_MAX if rows else limits.MEMO_ENTRIES_MAX
        self.orders: Mapping[Value, bytes] = _Memo(value_encoder(sql_type), entries_max)
        self.value = make_decoder(sql_type)
        self._values: Mapping[bytes, Value] = _Memo(self.value, limits.ROW_MEMO_ENTRIES_MAX)
        plain_type = _plain_type(sql_type)
        self.plain = plain_type is not None
        kind: Any = bytes if plain_type is None else plain_type | None
        self.multiset = msgspec.msgpack.Decoder(dict[kind, int] | Marks).decode

    def encode_small(self, counts: Mapping[Value, int]) -> Mapping[Any, int]:
        """Return multiplicities by values as a small multiset stores them."""
        if self.plain:
            return counts
        orders = self.orders
        return {orders[value]: count for value, count in counts.items()}

    def order_keys(self, small: Mapping[Any, int]) -> Iterator[tuple[bytes, int]]:
        """Yield the entries of a small multiset by the order keys of their values."""
        for stored, count in small.items():
            yield (self.orders[stored] if self.plain else stored), count

    def decode_small(self, stored: Any) -> Value:
        """Return the value for its form in a small multiset."""
        return stored if self.plain else self._values[stored]

    def select(self, small: dict[Any, int], values: Iterable[Value]) -> Counts:
        """Return the multiplicities of these values, and possibly of others."""
        if self.plain:
            return small
        orders = self.orders
        return {value: small.get(orders[value], 0) for value in values}


def _plain_type(sql_type: SqlType) -> type[int] | type[str] | None:
    """Return the type of values that MessagePack decodes unchanged; None if it may not."""
    if sql_type.kind is Kind.STRING or sql_type.textual_time:
        return str
    if sql_type.kind is Kind.DECIMAL:
        return int if (sql_type.precision or 0) <= WORD_DIGITS_MAX else None
    return int if sql_type.integer or sql_type.kind in _WORDS else None
