"""A listing of results: conditions, order and page, as parameters say, turned into one Select.

    where=total>=10&where=name^=bo&order=-total,name ──► Listing ──► Select over c0, c1, ...
                                                           ▲
    cursor: epoch, what was asked for, the last row's place ┘

User text becomes values only. Columns are looked up by name and appear by number; all pages of a
listing are of the epoch of its first.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from schemas.limits import CONDITIONS_MAX, ORDER_COLUMNS_MAX, REASON_CHARACTERS_MAX
from schemas.types.sql_types import Kind
from service.live.select import Select
from service.problems import Problem
from service.table.row_shape import RowShape

_CONDITION = re.compile(r"([A-Za-z_]\w*)\s*(!=|<=|>=|\^=|=|<|>)(.*)", re.DOTALL)
_NULLNESS = re.compile(r"([A-Za-z_]\w*)\s+is\s+(not\s+)?null", re.IGNORECASE)
_COLUMN = re.compile(r"-?[A-Za-z_]\w*")
_NULL = b"\x00"
_TEXT_END = 2  # bytes that end a text in its order key
_CURSOR_CHARACTERS_MAX = 64 * 1024


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: the last row's values in the order, its key last."""

    epoch: int
    asked: bytes
    values: list[bytes]


@dataclass(frozen=True, slots=True)
class Listing:
    """What is asked for, apart from the epoch and the page."""

    conditions: tuple[tuple[str, tuple[bytes, ...]], ...]  # SQL over our own names, and its values
    order: tuple[tuple[str, bool], ...]  # column, descending; the key comes last by itself
    columns: tuple[str, ...]  # which an index would help: the first of the order, or an equal one
    asked: bytes  # a digest: a cursor belongs to one listing

    def cursor(self, epoch: int, last: Sequence[bytes]) -> str:
        return page_cursor(epoch, self.asked, last)

    def place(self, cursor: str) -> Place:
        return page_place(cursor, self.asked, len(self.order) + 1)

    def select(self, limit: int, after: Place | None) -> Select:
        """document, and the row's place; of `limit` + 1 rows, so that one knows if more follow."""
        columns = [*self.order, ("key", False)]
        parts: list[str] = []
        values: list[bytes] = []
        for condition, given in self.conditions:
            parts.append(condition)
            values += given
        if after is not None:
            condition, place = _beyond(columns, after.values)
            parts.append(condition)
            values += place
        return Select(
            columns=["document", *(name for name, _ in columns)],
            conditions=parts,
            values=values,
            order=[f"{name} DESC" if descending else name for name, descending in columns],
            limit=limit + 1,
        )


def page_cursor(epoch: int, asked: bytes, last: Sequence[bytes]) -> str:
    """Where a page ended, for the client to bring back."""
    place = msgspec.msgpack.encode(Place(epoch, asked, list(last)))
    return base64.urlsafe_b64encode(place).decode().rstrip("=")


def page_place(cursor: str, asked: bytes, count: int) -> Place:
    """A cursor read back; it is the client's word, so its form is checked."""
    refused = Problem("cursor-invalid", 422, "begin the listing again without the cursor")
    if len(cursor) > _CURSOR_CHARACTERS_MAX:
        raise refused
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        place = msgspec.msgpack.decode(raw, type=Place)
    except ValueError:
        raise refused from None
    if place.asked != asked or len(place.values) != count or not 0 <= place.epoch < 2**62:
        raise refused
    return place


def _beyond(columns: Sequence[tuple[str, bool]], place: list[bytes]) -> tuple[str, list[bytes]]:
    """Rows after a place in an order of several directions: greater in the first column that
    differs."""
    first, descending = columns[0]
    # Says nothing new, but an index can begin there.
    start = f"{first} {'<=' if descending else '>='} ?"
    alternatives = []
    values: list[bytes] = [place[0]]
    for index, (name, descending) in enumerate(columns):
        same = [f"{before} = ?" for before, _ in columns[:index]]
        alternatives.append(" AND ".join([*same, f"{name} {'<' if descending else '>'} ?"]))
        values += place[: index + 1]
    return f"{start} AND ({' OR '.join(f'({each})' for each in alternatives)})", values


def listing(shape: RowShape, where: Sequence[str], order: str | None, as_of: str | None) -> Listing:
    """The listing that parameters ask for."""
    if len(where) > CONDITIONS_MAX:
        raise _refused("where", f"at most {CONDITIONS_MAX} conditions are taken")
    conditions = tuple(_condition(shape, text) for text in where)
    columns = tuple(_ordered(shape, order)) if order else ()
    text = msgspec.json.encode([list(where), order or "", as_of or "", shape.plan.fingerprint])
    asked = hashlib.blake2b(text, digest_size=8).digest()
    equal = [sql.removesuffix(" = ?") for sql, _ in conditions if sql.endswith(" = ?")]
    helped = [columns[0][0]] if columns else equal[:1]
    return Listing(conditions, columns, tuple(helped), asked)


def _condition(shape: RowShape, text: str) -> tuple[str, tuple[bytes, ...]]:
    nullness = _NULLNESS.fullmatch(text.strip())
    if nullness is not None:
        column = _column(shape, nullness[1])
        return f"{column} {'<>' if nullness[2] else '='} ?", (_NULL,)
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise _refused(
            "where", f"{_shown(text)} is no condition; write total>=10, name^=bo or name is null"
        )
    name, op, given = found.groups()
    column = _column(shape, name)
    value = shape.value_bytes(name, given)
    if op == "^=":
        if shape.columns[name].kind is not Kind.STRING:
            raise _refused("where", f"^= (begins with) is for STRING; {name} is another type")
        start = value[:-_TEXT_END]
        return f"{column} >= ? AND {column} < ?", (start, start + b"\xff")
    sql = {"!=": "<>"}.get(op, op)
    if op in ("!=", "<", "<="):  # as in SQL, NULL is neither less nor other
        return f"{column} {sql} ? AND {column} > ?", (value, _NULL)
    return f"{column} {sql} ?", (value,)


def _ordered(shape: RowShape, order: str) -> Sequence[tuple[str, bool]]:
    names = order.split(",")
    if len(names) > ORDER_COLUMNS_MAX:
        raise _refused("order", f"at most {ORDER_COLUMNS_MAX} columns are taken")
    found = []
    for name in names:
        if _COLUMN.fullmatch(name) is None:
            raise _refused("order", f"{_shown(name)} is no column; write order=-total,name")
        found.append((_column(shape, name.removeprefix("-")), name.startswith("-")))
    return found


def _column(shape: RowShape, name: str) -> str:
    """Our own name of a column: a number."""
    if name not in shape.columns:
        known = ", ".join(shape.columns)
        detail = f"the results have no column {_shown(name)}; they have {known}"
        raise Problem("column-unknown", 422, detail)
    return f"c{list(shape.columns).index(name)}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:80] + "...")


def _refused(parameter: str, reason: str) -> Problem:
    errors = [{"path": f"query.{parameter}", "message": reason[:REASON_CHARACTERS_MAX]}]
    return Problem("parameter-invalid", 422, reason[:REASON_CHARACTERS_MAX], errors=errors)
