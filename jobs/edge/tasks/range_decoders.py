"""The decoders of a process: made once for the rules of a topic and the columns of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.formats.scanned import Scanner
from jobs.core.job.time_rules import TimeRules
from jobs.core.plan.tree import Column
from jobs.core.values.change import Decoded
from jobs.edge.kafka.records import Record, Records


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The rules for reading the records of one topic."""

    messages: MessageRules
    times: TimeRules

    def row(self, used: tuple[Column, ...]) -> tuple[Column, ...]:
        """Return the columns of a row: the used ones, then those of marks and of the time."""
        return (*used, *self.times.columns)


@lru_cache(maxsize=8)
def decoder_of(
    rules: TopicRules, columns: tuple[Column, ...], used: tuple[Column, ...]
) -> MessageDecoder:
    return rules.messages.decoder(columns, rules.row(used))


@lru_cache(maxsize=8)
def scanner_of(
    rules: TopicRules, columns: tuple[Column, ...], used: tuple[Column, ...]
) -> Scanner | None:
    """Return the scanner of the source; None for a format or a type that it does not know."""
    return decoder_of(rules, columns, used).make_scanner()


def decode_each(decoder: MessageDecoder, records: Records) -> Iterator[tuple[Decoded, Record]]:
    """Decode each record, with its key if the format needs it; yield it with its record."""
    for record in records:
        yield decoder.decode(record.value, record.key), record
