"""Every aggregate over a thousand histories and more: a query has about half of the calls, so that
twice as many histories are gone through; in parts, so that a run can go on where another ended."""

from __future__ import annotations

import pytest

from tests.support.histories import aggregates as histories
from tests.support.histories.aggregate_checks import check_definitions, check_duckdb

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800)]
HISTORIES, PARTS = 2_000, 4


def seeds(part: int) -> range:
    return range(part * HISTORIES // PARTS, (part + 1) * HISTORIES // PARTS)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("type_name", histories.WILD)
def test_results_are_those_of_the_definition(type_name: str, part: int) -> None:
    check_definitions(type_name, seeds(part))


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("type_name", histories.TAME)
def test_results_are_those_of_duckdb(type_name: str, part: int) -> None:
    check_duckdb(type_name, seeds(part))
