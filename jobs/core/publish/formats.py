"""The formats of the published changelog: the records of each op, and their text.

    row of the changelog             +I        -U          +U          -D
    changelog-json, avro             record    record      record      record
    canal-json                       INSERT    (with +U)   UPDATE      DELETE
    debezium-json, debezium-avro     c         (with +U)   u           d
    upsert-json, upsert-avro         row       nothing     row         tombstone

A format is data: a text with slots, and the records of each op. The publisher fills the slots for
whole columns at once, so no function here is called for a single record. Every record has a key
(the group columns as an object) and the headers `epoch` and `seq`. A record for a -U and its +U
has the seq of the +U. Avro puts the fields of a record one after the other, so it is a text with
slots, too: the header of its schema, then a part for each field of `jobs.core.publish.avro`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from jobs.core.publish.avro import encode_header, encode_long, encode_text
from jobs.core.values.change import Op


class Slot(StrEnum):
    """A part of a record's text that differs between records."""

    WORD = "word"  # the format's word for the op
    SEQ = "seq"
    ROW = "row"  # the row itself
    BEFORE = "before"  # the old row, null for an insert
    AFTER = "after"  # the new row, null for a delete
    TIME = "time"  # the last millisecond of the row's window
    OLD = "old"  # the old values of the changed columns; null unless it is an update


Piece = str | bytes
Template = tuple[Piece, ...]  # a Slot is a str


@dataclass(frozen=True, slots=True)
class EpochFacts:
    """The values that all records of an epoch share.

    `event_ms` is the epoch's watermark, so that the watermark of a consumer of the records is never
    ahead of it. It is 0 while there is no watermark: with the time of the commit, which is
    `commit_ms`, later rows would look late to a consumer.
    """

    job: str
    topic: str
    epoch: int
    event_ms: int
    commit_ms: int
    key_columns: tuple[str, ...]
    schema: int = 0  # the id of the value's schema in the registry


@dataclass(frozen=True, slots=True)
class PublishFormat:
    """A format: the text of its records with slots, and its words for the ops."""

    name: str
    words: Mapping[Op, Piece] = field(hash=False)
    template: Template
    paired: bool  # -U and +U are one record
    tombstone: bool = False  # -D is a record without a value
    textual: bool = False  # column values are strings, as canal sends them
    avro: bool = False

    def slots(self) -> set[Slot]:
        """Return the slots of the template."""
        return {part for part in self.template if isinstance(part, Slot)}

    def of_windows(self) -> PublishFormat:
        """Return the format for rows of windows: changelog-json then has a `time`."""
        if self is not CHANGELOG_JSON:
            return self
        *parts, end = self.template
        return replace(self, template=(*parts, ',"time":', Slot.TIME, end))

    def fill(self, facts: EpochFacts) -> Template:
        """Return the template with the shared values of the epoch; slots remain."""
        texts: dict[str, str] = {
            "@job@": json.dumps(facts.job),
            "@topic@": json.dumps(facts.topic),
            "@epoch@": str(facts.epoch),
            "@event_ms@": str(facts.event_ms),
            "@commit_ms@": str(facts.commit_ms),
            "@keys@": json.dumps(facts.key_columns, ensure_ascii=False),
        }
        if not self.avro:
            return tuple(
                part if type(part) is not str else _replace_marks(part, texts)
                for part in self.template
            )
        shared = {
            "@schema@": encode_header(facts.schema),
            "@job@": encode_text(facts.job),
            "@topic@": encode_text(facts.topic),
            "@epoch@": encode_long(facts.epoch),
            "@event_ms@": encode_long(facts.event_ms),
            "@commit_ms@": encode_long(facts.commit_ms),
        }
        return tuple(
            part if isinstance(part, bytes) else shared.get(part, part) for part in self.template
        )

    @property
    def cleanup_policy(self) -> str:
        """The cleanup.policy of the topic; only a topic of latest rows may be compacted."""
        return "compact" if self.tombstone else "delete"


def _replace_marks(text: str, shared: Mapping[str, str]) -> str:
    for mark, value in shared.items():
        text = text.replace(mark, value)
    return text


_OPS = {op: op.value for op in Op}
_CANAL = {Op.INSERT: "INSERT", Op.UPDATE_AFTER: "UPDATE", Op.DELETE: "DELETE"}
_DEBEZIUM = {Op.INSERT: "c", Op.UPDATE_AFTER: "u", Op.DELETE: "d"}

CHANGELOG_JSON = PublishFormat(
    name="changelog-json",
    words=_OPS,
    template=('{"op":"', Slot.WORD, '","row":', Slot.ROW, ',"epoch":@epoch@,"seq":', Slot.SEQ, "}"),
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
AVRO = PublishFormat(
    name="avro",
    words={op: encode_text(word) for op, word in _OPS.items()},
    template=("@schema@", Slot.WORD, Slot.ROW, "@epoch@", Slot.SEQ, Slot.TIME),
    paired=False,
    avro=True,
)
DEBEZIUM_AVRO = PublishFormat(
    name="debezium-avro",
    words={op: encode_text(word) for op, word in _DEBEZIUM.items()},
    template=(
        "@schema@",
        Slot.BEFORE,
        Slot.AFTER,
        *(encode_text("retally"), "@job@", "@job@", "@topic@", "@event_ms@", "@epoch@", Slot.SEQ),
        Slot.WORD,
        "@commit_ms@",
    ),
    paired=True,
    avro=True,
)
UPSERT_AVRO = PublishFormat(
    name="upsert-avro",
    words=_OPS,
    template=("@schema@", Slot.ROW),
    paired=True,
    tombstone=True,
    avro=True,
)
FORMATS = {
    each.name: each
    for each in (
        *(CHANGELOG_JSON, CANAL_JSON, DEBEZIUM_JSON, UPSERT_JSON),
        *(AVRO, DEBEZIUM_AVRO, UPSERT_AVRO),
    )
}


def object_template(columns: tuple[str, ...]) -> tuple[str | int, ...]:
    """Return a JSON object as literal texts, and the number of a column for its value."""
    if not columns:
        return ("{}",)
    parts: list[str | int] = []
    for number, name in enumerate(columns):
        parts.append(("{" if number == 0 else ",") + member(name))
        parts.append(number)
    return (*parts, "}")


def member(name: str) -> str:
    """Return the text before the value of a column in a JSON object."""
    return json.dumps(name, ensure_ascii=False) + ":"
