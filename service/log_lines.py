"""The lines of a log file, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_BLOCK_BYTES = 64 * 1024


def read_lines_backwards(log: Path) -> Iterator[str]:
    """Yield the lines of a long file, the last one first."""
    try:
        file = log.open("rb")
    except FileNotFoundError:
        return
    with file:
        end = file.seek(0, 2)
        rest = b""
        while end > 0:
            start = max(0, end - _BLOCK_BYTES)
            file.seek(start)
            lines = (file.read(end - start) + rest).split(b"\n")
            end = start
            rest = lines.pop(0) if start else b""
            if start and len(rest) > 16 * _BLOCK_BYTES:  # an endless line: drop it
                rest = b""
            for line in reversed(lines):
                if line:
                    yield line.decode("utf-8", "replace")
