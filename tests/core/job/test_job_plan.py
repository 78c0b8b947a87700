"""The plan of a job: what its spec adds to the plan of its query."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.core.fold.program import Program
from jobs.core.job.job_plan import plan_of
from jobs.core.sql.select import QueryError
from jobs.edge.table.epoch_files import TableLayout
from schemas.spec.file import load_spec

SPEC: dict[str, Any] = {
    "name": "items",
    "source": {"topic": "t"},
    "columns": {"id": "BIGINT", "v": "INT", "value_v": "INT"},
}
DEDUPE = {"primary_key": ["id"], "dedupe": "pk"}


@pytest.mark.parametrize(
    ("query", "more", "name", "column"),
    [
        ("SELECT value_v, MAX(v) FROM t GROUP BY value_v", {}, "value_v", 8),
        ("SELECT MAX(v) AS Value_V FROM t", {}, "Value_V", 18),
        ("SELECT SUM(v) + 1 AS acc_sum_v FROM t", {}, "acc_sum_v", 22),
        ("SELECT COUNT(*) AS image_id FROM t", DEDUPE, "image_id", 20),
    ],
)
def test_a_name_that_the_state_has_in_the_table_is_refused_with_its_place(
    query: str, more: dict[str, Any], name: str, column: int
) -> None:
    with pytest.raises(QueryError) as caught:
        plan_of(load_spec(SPEC | {"query": query} | more))
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (1, column)
    assert f"`{name}` is a column of the job's own table" in problem.message
    assert problem.hint is not None and f"AS {name}_" in problem.hint


def test_a_name_that_only_another_query_would_take_is_free() -> None:
    query = "SELECT value_v, SUM(v) AS image_id, COUNT(v) AS acc_sum_id FROM t GROUP BY value_v"
    plan = plan_of(load_spec(SPEC | {"query": query}))
    assert TableLayout(Program(plan)).group == [("value_v", plan.group[0].type)]
