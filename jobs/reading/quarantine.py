"""The quarantine of a job: messages that were refused, with the reason and their bytes.

    positions, reasons of all rows ──► the rows of the page ──► their bytes, a few rows at once

A merged file may have more bytes than the memory of the service, so they are read for a page only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from jobs.reading.files import LiveFile
from jobs.reading.parts import QUARANTINE
from jobs.reading.version import TableVersion
from schemas.directory.quarantine import MessagePosition, Quarantined, QuarantineRow, UnknownMessage
from schemas.limits import QUARANTINE_PREVIEW_BYTES, QUARANTINE_RAW_ROWS, QUARANTINE_SCAN_ROWS
from schemas.types.arrow_values import to_list

Shown = TypeVar("Shown")
_POSITION = ("epoch", "topic", "partition", "offset")
_DESCRIBED = (*_POSITION, "reason", "path")
_ALL = (*_DESCRIBED, "time", "raw", "raw_bytes", "quarantine_code", "quarantine_source")
_ELLIPSIS = "\u2026"
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NUMBER = re.compile(r"(?<![\w.-])\d+(?![\w.])")


def list_messages(
    table: TableVersion,
    after: MessagePosition | None,
    limit: int,
    matches: Callable[[QuarantineRow], bool] = lambda _: True,
    *,
    newest_first: bool = False,
    by_bytes: bool = False,
    bytes_max: int | None = QUARANTINE_PREVIEW_BYTES,
) -> list[Quarantined]:
    """Return matching messages after a position, in the order, each with its first bytes.

    `matches` gets position, reason and path; with `by_bytes`, also the bytes as `raw`.
    """
    columns = (*_DESCRIBED, "raw") if by_bytes else _DESCRIBED
    sign = -1 if newest_first else 1

    def find_ends(file: LiveFile) -> list[int]:
        return sorted((sign * file.epoch_min, sign * file.epoch_max))

    found: list[_Found] = []
    for file in sorted(table.of_part(QUARANTINE), key=find_ends):
        first, last = find_ends(file)
        if after is not None and last < sign * after[0]:
            continue
        if len(found) >= limit and first > sign * found[limit - 1].position[0]:
            break
        for rows in _scan(table, file, columns):
            for row in rows:
                is_next = after is None or (
                    row.position < after if newest_first else row.position > after
                )
                if is_next and matches(row):
                    found.append(_Found(row.position, file))
            found.sort(key=lambda each: each.position, reverse=newest_first)
            del found[limit:]
    return _read_rows(table, found, lambda row: Quarantined.of(row, bytes_max))


def summarize_reason(reason: str) -> str:
    """Return a reason without the values of its message, so that equal causes are equal texts."""
    return _NUMBER.sub("N", _QUOTED.sub(f"'{_ELLIPSIS}'", reason))


def count_reasons(table: TableVersion) -> Counter[str]:
    """Count all messages by their summarized reasons."""
    counts: Counter[str] = Counter()
    for file in table.of_part(QUARANTINE):
        for rows in table.batches(file, ["reason"], QUARANTINE_SCAN_ROWS):
            counts.update(to_list(rows["reason"]))
    found: Counter[str] = Counter()
    for reason, count in counts.items():
        found[summarize_reason(reason)] += count
    return found


def read_message(table: TableVersion, position: MessagePosition) -> Quarantined:
    """Return one message with all of its stored bytes; raise UnknownMessage if there is none."""
    return Quarantined.of(find_row(table, position)[0])


def find_row(table: TableVersion, position: MessagePosition) -> tuple[QuarantineRow, LiveFile]:
    """Return the row of a message, and its file; raise UnknownMessage if there is none."""
    for file in table.of_part(QUARANTINE, position[0] - 1):
        if file.epoch_min > position[0]:
            continue
        for rows in _scan(table, file, _POSITION):
            if any(row.position == position for row in rows):
                return _read_rows(table, [_Found(position, file)], lambda row: row)[0], file
    raise UnknownMessage


class _Found(NamedTuple):
    """A message of a page, and the file that has its bytes."""

    position: MessagePosition
    file: LiveFile


def _scan(
    table: TableVersion, file: LiveFile, columns: Sequence[str]
) -> Iterator[list[QuarantineRow]]:
    """Yield these columns of all rows of a file, some rows at once."""
    rows = QUARANTINE_RAW_ROWS if "raw" in columns else QUARANTINE_SCAN_ROWS
    for batch in table.batches(file, columns, rows):
        yield _parse_rows(batch)


def _read_rows(
    table: TableVersion, found: Sequence[_Found], convert: Callable[[QuarantineRow], Shown]
) -> list[Shown]:
    """Return the rows of messages in their order, each converted at once, as it may be long."""
    wanted: dict[str, list[_Found]] = {}
    for each in found:
        wanted.setdefault(each.file.path, []).append(each)
    documents: dict[MessagePosition, list[Shown]] = {}  # several sources may refuse one
    for mine in wanted.values():
        left = Counter(each.position for each in mine)
        for batch in table.batches(mine[0].file, _ALL, QUARANTINE_RAW_ROWS):
            for number, row in enumerate(_parse_rows(batch.select(list(_POSITION)))):
                if left[row.position]:
                    (shown,) = _parse_rows(batch.slice(number, 1))
                    documents.setdefault(row.position, []).append(convert(shown))
                    left[row.position] -= 1
            if not left.total():
                break  # the rest of the file would be read for nothing
    return [documents[each.position].pop(0) for each in found]


def _parse_rows(table: pa.Table) -> list[QuarantineRow]:
    return msgspec.convert(table.to_pylist(), list[QuarantineRow])
