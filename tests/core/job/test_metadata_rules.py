"""A query may use the metadata of messages where it is right for every change of a row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.core.job.job_plan import plan_of
from jobs.core.job.spec_check import check_spec
from jobs.core.job.views import plans_of, reading_plan
from jobs.core.sql.select import QueryError
from jobs.offline.replay import replay
from schemas.spec.file import Document, load_spec

DEDUPE = {"primary_key": ["id"], "dedupe": "pk"}
SHARDS = (
    "SELECT __database, __table, COUNT(*) AS n, SUM(cnt) AS cnt FROM t GROUP BY __database, __table"
)


def spec_of(**members: Any) -> dict[str, Any]:
    spec = {
        "name": "shards",
        "source": {"topic": "shop"},
        "columns": {"id": "BIGINT", "cnt": "INT"},
        "query": SHARDS,
    }
    return spec | members


def problem_of(**members: Any) -> str:
    with pytest.raises(QueryError) as refused:
        plan_of(load_spec(spec_of(**members)))
    (problem,) = refused.value.problems
    return problem.message


@pytest.mark.parametrize("format", ["canal-json", "debezium-json", "maxwell-json"])
def test_a_query_groups_by_the_table_without_declaring_it(format: str) -> None:
    plan = plan_of(load_spec(spec_of(source={"topic": "shop", "format": format})))
    assert [column.name for column in plan.columns] == ["id", "cnt"]
    assert [column.name for column in plan.used] == ["cnt", "__database", "__table"]


def test_a_plan_without_metadata_has_the_fingerprint_that_it_had() -> None:
    query = "SELECT id, COUNT(*) AS n FROM t GROUP BY id"
    plan = plan_of(load_spec(spec_of(query=query, columns={"id": "BIGINT"})))
    assert plan.used == plan.columns


@pytest.mark.parametrize("name", ["__es", "__ts"])
@pytest.mark.parametrize("format", ["canal-json", "debezium-json", "maxwell-json"])
def test_the_times_of_messages_are_refused_because_a_retraction_has_another(
    name: str, format: str
) -> None:
    reason = problem_of(
        query=f"SELECT id, MAX({name}) AS at FROM t GROUP BY id",
        source={"topic": "shop", "format": format},
    )
    assert name in reason and "another time" in reason


ROW, LATER = {"id": 1, "cnt": 1}, {"id": 1, "cnt": 2}
SET_AND_UPDATED: dict[str, list[dict[str, Any]]] = {
    "canal-json": [
        {"type": "INSERT", "data": [ROW], "es": 5_000},
        {"type": "UPDATE", "data": [LATER], "old": [{"cnt": 1}], "es": 2_000},
    ],
    "debezium-json": [
        {"op": "c", "before": None, "after": ROW, "source": {"ts_ms": 5_000}},
        {"op": "u", "before": ROW, "after": LATER, "source": {"ts_ms": 2_000}},
    ],
    "maxwell-json": [
        {"type": "insert", "data": ROW, "ts": 5},
        {"type": "update", "data": LATER, "old": {"cnt": 1}, "ts": 2},
    ],
}


@pytest.mark.parametrize("format", SET_AND_UPDATED)
def test_with_last_images_a_row_is_retracted_with_the_time_that_it_had(format: str) -> None:
    source = {"topic": "shop", "format": format}
    spec = spec_of(**DEDUPE, source=source, query="SELECT MAX(__es) AS at FROM t")
    created, changed = map(_text, SET_AND_UPDATED[format])
    steps: list[dict[str, Any]] = [{"message": created}, {"flush": True}, {"message": changed}]
    found = [each["row"] for each in replay(spec, steps) if each.get("op", "").startswith("+")]
    assert found == [{"at": 5_000}, {"at": 2_000}]


@pytest.mark.parametrize("early", [False, True])
def test_a_key_is_left_by_an_update_in_another_partition_at_another_time(early: bool) -> None:
    query = "SELECT id, cnt, MAX(__es) AS at FROM t GROUP BY id, cnt"
    inserted = {"data": [ROW], "type": "INSERT", "es": 1_000}
    moved = {"data": [ROW | {"id": 2}], "old": [{"id": 1}], "type": "UPDATE", "es": 3_000}
    steps: list[dict[str, Any]] = [
        {"message": _text(inserted), "partition": 1, "offset": 0},
        {"message": _text(moved), "partition": 2, "offset": 0},
    ]
    rows: dict[int, int] = {}
    for each in replay(spec_of(**DEDUPE, query=query), steps[:: -1 if early else 1]):
        if each.get("op", "").startswith("+"):
            rows[each["row"]["id"]] = each["row"]["at"]
        elif "op" in each:
            assert rows.pop(each["row"]["id"]) == each["row"]["at"]
    assert rows == {2: 3_000}


@pytest.mark.parametrize("format", ["json", "changelog-json"])
def test_messages_without_a_table_have_no_metadata(format: str) -> None:
    source = {"topic": "shop", "format": format}
    assert f"{format} messages do not have" in problem_of(source=source)
    columns = {"__database": "STRING", "__table": "STRING", "cnt": "INT"}  # of the job before
    plan = plan_of(load_spec(spec_of(source=source, columns=columns)))
    assert {column.name for column in plan.used} == set(columns)


def test_validate_explains_a_declared_metadata_column() -> None:
    columns = {"id": "BIGINT", "cnt": "INT", "__table": "STRING"}
    (problem,) = check_spec(Document("shards", spec_of(columns=columns))).problems
    assert problem.path == "columns.__table"
    assert "without a declaration; remove it" in problem.reason


def test_views_read_the_metadata_that_any_of_them_uses() -> None:
    views = {
        "ids": {"query": "SELECT id, COUNT(*) AS n FROM t GROUP BY id"},
        "shards": {"query": SHARDS},
    }
    spec = spec_of(views=views)
    del spec["query"]
    plan = reading_plan(plans_of(load_spec(spec)))
    assert [column.name for column in plan.used] == ["id", "cnt", "__database", "__table"]


def test_shards_of_a_table_are_grouped_by_their_names() -> None:
    steps: list[dict[str, Any]] = [
        {"message": _text(_canal("INSERT", "orders_1", [{"id": "1", "cnt": "2"}]))},
        {"message": _text(_canal("INSERT", "orders_2", [{"id": "1", "cnt": "5"}]))},
        {
            "message": _text(
                _canal("UPDATE", "orders_1", [{"id": "1", "cnt": "3"}]) | {"old": [{"cnt": "2"}]}
            )
        },
        {"op": "+I", "row": {"id": "7", "cnt": "1", "__database": "shop", "__table": "orders_2"}},
    ]
    rows = [each["row"] for each in replay(spec_of(), steps) if each.get("op") == "+I"]
    assert sorted(rows, key=str) == [
        {"__database": "shop", "__table": "orders_1", "n": 1, "cnt": 3},
        {"__database": "shop", "__table": "orders_2", "n": 2, "cnt": 6},
    ]


def test_the_key_of_a_row_in_a_shard_may_have_its_table() -> None:
    spec = spec_of(primary_key=["__table", "id"], dedupe="pk")
    created = _text(_canal("INSERT", "orders_1", [{"id": "1", "cnt": "2"}]))
    other = _text(_canal("INSERT", "orders_2", [{"id": "1", "cnt": "5"}]))
    steps = [{"message": created}, {"message": other}, {"message": created}]
    rows = [each["row"] for each in replay(spec, steps) if each.get("op") == "+I"]
    assert sorted(row["cnt"] for row in rows) == [2, 5]


def _canal(kind: str, table: str, data: list[dict[str, str]]) -> dict[str, Any]:
    return {"data": data, "database": "shop", "table": table, "type": kind, "es": 1_000}


def _text(message: dict[str, Any]) -> str:
    return json.dumps(message)
