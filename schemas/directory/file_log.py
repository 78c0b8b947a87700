"""The log of a source directory: its files in the order in which jobs read them.

    {"id": .., "path": ..}                               the identity, as of a topic
    [name, size, modified_us, start, [[size, lines, crc], ..]]      a file, in pieces of whole lines

The lines of all files are numbered through; these are the offsets of the one partition that the
directory is to a job. A log only grows, so an offset always means the same line. All jobs of a data
directory share the log of a path.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import msgspec


class LogHead(msgspec.Struct, frozen=True):
    """The first line of a log."""

    id: str
    path: str


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Some whole lines of a file, which are read together."""

    size: int
    lines: int
    crc: int


class LoggedFile(msgspec.Struct, frozen=True, array_like=True):
    """One file: what it was when it was logged, and where its lines are."""

    name: str
    size: int
    modified_us: int
    start: int  # of the first row
    pieces: tuple[Piece, ...]

    @property
    def lines(self) -> int:
        return sum(piece.lines for piece in self.pieces)


def file_log_path(data: Path, directory: str, *, header: bool) -> Path:
    """Return the path of a log; without its header lines a directory has other offsets."""
    known = sha256(f"{directory} {header}".encode()).hexdigest()
    return data / "files" / f"{known[:16]}.log"


def read_file_log(path: Path, at: int = 0) -> tuple[LogHead | None, list[LoggedFile], int]:
    """Return the head and the files from byte `at` on, and where the next one will begin.

    The last line is left out while it is being written."""
    try:
        with path.open("rb") as opened:
            opened.seek(at)
            text = opened.read()
    except FileNotFoundError:
        return None, [], 0
    lines = text[: text.rfind(b"\n") + 1].splitlines()
    head = msgspec.json.decode(lines.pop(0), type=LogHead) if at == 0 and lines else None
    files = [msgspec.json.decode(line, type=LoggedFile) for line in lines]
    return head, files, at + text.rfind(b"\n") + 1
