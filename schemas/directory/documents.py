"""Small files that one process replaces and others read at any time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

Document = TypeVar("Document")


def replace_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace a file atomically; only its owner may read it. With `durable`, sync it first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)


def write_document(path: Path, document: object) -> None:
    """Replace a file by a document as JSON."""
    replace_file(path, msgspec.json.encode(document))


def read_document(path: Path, kind: type[Document]) -> Document | None:
    """Return the document in a file; None if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, ValueError):
        return None
