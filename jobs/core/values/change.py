"""Changes: rows with a sign, the ops of a changelog, and the outcomes of decoding a message."""

from __future__ import annotations

from enum import StrEnum

import msgspec

TRUNCATED = "TRUNCATE removes rows that it does not name; it cannot become retractions"

# The tuple is an ARRAY, or a ROW (see schemas.types.sql_types).
Value = bool | int | float | str | bytes | tuple["Value", ...] | None
Row = tuple[Value, ...]


class Op(StrEnum):
    """The kind of a change, spelled as in Flink's RowKind."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"

    @property
    def weight(self) -> int:
        """+1 if the op adds its row, -1 if it retracts it."""
        return 1 if self in (Op.INSERT, Op.UPDATE_AFTER) else -1


class Changes(msgspec.Struct, frozen=True, gc=False):
    """The changes of a message, in order, and the times that the message carries (epoch ms).

    `id` numbers the batches that canal sends, from 1 after each start of canal."""

    changes: list[tuple[int, Row]]
    es: int | None = None
    ts: int | None = None
    id: int | None = None


class Skipped(msgspec.Struct, frozen=True, gc=False):
    """A valid message without rows: a tombstone, or DDL."""

    why: str


class Filtered(msgspec.Struct, frozen=True, gc=False):
    """A message of a database or table that the job does not read."""


class RejectCode(StrEnum):
    """Why a message was refused, for programs; the reason is for people."""

    MESSAGE = "message"  # it is not a valid message of the source
    EXPRESSION = "expression"  # an expression of the query fails on a row of it
    SHARED = "shared"  # an expression of one view fails, and the others share the last images
    SCHEMA = "schema"  # the schema registry has no schema of its id
    FUTURE = "future"  # its time was beyond watermark.future_skew when it was read


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """A refused message: the reason, and the path of the invalid field in it."""

    reason: str
    path: str = "$"
    code: RejectCode = RejectCode.MESSAGE


class ColumnGone(msgspec.Struct, frozen=True, gc=False):
    """A message lacks a declared column, or its DDL drops or renames it.

    The job then stops or continues, as `on_schema_change` says."""

    column: str
    why: str


class Truncated(msgspec.Struct, frozen=True, gc=False):
    """A TRUNCATE of a table that the job reads: its rows are gone, and none of them is named.

    The job then stops, retracts the rows or refuses the message, as `on_truncate` says."""

    statement: str
    path: str
    es: int | None = None  # when it began
    ts: int | None = None  # when it was read

    @property
    def rejected(self) -> Rejected:
        """The refusal of the message."""
        return Rejected(TRUNCATED, self.path)

    def why_stopped(self, position: str) -> str:
        """Return why a job stops at this message, and the ways out."""
        return (
            f"{self.statement} ({position}) removes rows that it does not name, so the results "
            "would keep them; the job stops (on_truncate: stop); create a job that starts behind "
            "this message, or set on_truncate: quarantine, which keeps the removed rows in the "
            "results; with dedupe: pk, on_truncate: apply retracts them"
        )

    def why_untimed(self, position: str) -> str:
        """Return why a job that applies TRUNCATEs stops at one without a time."""
        return (
            f"{self.statement} ({position}) has no time, so it has no order against the rows of "
            "other partitions; the job stops; create a job that starts behind this message, or "
            "set on_truncate: quarantine, which keeps the removed rows in the results"
        )


Decoded = Changes | Skipped | Filtered | Rejected | ColumnGone | Truncated
