"""Decode many normal canal-json messages at once, column by column.

    values ── size, encoding ── table ── JSON ── type ── columns ──► signed rows
                 └───────────────┴────────┴───────┴───────┴── one is not normal ──► None

Most of the cost of a message is Python's overhead for each step; here one call does a step for all
messages. If one message is not normal, the caller decodes them one by one. So this decoder refuses
nothing, and its rows are those that `decode` returns for each message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from msgspec import UNSET

from jobs.core.formats.row_fields import UNEXPECTED, RowFields
from jobs.core.formats.table_filter import TableFilter
from jobs.core.rows.consolidate import Integers
from jobs.core.values.change import Row, Value
from jobs.core.values.json_text import is_acceptable
from schemas.limits import (
    CACHED_TYPES_CHARACTERS_MAX,
    MESSAGE_SCHEMAS_MAX,
    SHORT_MESSAGE_BYTES_MAX,
)

_KIND, _IS_DDL, _DATA = attrgetter("type"), attrgetter("isDdl"), attrgetter("data")
_TYPES = attrgetter("mysqlType")
_ES, _TS = attrgetter("es"), attrgetter("ts")
_ID = attrgetter("id")


class BatchColumn(NamedTuple):
    """One used column: its values in `data`, and its old values in updates that changed it."""

    after: list[Value]  # one for each row of `data`
    before: list[Value]
    changed: list[int]  # the updates with a value in `before`, as indexes among all updates


@dataclass(frozen=True, slots=True)
class CanalBatch:
    """The messages of the job's tables, and their signed rows."""

    count: int
    filtered: int
    columns: list[BatchColumn]
    signs: Integers
    rows: Integers  # for each signed row, the index of its row in `data`
    updates: Integers  # the indexes of the signed rows that are the -U of an update
    kept: list[int]  # the index of each of these messages among those given
    sizes: Integers  # the number of signed rows of each message
    es: list[int | None]
    ts: list[int | None]
    ids: list[int | None]  # of the batches in which canal sent the messages

    def value_indexes(self, column: BatchColumn) -> Integers:
        """Return for each signed row the index of its value in `after + before`."""
        if not column.changed:
            return self.rows
        indexes = self.rows.copy()
        indexes[self.updates[column.changed]] = len(column.after) + np.arange(len(column.before))
        return indexes

    def changes(self) -> list[tuple[int, Row]]:
        """Return the signed rows as `decode` does."""
        columns = []
        for column in self.columns:
            values = column.after + column.before
            columns.append([values[index] for index in self.value_indexes(column)])
        rows = zip(*columns, strict=True) if columns else iter([()] * len(self.signs))
        return list(zip(self.signs.tolist(), rows, strict=True))


@runtime_checkable
class BatchDecoder(Protocol):
    """A decoder that can decode many messages at once."""

    def decode_batch(self, values: Sequence[bytes | None]) -> CanalBatch | None: ...


class CanalBatchDecoder:
    """Decodes batches of messages of one source."""

    def __init__(
        self,
        fields: RowFields,
        fields_of: Callable[[bytes], RowFields] | None,  # by mysqlType; None if it has no effect
        tables: TableFilter,
        read_envelope: Callable[[bytes], Any],
        weights: dict[str, int],
        bytes_max: int,
    ) -> None:
        self._tables = tables
        self._read_envelope = read_envelope
        self._signs = {**weights, "UPDATE": 0}
        self._bytes_max = bytes_max
        self._fields, self._fields_of = fields, fields_of
        self._used = fields.used_indexes
        self._converters = lru_cache(MESSAGE_SCHEMAS_MAX)(_column_converters)

    def decode(self, values: Sequence[bytes | None]) -> CanalBatch | None:
        """Return the signed rows of all messages, or None unless all are normal."""
        if not all(values):
            return None
        try:
            return self._decode([value for value in values if value])
        except UNEXPECTED:
            return None

    def _decode(self, values: list[bytes]) -> CanalBatch | None:
        for value in values:
            check = len(value) > SHORT_MESSAGE_BYTES_MAX or not value.isascii()
            if check and not is_acceptable(value, self._bytes_max):
                return None
        kept = list(range(len(values)))
        if self._tables:
            headers = map(self._tables.read_header, values)
            kept = [at for at, header in enumerate(headers) if self._tables.wants(header)]
        messages = [self._read_envelope(values[at]) for at in kept]
        signs = list(map(self._signs.get, map(_KIND, messages)))
        if None in signs or any(map(_IS_DDL, messages)):
            return None
        fields = self._find_fields(messages)
        if fields is None:
            return None
        data = list(map(_DATA, messages))
        olds = _old_rows(message for message, sign in zip(messages, signs, strict=True) if not sign)
        if olds is None:
            return None
        columns = self._convert_columns(fields, list(chain.from_iterable(data)), olds)
        sizes = np.array(list(map(len, data)), np.int64)
        message_signs = np.array(signs, np.int64)
        row_signs = np.repeat(message_signs, sizes)
        updated = row_signs == 0
        times = 1 + updated
        signed = np.repeat(row_signs, times)
        updates = np.cumsum(times)[updated] - 2
        signed[updates], signed[updates + 1] = -1, 1
        return CanalBatch(
            count=len(messages),
            filtered=len(values) - len(messages),
            columns=columns,
            signs=signed,
            rows=np.repeat(np.arange(len(row_signs)), times),
            updates=updates,
            kept=kept,
            sizes=sizes * (1 + (message_signs == 0)),
            es=list(map(_ES, messages)),
            ts=list(map(_TS, messages)),
            ids=list(map(_ID, messages)),
        )

    def _find_fields(self, messages: list[Any]) -> RowFields | None:
        """Return the fields of all messages; None if their columns have different labels."""
        if self._fields_of is None:
            return self._fields
        types = {b"{}" if each is UNSET else bytes(each) for each in map(_TYPES, messages)}
        if max(map(len, types), default=0) > CACHED_TYPES_CHARACTERS_MAX:
            return None
        found = set(map(self._fields_of, types)) or {self._fields}
        return found.pop() if len(found) == 1 else None

    def _convert_columns(
        self, row_fields: RowFields, rows: list[Any], olds: list[Any]
    ) -> list[BatchColumn]:
        """Check all declared columns, and return the used ones."""
        columns = []
        for field, convert in self._converters(row_fields):
            after = convert(list(map(field, rows)))
            fields = list(map(field, olds))
            changed = [index for index, each in enumerate(fields) if each is not UNSET]
            before = convert([fields[index] for index in changed])
            columns.append(BatchColumn(after, before, changed))
        return [columns[index] for index in self._used]


def _column_converters(fields: RowFields) -> list[tuple[Callable[..., Any], Callable[..., Any]]]:
    """Return for each column how its field is read from a row, and how many are converted."""
    return [
        (attrgetter(f"c{index}"), fields.column_converter(index))
        for index in range(len(fields.columns))
    ]


def _old_rows(updates: Any) -> list[Any] | None:
    """Return one row of `old` for each row of `data`, or None if `old` has too few."""
    olds: list[Any] = []
    for message in updates:
        count = len(message.data)
        if len(message.old) < count:
            return None
        olds += message.old[:count]
    return olds
