"""The parcels that a task sends, by who reads them."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.edge.rows.weighted_rows import Parcel, take_parcels
from schemas.limits import TASK_BYTES_MAX


def sort_parcels(parcels: Iterable[Parcel]) -> dict[int | None, list[Parcel]]:
    """Return the parcels by their reader; those of reports by None."""
    found = take_parcels(parcels, TASK_BYTES_MAX)
    assert found is not None
    return found
