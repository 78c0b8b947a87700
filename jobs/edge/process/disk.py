"""Disk: what an error says about a file system, whoever raised it.

    anything raised ──► the kernel's own words in it, or in what caused it
                           └─► DiskRefused: which file system, what it does, what to do

Python, Arrow, LMDB, delta-rs, Spark and the JVM wrap the kernel's errors each in its own way, and
some name no file. Their words are the same everywhere, and a look at the places that a job writes
to says which of them it was.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from schemas.limits import REASON_CHARACTERS_MAX

_CAUSES_MAX = 10
_ORNAMENTS = re.compile("\x1b\\[[0-9;]*m|↳")
_WORDS_MAX = REASON_CHARACTERS_MAX // 2
_MIB = 1 << 20
# A hot state is never synced: it trusts that a file is what was written while the machine is up.
_LOST = "and delete the job's part of DIR/cache, for what was not written out by then is lost"


class DiskRefused(Exception):
    """A disk that is full, read-only or broken; the job goes on where it was once it is not."""


def disk_refused(error: BaseException, places: Sequence[Path]) -> DiskRefused | None:
    """What an error says about the disk under one of these places; None if it is about another
    thing."""
    for words in _lines(error):
        for said, explained in _EXPLAINED.items():
            if said in words:
                what, advice = explained(places)
                return DiskRefused(f"the disk of {what}: {words[-_WORDS_MAX:]}; {advice}")
    return None


def room_in(place: Path) -> int:
    """Free bytes of the file system that a place is on, or will be."""
    status = _status(place)
    return status.f_bavail * status.f_frsize


def _full(places: Sequence[Path]) -> tuple[str, str]:
    place = min(places, key=room_in)
    status = _status(place)
    free, total = room_in(place) / _MIB, status.f_blocks * status.f_frsize / _MIB
    what = f"{place} is full ({free:.1f} of {total:.1f} MiB are free by now)"
    return what, "make room, and the job goes on where it was"


def _read_only(places: Sequence[Path]) -> tuple[str, str]:
    found = [place for place in places if _status(place).f_flag & os.ST_RDONLY]
    return f"{_named(found or places)} is read-only", f"mount it again, {_LOST}"


def _broken(places: Sequence[Path]) -> tuple[str, str]:
    return f"{_named(places)} fails", f"see what the kernel says of it, mend it, {_LOST}"


def _named(places: Sequence[Path]) -> str:
    """One place of each disk."""
    disks = {_status(place).f_fsid: place for place in reversed(places)}
    return " or ".join(str(disks[fsid]) for fsid in reversed(disks))


_EXPLAINED: dict[str, Callable[[Sequence[Path]], tuple[str, str]]] = {
    os.strerror(errno.ENOSPC): _full,
    os.strerror(errno.EDQUOT): _full,
    os.strerror(errno.EROFS): _read_only,
    os.strerror(errno.EIO): _broken,
}


def _lines(error: BaseException) -> Iterator[str]:
    """All lines of an error and of what caused it; the last one of each says what it was. delta-rs
    colours its own."""
    told: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if told is None:
            return
        yield from (_ORNAMENTS.sub("", line).strip() for line in reversed(str(told).splitlines()))
        told = told.__cause__ or told.__context__


def _status(place: Path) -> os.statvfs_result:
    while True:
        try:
            return os.statvfs(place)
        except FileNotFoundError:
            place = place.parent
