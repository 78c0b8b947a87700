"""Every aggregate over a thousand histories and more: a query has about half of the calls, so that
twice as many histories are gone through."""

from __future__ import annotations

import pytest

from tests import aggregate_histories as histories
from tests.core.test_aggregate_histories import check_definitions, check_duckdb

pytestmark = pytest.mark.faults
HISTORIES = 2_000


@pytest.mark.parametrize("type_name", histories.WILD)
def test_results_are_those_of_the_definition(type_name: str) -> None:
    check_definitions(type_name, HISTORIES)


@pytest.mark.parametrize("type_name", histories.TAME)
def test_results_are_those_of_duckdb(type_name: str) -> None:
    check_duckdb(type_name, HISTORIES)
