"""What docs/sql.md says that functions give."""

from __future__ import annotations

import pytest

from jobs.core.evaluate.expressions import evaluator
from jobs.core.plan.scalar_functions import FUNCTIONS
from jobs.core.plan.tree import Expression
from jobs.core.sql.select import parse_query
from jobs.core.values.json_values import render
from schemas.types.sql_types import STRING
from tests.support.sql_reference.functions import EXAMPLES

ALONE = [name for name in FUNCTIONS if name != "GROUPING"]  # that one needs a GROUP BY


def read(name: str) -> Expression:
    plan = parse_query(f"SELECT MAX({EXAMPLES[name][0]}) AS x FROM t", {"k": STRING})
    return plan.arguments[0].expression


def test_every_function_has_an_example() -> None:
    assert set(EXAMPLES) == set(FUNCTIONS)


@pytest.mark.parametrize("name", ALONE)
def test_an_example_gives_what_the_page_says(name: str) -> None:
    expression = read(name)
    assert render(evaluator(expression, 0)(()), expression.type) == EXAMPLES[name][1]


def test_the_example_of_grouping() -> None:
    plan = parse_query("SELECT GROUPING(k) AS g, COUNT(*) FROM t GROUP BY k", {"k": STRING})
    (g,) = [named.expression for named in plan.group if named.name == "g"]
    assert evaluator(g, 0)(()) == EXAMPLES["GROUPING"][1]
