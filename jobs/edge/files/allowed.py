"""Directories that jobs may read: a spec may come over HTTP, so the operator names them."""

from __future__ import annotations

import os
from pathlib import Path

from schemas.failures.catalogue import CodedError

ALLOWED = "RETALLY_FILES"


class FilesRefused(CodedError, code="spec-misfit"):
    """The operator does not allow jobs to read the directory."""


def require_allowed(key: str, path: str) -> None:
    """Raise FilesRefused unless the operator allows the path of a key, or one above it."""
    allowed = [each.strip() for each in os.environ.get(ALLOWED, "").split(",") if each.strip()]
    if not any(_is_below(path, each) for each in allowed):
        raise FilesRefused(
            f"{key} {path} is not below a directory that this machine's operator allows "
            f"({ALLOWED}={','.join(allowed)}); add it there, or read another directory"
        )


def _is_below(path: str, above: str) -> bool:
    root = above.rstrip("/")
    if "://" in path:
        return f"{path}/".startswith(f"{root}/")
    if not path.startswith("/") or "://" in root:  # Hadoop reads file:/etc as /etc
        return False
    return Path(path).resolve().is_relative_to(Path(root or "/").resolve())
