"""A listing of results: turns the parameters of a request into one Select.

    where=total>=10&where=name^=bo&order=-total,name ──► Listing ──► Select over c0, c1, ...
                                                           ▲
    cursor: epoch, digest of query and table, last row ────┘

Input of users becomes values only. Columns are looked up by name and appear by number. All pages of
a listing show the epoch of its first page.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from jobs.reading.listing import (
    NULL,
    ColumnUnknown,
    Condition,
    ListingRefused,
    parse_conditions,
    parse_order,
)
from jobs.reading.row_shape import RowShape
from schemas.limits import REASON_CHARACTERS_MAX
from service.live.select import Select
from service.live.table import LiveTable
from service.problems import Problem, make_parameter_problem


class PageCursor(msgspec.Struct, frozen=True, array_like=True):
    """The end of a page: the last row's values in the order, its key last."""

    epoch: int
    digest: bytes
    values: list[bytes]


@dataclass(frozen=True, slots=True)
class Listing:
    """The filters and order of a listing, without its epoch and page."""

    conditions: tuple[tuple[str, tuple[bytes, ...]], ...]  # SQL over column numbers, and its values
    order: tuple[tuple[str, bool], ...]  # column, descending; the key follows as the last one
    columns: tuple[str, ...]  # columns that an index would help
    digest: bytes  # of the parameters: with a table's tag, a cursor belongs to one listing

    def encode_cursor(self, epoch: int, table_tag: str, last: Sequence[bytes]) -> str:
        return encode_cursor(epoch, _digest(self.digest + table_tag.encode()), last)

    def decode_cursor(self, cursor: str, table_tag: str) -> PageCursor:
        digest = _digest(self.digest + table_tag.encode())
        return decode_cursor(cursor, digest, len(self.order) + 1)

    def make_select(self, limit: int, after: PageCursor | None) -> Select:
        """Return a Select of `limit` + 1 rows, so that the caller knows if more follow."""
        columns = [*self.order, ("key", False)]
        parts: list[str] = []
        values: list[bytes] = []
        for condition, compared in self.conditions:
            parts.append(condition)
            values += compared
        if after is not None:
            condition, parameters = _render_after(columns, after.values)
            parts.append(condition)
            values += parameters
        return Select(
            columns=["document", *(name for name, _ in columns)],
            conditions=parts,
            values=values,
            order=[f"{name} DESC" if descending else name for name, descending in columns],
            limit=limit + 1,
        )


def encode_cursor(epoch: int, digest: bytes, last: Sequence[bytes]) -> str:
    """Return the end of a page as text, for the next request."""
    cursor = msgspec.msgpack.encode(PageCursor(epoch, digest, list(last)))
    return base64.urlsafe_b64encode(cursor).decode().rstrip("=")


def decode_cursor(text: str, digest: bytes, count: int) -> PageCursor:
    """Parse and check a cursor; raise a Problem if it belongs to another listing."""
    refused = Problem("cursor-invalid", "start the listing again without the cursor")
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        cursor = msgspec.msgpack.decode(raw, type=PageCursor)
    except ValueError:
        raise refused from None
    if cursor.digest != digest or len(cursor.values) != count or not 0 <= cursor.epoch < 2**62:
        raise refused
    return cursor


def _render_after(
    columns: Sequence[tuple[str, bool]], last: list[bytes]
) -> tuple[str, list[bytes]]:
    """Return a condition for the rows after the last one, in an order of several directions."""
    first, descending = columns[0]
    # Redundant, but it lets SQLite start at this point of an index.
    start = f"{first} {'<=' if descending else '>='} ?"
    alternatives = []
    values: list[bytes] = [last[0]]
    for index, (name, descending) in enumerate(columns):
        same = [f"{before} = ?" for before, _ in columns[:index]]
        alternatives.append(" AND ".join([*same, f"{name} {'<' if descending else '>'} ?"]))
        values += last[: index + 1]
    return f"{start} AND ({' OR '.join(f'({each})' for each in alternatives)})", values


def parse_listing(
    live_table: LiveTable, where: Sequence[str], order: str | None, as_of: str | None
) -> Listing:
    """Parse the parameters of a listing of a table; raise a Problem if they are invalid."""
    shape = live_table.shape
    try:
        conditions = tuple(_render(shape, each) for each in parse_conditions(shape.columns, where))
        columns = tuple(
            (_number(shape, name), descending)
            for name, descending in parse_order(shape.columns, order)
        )
    except ColumnUnknown as error:
        raise Problem("column-unknown", str(error)) from None
    except ListingRefused as error:
        reason = str(error)[:REASON_CHARACTERS_MAX]
        raise make_parameter_problem(f"query.{error.parameter}", reason) from None
    text = [list(where), order or "", as_of or "", shape.plan.fingerprint]
    digest = _digest(msgspec.json.encode(text))
    equal = [sql.removesuffix(" = ?") for sql, _ in conditions if sql.endswith(" = ?")]
    indexable = [columns[0][0]] if columns else equal[:1]
    return Listing(conditions, columns, tuple(indexable), digest)


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).digest()


def _render(shape: RowShape, condition: Condition) -> tuple[str, tuple[bytes, ...]]:
    """Return a condition as SQL over the columns of the store, and its values."""
    column, value = _number(shape, condition.column), condition.value
    if condition.op == "^=":
        return f"{column} >= ? AND {column} < ?", (value, value + b"\xff")
    sql = {"!=": "<>"}.get(condition.op, condition.op)
    if sql in ("<>", "<", "<="):  # as in SQL, NULL is neither less nor different
        return f"{column} {sql} ? AND {column} > ?", (value, NULL)
    return f"{column} {sql} ?", (value,)


def _number(shape: RowShape, name: str) -> str:
    """Return the name of a column in the store: c and its number."""
    return f"c{list(shape.columns).index(name)}"
