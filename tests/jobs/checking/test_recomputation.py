"""The audit computes every aggregate from its values, by code of its own."""

from __future__ import annotations

from jobs.checking.recomputation import RECOMPUTATIONS
from jobs.core.aggregates.functions import FUNCTIONS


def test_every_aggregate_has_a_recomputation() -> None:
    assert set(RECOMPUTATIONS) == set(FUNCTIONS)
