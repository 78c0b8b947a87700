"""Changes: a row with a sign, and the four ops of a changelog."""

from __future__ import annotations

from enum import StrEnum

import msgspec

# The tuple is an ARRAY, or a ROW (see schemas.types.sql_types).
Value = bool | int | float | str | bytes | tuple["Value", ...] | None
Row = tuple[Value, ...]


class Op(StrEnum):
    """How a changelog row changes the table: spelled as in Flink's RowKind."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"

    @property
    def weight(self) -> int:
        return 1 if self in (Op.INSERT, Op.UPDATE_AFTER) else -1


class Changes(msgspec.Struct, frozen=True, gc=False):
    """A decoded message: its changes in order, and the times canal stamped on it (epoch ms)."""

    changes: list[tuple[int, Row]]
    es: int | None = None
    ts: int | None = None


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """A message that carries no rows by nature: a tombstone, DDL."""

    why: str


class Filtered(msgspec.Struct, frozen=True, gc=False):
    """A message of a database or table that the job does not read."""


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """A message that cannot be taken: why, and the path of the offending field in it."""

    reason: str
    path: str = "$"


class ColumnGone(msgspec.Struct, frozen=True, gc=False):
    """A declared column is missing from a message's data, or DDL touches it: stop or go on is
    the job's choice, made by who reads this."""

    column: str
    why: str


Decoded = Changes | Skipped | Filtered | Rejected | ColumnGone
