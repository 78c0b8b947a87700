"""A job whose table grows while a page shows it."""

from __future__ import annotations

from tests.support.console.shop import Shop, put
from tests.support.console.visits import Visits


def living(visits: Visits, name: str, *lives: dict[str, tuple[int, ...]]) -> Shop:
    """Create a job that only this test uses."""
    table = Shop(visits.served.data, name, epochs_until_now=len(lives) + 1)
    table.write(*lives)
    put(visits.served, table)
    return table


PATIENCE_MS = 15_000  # more than the longest pause between two retries
