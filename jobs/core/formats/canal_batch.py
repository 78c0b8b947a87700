"""Plain messages: many canal-json messages at once, column by column.

    values ── size, encoding ── table ── JSON ── type ── columns ──► rows, and what was changed
                 └───────────────┴────────┴───────┴───────┴── one is not plain ──► None

Most of a message's cost is Python's own, a step at a time; here a step is one call for all of them.
What is not plain to all of them together is decoded message by message, which says what is wrong:
nothing is refused here, and what is taken is what `decode` makes of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from msgspec import UNSET

from jobs.core.formats.row_fields import UNEXPECTED, RowFields
from jobs.core.formats.table_filter import TableFilter
from jobs.core.rows.consolidate import Integers
from jobs.core.values.change import Row, Value
from jobs.core.values.json_text import acceptable
from schemas.limits import SHORT_MESSAGE_BYTES_MAX

_KIND, _IS_DDL, _DATA = attrgetter("type"), attrgetter("isDdl"), attrgetter("data")
_ES, _TS = attrgetter("es"), attrgetter("ts")


class ColumnOfRows(NamedTuple):
    """One used column: as it is in `data`, and what it was before where an update changed it."""

    after: list[Value]  # row by row
    before: list[Value]
    changed: list[int]  # the updates that `before` is of, counted among updates


@dataclass(frozen=True, slots=True)
class PlainMessages:
    """The messages of the tables that are read, and their signed rows."""

    count: int
    filtered: int
    columns: list[ColumnOfRows]
    signs: Integers
    rows: Integers  # of each signed row, the row in `data` that it is or comes before
    updates: Integers  # the signed rows that come before an update
    es: list[int | None]
    ts: list[int | None]

    def places(self, column: ColumnOfRows) -> Integers:
        """Of each signed row, where its value is in `after`, and behind it `before`."""
        if not column.changed:
            return self.rows
        places = self.rows.copy()
        behind = len(column.after) + np.arange(len(column.before))
        places[self.updates[column.changed]] = behind
        return places

    def changes(self) -> list[tuple[int, Row]]:
        """The signed rows as `decode` has them."""
        columns = []
        for column in self.columns:
            values = column.after + column.before
            columns.append([values[place] for place in self.places(column)])
        rows = zip(*columns, strict=True) if columns else iter([()] * len(self.signs))
        return list(zip(self.signs.tolist(), rows, strict=True))


@runtime_checkable
class TogetherDecoder(Protocol):
    """A decoder that can take many messages at once."""

    def together(self, values: Sequence[bytes | None]) -> PlainMessages | None: ...


class PlainReader:
    """What is the same for all messages of a source."""

    def __init__(
        self,
        fields: RowFields,
        tables: TableFilter,
        read_header: Callable[[bytes], Any],
        read_envelope: Callable[[bytes], Any],
        weights: dict[str, int],
        bytes_max: int,
    ) -> None:
        self._tables = tables
        self._read_header = read_header
        self._read_envelope = read_envelope
        self._signs = {**weights, "UPDATE": 0}
        self._bytes_max = bytes_max
        self._columns = [
            (attrgetter(f"c{place}"), fields.column(place)) for place in range(len(fields.columns))
        ]
        self._used = fields.used_places

    def read(self, values: Sequence[bytes | None]) -> PlainMessages | None:
        """None where they are not all plain."""
        if not all(values):
            return None
        try:
            return self._read([value for value in values if value])
        except UNEXPECTED:
            return None

    def _read(self, values: list[bytes]) -> PlainMessages | None:
        for value in values:
            odd = len(value) > SHORT_MESSAGE_BYTES_MAX or not value.isascii()
            if odd and not acceptable(value, self._bytes_max):
                return None
        read = values
        if self._tables:
            headers = map(self._read_header, values)
            read = [
                value
                for value, header in zip(values, headers, strict=True)
                if self._tables.wants(header)
            ]
        messages = list(map(self._read_envelope, read))
        signs = list(map(self._signs.get, map(_KIND, messages)))
        if None in signs or any(map(_IS_DDL, messages)):
            return None
        data = list(map(_DATA, messages))
        olds = _olds(message for message, sign in zip(messages, signs, strict=True) if not sign)
        if olds is None:
            return None
        columns = self._columns_of(list(chain.from_iterable(data)), olds)
        row_signs = np.repeat(np.array(signs, np.int64), np.array(list(map(len, data)), np.int64))
        updated = row_signs == 0
        times = 1 + updated
        signed = np.repeat(row_signs, times)
        updates = np.cumsum(times)[updated] - 2
        signed[updates], signed[updates + 1] = -1, 1
        return PlainMessages(
            len(messages), len(values) - len(messages), columns, signed,
            np.repeat(np.arange(len(row_signs)), times), updates,
            list(map(_ES, messages)), list(map(_TS, messages)),
        )  # fmt: skip

    def _columns_of(self, rows: list[Any], olds: list[Any]) -> list[ColumnOfRows]:
        """All declared columns are checked; of the used ones there are values."""
        found: dict[int, ColumnOfRows] = {}
        for place, (field, converted) in enumerate(self._columns):
            after = converted(list(map(field, rows)))
            fields = list(map(field, olds))
            changed = [at for at, each in enumerate(fields) if each is not UNSET]
            before = converted([fields[at] for at in changed])
            found[place] = ColumnOfRows(after, before, changed)
        return [found[place] for place in self._used]


def _olds(updates: Any) -> list[Any] | None:
    """The rows of `old`, one for each of `data`; None where there are too few."""
    olds: list[Any] = []
    for message in updates:
        count = len(message.data)
        if len(message.old) < count:
            return None
        olds += message.old[:count]
    return olds
