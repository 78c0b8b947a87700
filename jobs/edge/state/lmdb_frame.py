"""The frame of an LMDB file: what LMDB trusts without looking.

LMDB maps its files into memory, so that one which was cut short kills the process that reads it, as
does one without room the process that writes. `sound` reads four pages before LMDB does, and
`make_room` asks for what a write to a map cannot be refused.
"""

from __future__ import annotations

import os
import struct
from operator import itemgetter
from pathlib import Path

_LOCK_BYTES = 8 * 1024  # for 126 readers, which is what LMDB takes by itself
_META_PAGES = 2
_MAGIC = 0xBEEFC0DE
_DATA_VERSION = 1
_NO_PAGE = (1 << 64) - 1
_PAGE_HEADER = struct.Struct("=QHHHH")  # number, pad, flags, bounds of the free space
_ROOT_FLAGS = (0x01, 0x02)  # a branch, a leaf
# Magic, version, address, map size; two databases; the last page and the transaction.
_META = struct.Struct("=IIQQ" + 2 * "IHHQQQQQ" + "QQ")


def make_room(lock: Path) -> None:
    """For the file of locks, which LMDB writes through its map only."""
    with lock.open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, _LOCK_BYTES)


def sound(path: Path) -> bool:
    """Whether a data file has the frame that LMDB trusts without looking: both meta pages, the
    length they speak of, and roots that are pages. Reads four pages.

    LMDB may count a last page that it took and gave back unwritten; then a sound state is built
    again, which costs time only.
    """
    with path.open("rb") as file:
        try:
            first = _META.unpack(file.read(_PAGE_HEADER.size + _META.size)[_PAGE_HEADER.size :])
            page_bytes = first[4]
            file.seek(page_bytes + _PAGE_HEADER.size)
            metas = [first, _META.unpack(file.read(_META.size))]
        except (struct.error, ValueError):
            return False
        if any(meta[:2] != (_MAGIC, _DATA_VERSION) or meta[4] != page_bytes for meta in metas):
            return False
        newest = max(metas, key=itemgetter(-1))
        last_page = newest[-2]
        if page_bytes == 0 or os.fstat(file.fileno()).st_size < (last_page + 1) * page_bytes:
            return False
        for root in (newest[11], newest[19]):
            if root == _NO_PAGE:
                continue
            if not _META_PAGES <= root <= last_page:
                return False
            file.seek(root * page_bytes)
            number, _, flags, _, _ = _PAGE_HEADER.unpack(file.read(_PAGE_HEADER.size))
            if number != root or flags not in _ROOT_FLAGS:
                return False
    return True
