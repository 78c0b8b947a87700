"""Log the files of a source directory, and find the lines of offsets in them.

    list the directory ─► new files by time and name ─► find their lines ─► append to the log
                                                                     │ synced, before a job reads
    offsets of an epoch ─► the pieces of files that tasks read ◄─────┘

The log decides the order once for all jobs of the data directory, so a start after a kill reads the
same lines at the same offsets.
"""

from __future__ import annotations

import fcntl
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import msgspec

from jobs.edge.files.allowed import require_allowed
from jobs.edge.files.lines import CHANGED, LinePiece, find_header_end, find_pieces, open_file
from schemas.directory.file_log import LoggedFile, LogHead, file_log_path, read_file_log
from schemas.failures.catalogue import CodedError
from schemas.spec.job import JobSpec
from schemas.spec.source import Files
from schemas.table.object_path import ObjectPath, TablePath, table_path

_HIDDEN = (".", "_")  # as writers name files that are not complete


class FilesChanged(CodedError, code="source-changed"):
    """A logged file has other bytes now."""


class DirectoryMissing(LookupError):
    """The directory does not exist; it may be mounted later."""


class _Listed(msgspec.Struct, frozen=True, order=True):
    modified_us: int
    name: str
    size: int


@dataclass(slots=True)
class FileLog:
    """The log of one directory, as of the last `refresh` or `notice`."""

    files: Files
    place: Path  # of the log itself
    id: str = ""
    end: int = 0  # the offset after the last line
    _logged: list[LoggedFile] = field(default_factory=list)
    _firsts: list[int] = field(default_factory=list)  # the offset of the first line of each file
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)  # and times, by name
    _bytes: int = 0  # of the log, that are read

    @classmethod
    def open(cls, data: Path, files: Files) -> FileLog:
        """Open the log of a data directory; raise FilesRefused."""
        require_allowed("source.files.path", files.path)
        log = cls(files, file_log_path(data, files.path, header=files.header))
        with log._lock():
            pass
        return log

    @property
    def directory(self) -> TablePath:
        return table_path(self.files.path)

    def refresh(self) -> None:
        """Read what other processes have logged since."""
        head, files, self._bytes = read_file_log(self.place, self._bytes)
        if head is not None:
            self.id = head.id
        for each in files:
            self._logged.append(each)
            self._firsts.append(self.end)
            self._sizes[each.name] = (each.size, each.modified_us)
            self.end += each.lines

    def notice(self, lines_max: int | None = None) -> bool:
        """Log new files until they have `lines_max` lines; return whether these are all files.

        Raise FilesChanged if a logged file is not what it was."""
        listed = sorted(self._list())
        if all(self._is_known(each) for each in listed):
            return True
        with self._lock() as opened:
            goal = None if lines_max is None else self.end + lines_max
            for each in listed:
                if goal is not None and self.end >= goal:
                    return False
                if not self._is_known(each) and (found := self._index(each)) is not None:
                    self._append(opened, found)
        return True

    def offset_at(self, timestamp_ms: int) -> int:
        """Return the first offset of the first file that is not older; the end if all are."""
        for at, each in zip(self._firsts, self._logged, strict=True):
            if each.modified_us >= timestamp_ms * 1_000:
                return at
        return self.end

    def locate(self, end: int) -> str:
        """Return the last line before an offset, by file and number; "" before the first line."""
        if not end:
            return ""
        number = bisect_right(self._firsts, end - 1) - 1
        line = end - self._firsts[number] + self.files.header
        return f"{self._logged[number].name} line {line}"

    def find_pieces(self, start: int, end: int) -> Iterator[LinePiece]:
        """Yield the pieces of files that have lines of these offsets."""
        number = max(0, bisect_right(self._firsts, start) - 1)
        while number < len(self._logged) and self._firsts[number] < end:
            of, first = self._logged[number], self._firsts[number]
            line, at = 1 + self.files.header, of.start
            for size, lines, crc in map(msgspec.structs.astuple, of.pieces):
                if first < end and start < first + lines:
                    place = self.files.path, of.name, of.modified_us
                    yield LinePiece(*place, first, line, at, size, lines, crc)
                first, line, at = first + lines, line + lines, at + size
            number += 1

    def _list(self) -> Iterator[_Listed]:
        if isinstance(self.directory, Path) and not self.directory.is_dir():
            raise DirectoryMissing(f"there is no directory {self.files.path}; create or mount it")
        for path in self.directory.glob("*"):
            if not path.name.isprintable():  # bytes that are no UTF-8 among others
                raise FilesChanged(f"the name of {path!a} cannot be logged; rename the file")
            if path.name and not path.name.startswith(_HIDDEN) and _is_file(path):
                with suppress(FileNotFoundError):  # removed meanwhile
                    yield _describe(path)

    def _is_known(self, found: _Listed) -> bool:
        return self._sizes.get(found.name) == (found.size, found.modified_us)

    def _index(self, listed: _Listed) -> LoggedFile | None:
        """Return a new file; None while it is being written, or if it has only another time."""
        path = self.directory / listed.name
        try:
            with open_file(path) as opened:
                start = find_header_end(opened) if self.files.header else 0
                pieces = find_pieces(opened, start)
            if _describe(path) != listed:
                return None
        except FileNotFoundError:
            return None
        found = LoggedFile(listed.name, listed.size, listed.modified_us, start, pieces)
        if listed.name not in self._sizes:
            return found
        (known,) = (each for each in self._logged if each.name == listed.name)
        if (known.size, known.pieces) != (found.size, found.pieces):
            raise FilesChanged(f"{path} {CHANGED}")
        self._sizes[listed.name] = (listed.size, listed.modified_us)
        return None

    def _append(self, opened: int, found: msgspec.Struct) -> None:
        """Add a line to the log and read it; a job may only read what is on the disk."""
        os.pwrite(opened, msgspec.json.encode(found) + b"\n", self._bytes)
        os.fsync(opened)
        self.refresh()

    @contextmanager
    def _lock(self) -> Iterator[int]:
        """Yield the log, to which no other process adds; without what a kill has left of a line."""
        self.place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(self.place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)
            if os.fstat(opened).st_size < self._bytes:
                raise FilesChanged(f"{self.place} was replaced while a job read it; put it back")
            self.refresh()
            os.ftruncate(opened, self._bytes)
            if not self._bytes:
                self._append(opened, LogHead(uuid4().hex, self.files.path))
            yield opened
        finally:
            os.close(opened)


def open_file_logs(data: Path, spec: JobSpec) -> dict[str, FileLog]:
    """Return the log of each directory that a job reads, by its path."""
    sources = (alone.source.files for alone in spec.source_specs.values())
    return {each.path: FileLog.open(data, each) for each in sources if each is not None}


def _is_file(path: TablePath) -> bool:
    return isinstance(path, ObjectPath) or path.is_file()


def _describe(path: TablePath) -> _Listed:
    stat = path.stat()
    return _Listed(round(stat.st_mtime * 1e6), path.name, stat.st_size)


def pieces_of(
    logs: Mapping[str, FileLog], ranges: Iterable[tuple[str, int, int]]
) -> tuple[LinePiece, ...]:
    """Return what tasks read for these ranges: directory, first offset, end."""
    return tuple(piece for path, *at in ranges for piece in logs[path].find_pieces(*at))
