"""The plan shows the folding path of a job."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.core.job.job_plan import plan_of
from jobs.core.job.plan_nodes import describe_folding_path
from schemas.spec.job import JobSpec

SPEC: dict[str, Any] = {
    "name": "items",
    "source": {"topic": "items"},
    "columns": {
        "name": "STRING",
        "cnt": "INT",
        "rate": "DOUBLE",
        "price": "DECIMAL(10, 2)",
        "large": "DECIMAL(30, 2)",
        "at": "TIMESTAMP(3)",
    },
    "query": "SELECT name, MAX(cnt) AS top, AVG(price) AS m FROM items GROUP BY name",
}
BY_GROUP = {
    "its results depend on time": {"state": {"ttl": "1h"}},
    "it has HAVING or expressions over aggregates": {
        "query": "SELECT name, COUNT(*) AS n FROM items GROUP BY name HAVING COUNT(*) > 1"
    },
    "group column rate is DOUBLE": {"query": "SELECT rate, COUNT(*) AS n FROM items GROUP BY rate"},
    "s is over DOUBLE": {"query": "SELECT name, SUM(rate) AS s FROM items GROUP BY name"},
    "s is over DECIMAL(30, 2)": {"query": "SELECT name, SUM(large) AS s FROM items GROUP BY name"},
    "top is over STRING": {"query": "SELECT cnt, MAX(name) AS top FROM items GROUP BY cnt"},
    "s is STDDEV_POP": {"query": "SELECT name, STDDEV_POP(cnt) AS s FROM items GROUP BY name"},
}


def folding_of(changes: dict[str, Any]) -> str:
    spec = JobSpec.model_validate(SPEC | changes)
    return describe_folding_path(spec, plan_of(spec))


def test_a_usual_query_folds_in_arrays() -> None:
    assert folding_of({}) == "in arrays, many groups at once"
    counted = {"query": "SELECT cnt, COUNT(name) AS n FROM items GROUP BY cnt"}
    assert folding_of(counted) == "in arrays, many groups at once"


@pytest.mark.parametrize(("why", "changes"), BY_GROUP.items(), ids=BY_GROUP)
def test_other_queries_fold_group_by_group(why: str, changes: dict[str, Any]) -> None:
    assert folding_of(changes) == f"group by group, because {why}"
