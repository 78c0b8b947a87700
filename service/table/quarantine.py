"""The quarantine of a job: messages that were refused, with the reason and their bytes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from jobs.core.job import refused_message
from jobs.core.job.refused_message import MessagePosition, message_document, position_in
from jobs.table.parts import QUARANTINE
from jobs.table.version import TableVersion
from schemas.directory.replayed import read_replay
from schemas.limits import QUARANTINE_PREVIEW_BYTES
from schemas.types.arrow_values import to_list
from service.moments import format_instant
from service.paths import JobPaths
from service.problems import Problem

_ELLIPSIS = "\u2026"
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NUMBER = re.compile(r"(?<![\w.-])\d+(?![\w.])")


def parse_message_id(identity: str) -> MessagePosition:
    """Return epoch, topic, partition and offset of a message's id; raise a Problem without one."""
    position = refused_message.parse_message_id(identity)
    if position is None:
        raise _make_unknown_problem()
    return position


def add_replay(paths: JobPaths, document: dict[str, Any]) -> dict[str, Any]:
    """Return a message's document with its replay: when it was resent, and as which offset."""
    sent = read_replay(paths.replayed, document["id"])
    replayed = None
    if sent is not None:
        replayed = {
            "fixed": sent.fixed,
            "topic": sent.topic,
            "partition": sent.partition,
            "offset": sent.offset,
            "sent_at": format_instant(sent.sent_at),
        }
    return document | {"replayed": replayed}


def list_oldest_messages(
    table: TableVersion, after: MessagePosition | None, limit: int
) -> list[dict[str, Any]]:
    """Return messages after a position, oldest first, each with its first bytes."""
    found: list[dict[str, Any]] = []
    for file in table.of_part(QUARANTINE, -1 if after is None else after[0] - 1):
        if len(found) >= limit and file.epoch_min > position_in(found[limit - 1])[0]:
            break  # files are ordered by their oldest epochs
        for row in table.read(file).to_pylist():
            if after is None or position_in(row) > after:
                found.append(row)
        found.sort(key=position_in)
        del found[limit:]
    return [message_document(row, QUARANTINE_PREVIEW_BYTES) for row in found]


def summarize_reason(reason: str) -> str:
    """Return a reason without the values of its message, so that equal causes are equal texts."""
    return _NUMBER.sub("N", _QUOTED.sub(f"'{_ELLIPSIS}'", reason))


def count_reasons(table: TableVersion) -> Counter[str]:
    """Count all messages by their summarized reasons."""
    counts: Counter[str] = Counter()
    for file in table.of_part(QUARANTINE):
        counts.update(Counter(to_list(table.read(file, ["reason"])["reason"])))
    found: Counter[str] = Counter()
    for reason, count in counts.items():
        found[summarize_reason(reason)] += count
    return found


def list_newest_messages(
    table: TableVersion,
    before: MessagePosition | None,
    limit: int,
    matches: Callable[[dict[str, Any]], bool] = lambda _: True,
) -> list[dict[str, Any]]:
    """Return matching messages before a position, newest first, each with its first bytes."""
    found: list[dict[str, Any]] = []
    files = sorted(table.of_part(QUARANTINE), key=lambda file: -file.epoch_max)
    for file in files:
        if before is not None and file.epoch_min > before[0]:
            continue
        if len(found) >= limit and file.epoch_max < position_in(found[limit - 1])[0]:
            break
        for row in table.read(file).to_pylist():
            if (before is None or position_in(row) < before) and matches(row):
                found.append(row)
        found.sort(key=position_in, reverse=True)
        del found[limit:]
    return [message_document(row, QUARANTINE_PREVIEW_BYTES) for row in found]


def read_message(table: TableVersion, position: MessagePosition) -> dict[str, Any]:
    """Return one message with all of its stored bytes; raise a Problem if there is none."""
    for file in table.of_part(QUARANTINE, position[0] - 1):
        if file.epoch_min <= position[0]:
            for row in table.read(file).to_pylist():
                if position_in(row) == position:
                    return message_document(row, None)
    raise _make_unknown_problem()


def _make_unknown_problem() -> Problem:
    return Problem("not-found", 404, "the quarantine has no such message; its listing has the ids")
