"""Every aggregate over random histories with retractions: after each bundle its results are those
of the live rows, by its definition (for every type, extremes, NaN and all) and as DuckDB has them.

`make faults` goes through many more histories in the same way.
"""

from __future__ import annotations

import pytest

from schemas.types.sql_types import SqlType
from tests.support.examples import scale
from tests.support.histories import aggregates as histories
from tests.support.histories.aggregate_checks import DUCKDB, check_definitions, check_duckdb

SAMPLE = scale(50)


@pytest.mark.parametrize("type_name", histories.WILD)
def test_results_are_those_of_the_definition(type_name: str) -> None:
    check_definitions(type_name, range(SAMPLE))


@pytest.mark.parametrize("type_name", histories.TAME)
def test_results_are_those_of_duckdb(type_name: str) -> None:
    check_duckdb(type_name, range(SAMPLE))


# What DuckDB says for each call; the answers of CLOSE are rounded by it on the way.
# Whole numbers cut, decimals half up, DESC with a rank from the other end: no word of DuckDB's. Of
# these the definitions judge.
NOT_ASKED = {
    *("AVG(DISTINCT v)", "MODE(v)", "PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY v DESC)"),
    # DuckDB's object has a key as often as it occurs.
    "JSON_OBJECTAGG(KEY o VALUE v)",
    "JSON_OBJECTAGG(KEY o VALUE v ABSENT ON NULL) FILTER (WHERE f)",
}


def test_every_call_is_judged() -> None:
    asked = {call for name in histories.TAME for call in histories.calls_of(SqlType.parse(name))}
    assert asked == {*DUCKDB, *NOT_ASKED}
