"""Answers: what the commands about one job print, whichever source they are from.

A document is a JSON object, with the keys that the REST API has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Results:
    """Rows of a job at one epoch, in the order of the groups."""

    epoch: int
    columns: list[tuple[str, bool]]  # name, and whether the values are numbers
    rows: list[Document]
    moved: int | None  # the epoch that moved offsets by hand
