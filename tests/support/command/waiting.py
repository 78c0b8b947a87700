"""Waiting for a file descriptor of any number: `select` takes none from 1,024 on, and a worker that
runs many tests has them."""

from __future__ import annotations

import selectors
from typing import IO


def wait_readable(file: IO[str] | int, seconds: float | None) -> bool:
    """Tell if `file` can be read, or has ended, within `seconds`; None waits for ever."""
    with selectors.PollSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        return bool(selector.select(seconds))
