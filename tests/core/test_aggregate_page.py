"""The page about aggregates is made from the table of functions, and its examples hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.core.accumulators import FUNCTIONS
from jobs.core.aggregate_calls import REFUSED
from jobs.core.aggregate_page import COLUMNS, ROWS, aggregates_page
from jobs.core.bundle import Bundle, Tally, plain_projection
from jobs.core.query import QueryError, parse_query

PAGE = Path(__file__).parents[2] / "docs" / "aggregates.md"


def test_the_page_says_what_the_table_of_functions_says(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        PAGE.write_text(aggregates_page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == aggregates_page()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_example_gives_what_the_page_says(name: str) -> None:
    function = FUNCTIONS[name]
    plan = parse_query(f"SELECT {function.example} AS r FROM t", COLUMNS)
    projection = plain_projection(plan)
    assert projection is not None
    places = [list(COLUMNS).index(column.name) for column in plan.used]
    bundle = Bundle()
    bundle.add(0, 0, [(1, tuple(row[place] for place in places)) for row in ROWS])
    ((_, _, row),) = Tally(plan, projection).fold(bundle.ranges()).changelog
    assert repr(row) == repr((function.gives,))


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_page_calls_impossible_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_query(f"SELECT {name}(cnt) FROM t", COLUMNS)
    (problem,) = caught.value.problems
    assert problem.message == REFUSED[name][0]
    assert problem.hint == REFUSED[name][1]
