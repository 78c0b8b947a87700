"""Read ranges of a source directory: each line is a record, with the time of its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from jobs.core.kernels.json_bytes import PAD
from jobs.edge.files.lines import FileUnreadable, LinePiece
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.range_consumer import RangeUnreadable
from jobs.edge.kafka.records import Records

_LINE_END = ord("\n")


def read_file_ranges(
    pieces: Sequence[LinePiece], ranges: Sequence[OffsetRange]
) -> Iterator[tuple[OffsetRange, Records]]:
    """Yield the lines of each range in order, some at a time."""
    for planned in ranges:
        for piece in pieces:
            first, last = max(planned.start, piece.first), min(planned.end, piece.end)
            if piece.path == planned.topic and first < last:
                yield planned, read_piece(piece).between(first - piece.first, last - piece.first)


def read_piece(piece: LinePiece) -> Records:
    """Return the lines of a piece; an empty line has no value."""
    try:
        text = piece.read()
    except FileUnreadable as why:
        raise RangeUnreadable(str(why)) from None
    read = len(text)
    if b"\r\n" in text:
        text = text.replace(b"\r\n", b"\n")
    if not text.endswith(b"\n"):  # the last line of a file, or one that is too long
        text += b"\n"
    buffer = np.frombuffer(bytearray(text + bytes(PAD)), np.uint8)
    ends = np.flatnonzero(buffer == _LINE_END)
    buffer[ends] = 0  # as between the values of records
    count, starts = len(ends), np.concatenate([[0], ends + 1]).astype(np.int64)
    sizes = np.diff(starts) - 1
    whole = piece.size - 1 if piece.lines == 1 and piece.size > read else None
    return Records(
        buffer,
        starts,
        np.zeros(0, np.uint8),
        np.zeros(count + 1, np.int64),
        np.arange(piece.first, piece.end),
        np.full(count, piece.modified_us // 1_000),
        sizes > 0,
        np.zeros(count, bool),
        sizes if whole is None else np.array([whole]),
    )


def locate_line(pieces: Sequence[LinePiece], path: str, offset: int) -> str:
    """Return the file and the line of an offset, as the beginning of a sentence; "" of a topic."""
    for each in pieces:
        if each.path == path and each.first <= offset < each.end:
            return f"{each.name} line {each.line + offset - each.first}: "
    return ""
