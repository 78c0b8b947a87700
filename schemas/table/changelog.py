"""The published changelog: the key, value and headers of a record in the sink topic.

    committed changelog row ──► key    {"name": "a"}                 group columns, in order
                            ──► value  {"op","row","epoch","seq","time"}  (changelog-json, avro)
                            ──► headers epoch, seq                   (every format)

Fold the records by key to get the current results. If the topic is written at least once, drop
records that are not above the last (epoch, seq) of their partition.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SinkFormat = Literal[
    "changelog-json",
    "canal-json",
    "debezium-json",
    "upsert-json",
    "avro",
    "debezium-avro",
    "upsert-avro",
]
SINKS_OF_REGISTRY = ("avro", "debezium-avro", "upsert-avro")

OpText = Literal["+I", "-U", "+U", "-D"]

# A JSON value. Decimals are strings, and so are NaN and the infinities, which JSON does not have.
# Responses of the service also have whole numbers beyond 2^53 as strings.
JsonValue = bool | int | float | str | None

EPOCH_HEADER = "epoch"
SEQ_HEADER = "seq"
PROGRESS_SUFFIX = "-progress"
SHARES_SUFFIX = "-shares"


class ChangelogRecord(
    msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True
):
    """The value of a `changelog-json` record: one changelog row.

    A -U is directly before its +U. `seq` orders the rows of an epoch; it is unique, with gaps. The
    time of a window's row is the last millisecond of the window.
    """

    op: OpText
    row: dict[str, JsonValue]
    epoch: int
    seq: int
    time: int | None = None

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> ChangelogRecord:
        """Decode a published value; raise msgspec.DecodeError, which names the wrong field."""
        return _DECODER.decode(value)


_DECODER = msgspec.json.Decoder(ChangelogRecord)


def progress_topic(topic: str) -> str:
    """Return the name of the compacted topic with the publisher's progress."""
    return topic + PROGRESS_SUFFIX


def shares_topic(topic: str) -> str:
    """Return the name of the compacted topic with the progress of further publishers."""
    return topic + SHARES_SUFFIX


def topics_of_sink(topic: str) -> list[str]:
    """Return the topics that a sink writes; the last one only with several publishers."""
    return [topic, progress_topic(topic), shares_topic(topic)]
