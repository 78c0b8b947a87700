"""The explanation of a group, as /explain and `retally explain` answer it."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from schemas.table.changelog import OpText
from schemas.types.json_types import JsonObject

OffsetRanges = dict[str, dict[str, list[int]]]  # [from, to) by topic and partition


class Change(msgspec.Struct, frozen=True):
    op: OpText
    epoch: int
    seq: int
    row: JsonObject


class DifferingGroup(msgspec.Struct, frozen=True):
    key: JsonObject
    before: JsonObject | None
    after: JsonObject | None


class GroupChange(msgspec.Struct, frozen=True):
    op: OpText
    row: JsonObject


class GroupEpoch(msgspec.Struct, frozen=True):
    epoch: int
    changes: list[GroupChange]
    offsets: OffsetRanges | None  # None if unknown, or if it read none
    snapshot: str | UnsetType = UNSET  # the part that it has read instead


class LateRow(msgspec.Struct, frozen=True):
    """A row that was too late for the group, so that its result lacks the row."""

    epoch: int
    topic: str
    partition: int
    offset: int
    weight: int
    time_ms: int
    watermark_ms: int
    row: JsonObject
    became: JsonObject | None  # after an UPDATE


class SideRow(msgspec.Struct, frozen=True):
    """A row of a side of a join, as the query reads it."""

    row: JsonObject  # by ALIAS.COLUMN
    epoch: int  # which wrote it, or how often it is there
    offsets: OffsetRanges | None  # that this epoch read, of the topics of all sources


class JoinedRow(msgspec.Struct, frozen=True):
    """A joined row of a group: a row of each side, or of one if the other has no match."""

    weight: int  # how often it is there
    rows: list[SideRow]


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    epoch: int
    moved: int | None  # the epoch in which offsets were moved manually
    group: JsonObject
    row: JsonObject | None
    row_count: int | None
    changed: int | None
    withheld: bool
    hidden: bool  # HAVING is false
    closed: bool  # its window is closed, so the result is final
    late: list[LateRow]  # rows that arrived after that
    written_ms: int | None
    arguments: list[JsonObject]
    epochs: list[GroupEpoch]
    history_complete: bool
    why: list[str] = []  # the known reasons of the newest changes of MAX and MIN
    joined: list[JoinedRow] | UnsetType = UNSET  # of a query with joins: rows behind the group
    joined_complete: bool | UnsetType = UNSET  # whether these are all of its rows

    @property
    def has_negative(self) -> bool:
        """Whether a multiset has a value that was retracted but never added."""
        entries = (entry for each in self.arguments for entry in each.get("multiset", ()))
        return any(entry["multiplicity"] < 0 for entry in entries)
