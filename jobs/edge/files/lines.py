"""Find the lines of a file, in pieces that a task reads as one.

block │ a line\n another\n a th│  block │ird\n ...      a piece ends with the last line of its block
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from schemas.directory.file_log import Piece
from schemas.limits import FILE_PIECE_BYTES
from schemas.table.object_path import TablePath, table_path

_END = b"\n"
# A piece is less than one block and the beginning of its first line; of a longer line it is all
# that is read.
READ_BYTES_MAX = 2 * FILE_PIECE_BYTES


class FileUnreadable(Exception):
    """The file is gone, or is not the one that was logged."""


class LinePiece(NamedTuple):
    """A piece of a file, as a task reads it."""

    path: str  # of the directory
    name: str
    modified_us: int
    first: int  # the offset of its first line
    line: int  # the number of this line in the file
    start: int  # its first byte
    size: int
    lines: int
    crc: int

    @property
    def end(self) -> int:
        return self.first + self.lines

    def read(self) -> bytes:
        """Return the bytes; raise FileUnreadable unless they are those that were logged."""
        place = f"{self.path}/{self.name}"
        try:
            with open_file(table_path(self.path) / self.name) as opened:
                found = bytes(opened.read_at(min(self.size, READ_BYTES_MAX), self.start))
        except FileNotFoundError:
            raise FileUnreadable(
                f"{place} is gone, but the job has not read it to its end; put it back, or start "
                "a new job"
            ) from None
        if zlib.crc32(found) != self.crc:
            raise FileUnreadable(f"{place} {CHANGED}")
        return found


CHANGED = (
    "has changed since it was first seen; a file is read once, so put the old one back and write "
    "new lines to a new file, under another name until it is complete"
)


def open_file(path: TablePath) -> Any:
    """Open a file for Arrow's reads at a position."""
    return pa.OSFile(str(path)) if isinstance(path, Path) else path.source()


def find_pieces(opened: Any, start: int) -> tuple[Piece, ...]:
    """Return the pieces of a file from the byte `start` of a line on."""
    found: list[Piece] = []
    opened.seek(start)
    held, size = b"", 0  # the beginning of an unfinished line, and how long it is already

    def add(lines: bytes, length: int) -> None:
        count = lines.count(_END) if lines.endswith(_END) and length == len(lines) else 1
        found.append(Piece(length, count, zlib.crc32(lines)))

    while block := bytes(opened.read(FILE_PIECE_BYTES)):
        end = block.find(_END) if size > FILE_PIECE_BYTES else block.rfind(_END)
        if end >= 0:
            add((held + block[: end + 1])[:READ_BYTES_MAX], size + end + 1)
            block, held, size = block[end + 1 :], b"", 0
            end = block.rfind(_END)  # of what follows a line of several blocks
            if end >= 0:
                add(block[: end + 1], end + 1)
                block = block[end + 1 :]
        held, size = (held + block)[:READ_BYTES_MAX], size + len(block)
    if size:
        add(held, size)
    return tuple(found)


def find_header_end(opened: Any) -> int:
    """Return the first byte after the first line."""
    at = 0
    while block := bytes(opened.read(FILE_PIECE_BYTES)):
        end = block.find(_END)
        if end >= 0:
            return at + end + 1
        at += len(block)
    return at
