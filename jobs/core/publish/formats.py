"""The four formats of the published changelog: which records rows become, and their text.

    row of the changelog      +I        -U          +U          -D
    changelog-json            record    record      record      record
    canal-json                INSERT    (with +U)   UPDATE      DELETE
    debezium-json             c         (with +U)   u           d
    upsert-json               row       nothing     row         tombstone

A format is data: a text with slots, and what happens to each op. The publisher fills the slots
for whole columns at once, so nothing here is called for a single record. Every record has the key
(the group columns as a JSON object) and the headers `epoch` and `seq`; a record that is made of a
-U and a +U has the seq of the +U.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from jobs.core.values.change import Op


class Slot(StrEnum):
    """A part of a record's text that is another in each record."""

    WORD = "word"  # what the format calls the op
    SEQ = "seq"
    ROW = "row"  # the row itself
    BEFORE = "before"  # the row that goes away, null for an insert
    AFTER = "after"  # the row that comes, null for a delete
    TIME = "time"  # of the row's window, its last millisecond
    OLD = "old"  # the former values of the columns that changed; null unless an update


Template = tuple[str | Slot, ...]


@dataclass(frozen=True, slots=True)
class EpochFacts:
    """What all records of an epoch say alike.

    `event_ms` is the epoch's watermark, so that a reader who derives its own watermark from the
    records is never ahead of ours. While no watermark is known it is 0, which moves no reader's
    clock; the commit's time would, and rows after it would look late. `commit_ms` is that time.
    """

    job: str
    topic: str
    epoch: int
    event_ms: int
    commit_ms: int
    key_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PublishFormat:
    name: str
    words: Mapping[Op, str] = field(hash=False)
    template: Template
    paired: bool  # -U and +U are one record
    tombstone: bool = False  # -D is a record without a value
    textual: bool = False  # column values are strings, as canal sends them

    def slots(self) -> set[Slot]:
        return {part for part in self.template if isinstance(part, Slot)}

    def of_windows(self) -> PublishFormat:
        """The format for rows of windows: a record of changelog-json says its row's time."""
        if self is not CHANGELOG_JSON:
            return self
        *parts, end = self.template
        return replace(self, template=(*parts, ',"time":', Slot.TIME, end))

    def filled(self, facts: EpochFacts) -> Template:
        """The template with all that the epoch's records share written in; slots remain."""
        shared = {
            "@job@": json.dumps(facts.job),
            "@topic@": json.dumps(facts.topic),
            "@epoch@": str(facts.epoch),
            "@event_ms@": str(facts.event_ms),
            "@commit_ms@": str(facts.commit_ms),
            "@keys@": json.dumps(facts.key_columns, ensure_ascii=False),
        }
        return tuple(
            part if isinstance(part, Slot) else _written(part, shared) for part in self.template
        )

    @property
    def cleanup_policy(self) -> str:
        """A topic of latest rows may forget older ones; a topic of changes may not."""
        return "compact" if self.tombstone else "delete"


def _written(text: str, shared: Mapping[str, str]) -> str:
    for place, value in shared.items():
        text = text.replace(place, value)
    return text


_OPS = {op: op.value for op in Op}
_CANAL = {Op.INSERT: "INSERT", Op.UPDATE_AFTER: "UPDATE", Op.DELETE: "DELETE"}
_DEBEZIUM = {Op.INSERT: "c", Op.UPDATE_AFTER: "u", Op.DELETE: "d"}

CHANGELOG_JSON = PublishFormat(
    name="changelog-json",
    words=_OPS,
    template=(
        '{"op":"',
        Slot.WORD,
        '","row":',
        Slot.ROW,
        ',"epoch":@epoch@,"seq":',
        Slot.SEQ,
        "}",
    ),
    paired=False,
)
CANAL_JSON = PublishFormat(
    name="canal-json",
    words=_CANAL,
    template=(
        '{"data":[',
        Slot.ROW,
        '],"database":@job@,"es":@event_ms@,"id":@epoch@,"isDdl":false,"old":',
        Slot.OLD,
        ',"pkNames":@keys@,"sql":"","table":@topic@,"ts":@commit_ms@,"type":"',
        Slot.WORD,
        '"}',
    ),
    paired=True,
    textual=True,
)
DEBEZIUM_JSON = PublishFormat(
    name="debezium-json",
    words=_DEBEZIUM,
    template=(
        '{"before":',
        Slot.BEFORE,
        ',"after":',
        Slot.AFTER,
        ',"op":"',
        Slot.WORD,
        '","ts_ms":@commit_ms@,"source":{"connector":"retally","name":@job@,"db":@job@,'
        '"table":@topic@,"ts_ms":@event_ms@,"epoch":@epoch@,"seq":',
        Slot.SEQ,
        "}}",
    ),
    paired=True,
)
UPSERT_JSON = PublishFormat(
    name="upsert-json", words=_OPS, template=(Slot.ROW,), paired=True, tombstone=True
)
FORMATS = {each.name: each for each in (CHANGELOG_JSON, CANAL_JSON, DEBEZIUM_JSON, UPSERT_JSON)}


def object_template(columns: tuple[str, ...]) -> tuple[str | int, ...]:
    """A JSON object of these columns: literal text, and a column's number where its value goes."""
    if not columns:
        return ("{}",)
    parts: list[str | int] = []
    for number, name in enumerate(columns):
        parts.append(("{" if number == 0 else ",") + member(name))
        parts.append(number)
    return (*parts, "}")


def member(name: str) -> str:
    """The text before the value of a column in a JSON object."""
    return json.dumps(name, ensure_ascii=False) + ":"
