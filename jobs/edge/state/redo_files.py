"""Keep the changes of an epoch that may be committed in a file beside a bucket's state.

    redo    checksum of the rest │ length of the name │ name │ changes

The file is overwritten in place by each epoch: one call, where a file for each epoch takes a dozen,
and an epoch of a second has 32 buckets. A file that is not whole has no changes.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

_FILE = "redo"
_WORD = 8


def store_redo(directory: Path, name: str, data: bytes) -> None:
    """Store one epoch's changes, in place of those of any other epoch."""
    head = name.encode()
    rest = len(head).to_bytes(_WORD, "little") + head + data
    content = _check(rest) + rest
    file = os.open(f"{directory}/{_FILE}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        written = 0
        while written < len(content):
            written += os.write(file, memoryview(content)[written:])
        os.ftruncate(file, written)
    finally:
        os.close(file)


def find_redo(directory: Path, name: str) -> bytes | None:
    """Return the changes of this name; None if they are not here, or not whole."""
    try:
        with open(f"{directory}/{_FILE}", "rb", buffering=0) as file:
            content = file.read()
    except FileNotFoundError:
        return None
    head = name.encode()
    prefix = len(head).to_bytes(_WORD, "little") + head
    if not content.startswith(prefix, _WORD) or content[:_WORD] != _check(content[_WORD:]):
        return None
    return content[_WORD + len(prefix) :]


def _check(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(_WORD, "little")
