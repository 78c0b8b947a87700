"""Check the parts of an LMDB file that LMDB trusts without checking.

LMDB maps its files into memory. So a truncated file kills a process that reads it, and a full disk
kills a process that writes. `is_sound` reads four pages before LMDB does. `make_room` allocates
the space before a write to the map needs it.
"""

from __future__ import annotations

import os
import struct
from operator import itemgetter
from pathlib import Path

_LOCK_BYTES = 8 * 1024  # for 126 readers, LMDB's default
_META_PAGES = 2
_MAGIC = 0xBEEFC0DE
_DATA_VERSION = 1
_NO_PAGE = (1 << 64) - 1
_PAGE_HEADER = struct.Struct("=QHHHH")  # number, pad, flags, bounds of the free space
_ROOT_FLAGS = (0x01, 0x02)  # a branch, a leaf
# Magic, version, address, map size; two databases; the last page and the transaction.
_META = struct.Struct("=IIQQ" + 2 * "IHHQQQQQ" + "QQ")


def make_room(lock: Path) -> None:
    """Allocate the lock file, which LMDB writes only through its map."""
    with lock.open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, _LOCK_BYTES)


def is_sound(path: Path) -> bool:
    """Return whether a data file has two meta pages, the length they name, and valid roots.

    LMDB may count a last page that it took and gave back unwritten. Then a sound state is rebuilt,
    which only costs time.
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
