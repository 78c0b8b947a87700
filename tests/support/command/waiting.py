"""Wait for a file descriptor of any number, and do something again and again meanwhile."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO


def wait_readable(file: IO[str] | int, seconds: float | None) -> bool:
    """Tell if `file` can be read, or has ended, within `seconds`; None waits for ever.

    `select` takes no descriptor from 1,024 on, and a worker that runs many tests has them."""
    with selectors.PollSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        return bool(selector.select(seconds))


@contextmanager
def repeating(feed: Callable[[], None], every_seconds: float = 0.2) -> Iterator[None]:
    """Call `feed` again and again in a thread until the block ends."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(every_seconds):
            feed()

    thread = threading.Thread(target=work, name="load")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
