"""The changelog as published: what a record of the sink topic holds, and how it is keyed.

    committed changelog row ──► key    {"name": "a"}                 group columns, in order
                            ──► value  {"op","row","epoch","seq","time"}  (format changelog-json)
                            ──► headers epoch, seq                   (every format)

A consumer that folds the records per key has the current results; one that reads a topic written
at least once drops what is not above the last (epoch, seq) it has seen in that partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

SinkFormat = Literal["changelog-json", "canal-json", "debezium-json", "upsert-json"]
SourceFormat = Literal[
    "canal-json", "changelog-json", "debezium-json", "maxwell-json", "upsert-json"
]
OpText = Literal["+I", "-U", "+U", "-D"]

# Values as JSON has them. Decimals, and whole numbers beyond 2^53 where a reader asks for it, are
# strings already; so are NaN and the infinities, which JSON does not have.
JsonValue = bool | int | float | str | None

EPOCH_HEADER = "epoch"
SEQ_HEADER = "seq"
PROGRESS_SUFFIX = "-progress"


class ChangelogRecord(
    msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True
):
    """The value of a `changelog-json` record: one changelog row. -U stands directly before its
    +U; `seq` orders the rows of an epoch and is unique in it, not dense. A row of a window has a
    time, the window's last millisecond."""

    op: OpText
    row: dict[str, JsonValue]
    epoch: int
    seq: int
    time: int | None = None

    def encode(self) -> bytes:
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> ChangelogRecord:
        """Read a published value; msgspec.DecodeError names the field that is wrong."""
        return _DECODER.decode(value)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(ChangelogRecord)


def record_key(group: Mapping[str, JsonValue]) -> bytes:
    """The key of a group's records: its columns in the query's order, `{}` without GROUP BY.

    The record's partition is Java's: (murmur2(key) & 0x7fffffff) % partitions. librdkafka's own
    default is another hash, so whoever publishes sends the partition explicitly.
    """
    return _ENCODER.encode(dict(group))


def progress_topic(topic: str) -> str:
    """The compacted topic beside the changelog that says how far it has been published."""
    return topic + PROGRESS_SUFFIX
