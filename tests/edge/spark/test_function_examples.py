"""What docs/sql.md says that functions give is what Spark gives, and Python over aggregates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from jobs.core.evaluate.expressions import evaluator
from jobs.core.plan.scalar_functions import FUNCTIONS
from jobs.core.plan.tree import Expression
from jobs.core.sql.select import parse_query
from jobs.core.values.json_values import render
from jobs.edge.spark.column_types import spark_type
from schemas.types.arrow_values import from_arrow
from schemas.types.sql_types import STRING
from tests.support.spark_columns.expressions import build
from tests.support.sql_reference.functions import EXAMPLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALONE = [name for name in FUNCTIONS if name != "GROUPING"]  # that one needs a GROUP BY


def read(name: str) -> Expression:
    plan = parse_query(f"SELECT MAX({EXAMPLES[name][0]}) AS x FROM t", {"k": STRING})
    return plan.arguments[0].expression


def test_every_function_has_an_example() -> None:
    assert set(EXAMPLES) == set(FUNCTIONS)


@pytest.fixture(scope="module")
def in_spark(spark: SparkSession) -> Iterator[dict[str, Any]]:
    made = {name: read(name) for name in ALONE}
    columns = [
        build(expression).value.try_cast(spark_type(expression.type)).alias(name)
        for name, expression in made.items()
    ]
    table = spark.range(1).select(*columns).toArrow()
    yield {name: from_arrow(table[name], each.type)[0] for name, each in made.items()}


@pytest.mark.spark
@pytest.mark.parametrize("name", ALONE)
def test_an_example_gives_what_the_page_says(name: str, in_spark: dict[str, Any]) -> None:
    expression = read(name)
    assert render(in_spark[name], expression.type) == EXAMPLES[name][1]
    assert render(evaluator(expression, 0)(()), expression.type) == EXAMPLES[name][1]


def test_the_example_of_grouping() -> None:
    plan = parse_query("SELECT GROUPING(k) AS g, COUNT(*) FROM t GROUP BY k", {"k": STRING})
    (g,) = [named.expression for named in plan.group if named.name == "g"]
    assert evaluator(g, 0)(()) == EXAMPLES["GROUPING"][1]
