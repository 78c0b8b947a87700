"""Keep small files beside a bucket's state, each overwritten in place.

    redo, rows    checksum of the rest │ length of the name │ name │ content

`redo` has the changes of an epoch that may be committed. Overwriting is one call, where a file for
each epoch takes a dozen, and an epoch of a second has 32 buckets; to replace a file by another one
makes file systems write its content to the disk first. A file that is not whole has no content.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pyarrow as pa

_FILE = "redo"
_WORD = 8


def store_redo(directory: Path, name: str, data: bytes | pa.Buffer) -> None:
    """Store one epoch's changes, in place of those of any other epoch."""
    store_checked(f"{directory}/{_FILE}", name, data)


def find_redo(directory: Path, name: str) -> bytes | None:
    """Return the changes of this name; None if they are not here, or not whole."""
    return find_checked(f"{directory}/{_FILE}", name)


def store_checked(path: str, name: str, data: bytes | pa.Buffer) -> None:
    """Store content under a name, in place of what the file has."""
    head = name.encode()
    rest = b"".join([len(head).to_bytes(_WORD, "little"), head, data])
    content = _check(rest) + rest
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        written = 0
        while written < len(content):
            written += os.write(file, memoryview(content)[written:])
        os.ftruncate(file, written)
    finally:
        os.close(file)


def find_checked(path: str, name: str) -> bytes | None:
    """Return the content of this name; None if it is not here, or not whole."""
    try:
        with open(path, "rb", buffering=0) as file:
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
