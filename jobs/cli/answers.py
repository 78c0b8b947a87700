"""Answers: what the commands about one job print, whichever source they are from.

A document is a JSON object, with the keys that the REST API has.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.cli.errors import UsageError
from jobs.reading.listing import (
    Columns,
    Condition,
    ListingRefused,
    Order,
    parse_conditions,
    parse_order,
)
from schemas.types.json_types import JsonObject


@dataclass(frozen=True, slots=True)
class Wanted:
    """The results that a command asks for: an epoch or a time, conditions, order, number."""

    epoch: int | None = None
    time_ms: int | None = None
    key: str | None = None
    where: tuple[str, ...] = ()
    order: str | None = None
    limit: int | None = None

    def parse_listing(self, columns: Columns) -> tuple[tuple[Condition, ...], Order]:
        """Return the conditions and the order; raise UsageError if one is invalid."""
        try:
            return parse_conditions(columns, self.where), parse_order(columns, self.order)
        except ListingRefused as error:
            raise UsageError(f"--{error.parameter}: {error}") from None


@dataclass(frozen=True, slots=True)
class Results:
    """Rows of a job at one epoch, in the order of the groups."""

    epoch: int
    columns: list[tuple[str, bool]]  # name, and whether the values are numbers
    rows: list[JsonObject]
    moved: int | None  # the epoch that moved offsets by hand
