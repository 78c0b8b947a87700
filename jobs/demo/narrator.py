"""Narrator: tells what the demo does, and how far it is.

A terminal gets a spinner with the seconds of the phase; a pipe or a log gets plain lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

LINE_SECONDS = 5.0  # between two lines of one phase, where there is no terminal


class Narrator:
    def __init__(self, console: Console) -> None:
        self.console = console

    def emit(self, text: str = "") -> None:
        self.console.print(text, soft_wrap=True)

    def invite(self, address: str) -> None:
        """Print the address as a line of its own, to be opened now."""
        self.emit()
        self.console.print(f"open {address}/ now", style="bold", soft_wrap=True)
        self.emit()

    @contextmanager
    def phase(self, subject: str, text: str) -> Iterator[Callable[[str], None]]:
        """Show a phase until the block ends; yield a function that reports how far it is."""
        began = shown = time.monotonic()
        if self.console.is_terminal:
            with self.console.status(f"{subject}: {text}") as status:
                yield lambda detail: status.update(
                    f"{subject}: {text}; {detail} ({time.monotonic() - began:.0f} s)"
                )
            return

        def report(detail: str) -> None:
            nonlocal shown
            if time.monotonic() - shown >= LINE_SECONDS:
                shown = time.monotonic()
                self.emit(f"          {shown - began:.0f} s: {detail}")

        self.emit(f"{subject:9} {text}")
        yield report
