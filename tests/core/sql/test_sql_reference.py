"""docs/sql.md is generated from the tables of functions, and its examples are run.

The examples of scalar functions run in tests/core/evaluate/test_function_examples.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jobs.core.aggregates import FUNCTIONS
from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.rows.projection import row_projection
from jobs.core.sql.refused_names import AGGREGATES
from jobs.core.sql.refused_names import FUNCTIONS as FUNCTIONS_REFUSED
from jobs.core.sql.select import QueryError, parse_joins, parse_query
from schemas.types.sql_types import BIGINT, BOOLEAN, INT, STRING, SqlType, timestamp
from tests.support.sql_reference.aggregates import COLUMNS, ROWS
from tests.support.sql_reference.page import sql_page
from tests.support.sql_reference.refused import CLAUSES

PAGE = Path(__file__).parents[3] / "docs" / "sql.md"


def test_the_page_says_what_the_tables_of_functions_say(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--rewrite"):
        PAGE.write_text(sql_page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == sql_page()


ORDERS: dict[str, SqlType] = {
    "shop": STRING,
    "customer": STRING,
    "amount": INT,
    "paid": BOOLEAN,
    "at": timestamp(3),
}
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


JOINED: dict[str, dict[str, SqlType]] = {
    "orders": {"id": BIGINT, "customer_id": BIGINT, "amount": INT},
    "customers": {"id": BIGINT, "region": STRING, "active": BOOLEAN},
    "refunds": {"order_id": BIGINT},
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_of_the_page_is_taken(query: str) -> None:
    joined = "JOIN" in query
    assert parse_joins(query, JOINED if joined else {"": ORDERS}).output


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_example_gives_what_the_page_says(name: str) -> None:
    function = FUNCTIONS[name]
    plan = parse_query(f"SELECT {function.example} AS r FROM t", COLUMNS)
    projection = row_projection(plan)
    assert projection is not None
    places = [list(COLUMNS).index(column.name) for column in plan.used]
    bundle = Bundle()
    bundle.add(0, 0, [(1, tuple(row[place] for place in places)) for row in ROWS])
    ((_, _, row),) = MemoryFold(plan, projection).fold(bundle.consolidate()).changelog
    assert repr(row) == repr((function.example_result,))


REFUSED = {**AGGREGATES, **FUNCTIONS_REFUSED}


@pytest.mark.parametrize("name", [each for each in REFUSED if each not in ("RLIKE", "ILIKE")])
def test_a_function_that_the_page_calls_impossible_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse_query(f"SELECT {name}(cnt) FROM t", COLUMNS)
    (problem,) = caught.value.problems
    assert problem.message == f"{name} is not supported: {REFUSED[name].reason}"
    assert problem.hint == REFUSED[name].instead


@pytest.mark.parametrize("query", [query for _, query, _ in CLAUSES])
def test_a_clause_that_the_page_calls_impossible_is_refused(query: str) -> None:
    with pytest.raises(QueryError):
        parse_query(query, COLUMNS)
