"""The `views` of a spec: their keys, what they share, and the spec of each."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.spec.file import SpecError, load_spec
from schemas.spec.job import JobSpec

COUNT = "SELECT COUNT(*) AS n FROM t"
SUMS = "SELECT k, SUM(v) AS s FROM t GROUP BY k"


def spec_of(**keys: Any) -> JobSpec:
    return load_spec(
        {"name": "a", "source": {"topic": "t"}, "columns": {"k": "STRING", "v": "INT"}, **keys}
    )


def test_a_view_has_the_spec_of_a_job_with_its_query_only() -> None:
    spec = spec_of(
        query=COUNT,
        sink={"topic": "x"},
        minibatch={"size": 7},
        views={"sums": {"query": SUMS, "sink": {"topic": "y"}, "state": {"ttl": "1h"}}},
    )
    assert list(spec.view_specs) == ["", "sums"]
    own, sums = spec.view_specs.values()
    assert own == spec_of(query=COUNT, sink={"topic": "x"}, minibatch={"size": 7})
    assert sums == spec_of(
        query=SUMS, sink={"topic": "y"}, state={"ttl": "1h"}, minibatch={"size": 7}
    )
    assert load_spec(spec.document()) == spec


def test_a_spec_with_one_query_is_its_only_view_and_says_nothing_of_views() -> None:
    spec = spec_of(query=COUNT)
    assert spec.view_specs == {"": spec}
    assert "views" not in spec.document()
    assert "query" not in spec_of(views={"n": {"query": COUNT}}).document()


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({}, "query: is required"),
        ({"views": {}}, "query: is required"),
        ({"query": COUNT, "views": {}}, "views: names no view"),
        ({"views": {"A": {"query": COUNT}}}, "views.A: 'A' is not a view name"),
        ({"views": {"a": {"qery": COUNT}}}, "views.a: unknown key 'qery'; did you mean 'query'"),
        ({"views": {"a": {}}}, "views.a.query: is required"),
        ({"views": {"a": {"query": COUNT}}, "sink": {"topic": "x"}}, "sink: belongs to the query"),
        ({"views": {"a": {"query": COUNT}}, "state": {"ttl": "1h"}}, "state: belongs to the query"),
        (
            {"views": {"a": {"query": COUNT, "sink": {"topic": "t"}}}},
            "views.a.sink.topic: is a source topic too",
        ),
        (
            {"views": {n: {"query": COUNT, "sink": {"topic": "x"}} for n in "ab"}},
            "views.b.sink: is the topic of another view",
        ),
        (
            {
                "views": {
                    n: {"query": COUNT, "sink": {"topic": n, "delivery": how}}
                    for n, how in (("a", "exactly_once"), ("b", "at_least_once"))
                }
            },
            "views.b.sink.delivery: differs",
        ),
        ({"views": {"a": {"query": COUNT}}, "dedupe": "pk"}, "dedupe: needs a primary_key"),
        ({"views": {"a": {"query": COUNT}}, "mirror": "1m"}, "mirror: belongs to the query; move"),
        ({"views": {f"v{n}": {"query": COUNT} for n in range(33)}}, "views: has 33 views"),
    ],
)
def test_mistakes_are_named_with_their_place(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(**keys)
    assert any(each.describe("").startswith(problem) for each in caught.value.problems), str(
        caught.value
    )
