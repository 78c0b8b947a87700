"""What is known of a refused message: which groups lack it, and whether the job takes it now."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from jobs.core.job.job_plan import plan_of
from jobs.core.job.refused_message import find_taker, groups_of, job_decoders, why_refused
from schemas.spec.file import load_spec, read_text, validate
from schemas.spec.job import JobSpec

QUERY = "SELECT name, SUM(v) AS s FROM t GROUP BY name"
JOINED = (
    "SELECT COUNT(*) AS n FROM orders o LEFT JOIN items i "
    "ON CAST(o.id AS STRING) = CAST(i.id AS STRING)"
)


def groups(query: str, kind: str, *rows: dict[str, Any], old: Any = None) -> Any:
    spec = load_spec(
        f"{{name: j, source: {{topic: t}}, columns: {{name: STRING, v: INT}}, query: {query!r}}}"
    )
    message = {"type": kind, "data": rows, **({} if old is None else {"old": old})}
    return groups_of(spec, plan_of(spec), json.dumps(message).encode())


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (QUERY, [{"name": "b"}, {"name": "a"}]),
        ("SELECT UPPER(name) AS u, SUM(v) AS s FROM t GROUP BY UPPER(name)", [{}]),
        ("SELECT SUM(v) AS s FROM t", [{}]),
    ],
    ids=["a column", "an expression", "no group"],
)
def test_the_groups_of_both_images_are_named_whatever_another_column_has(
    query: str, found: list[Any]
) -> None:
    row = {"name": "a", "v": "no number"}
    assert groups(query, "UPDATE", row, row, old=[{"name": "b"}, {"name": "b"}]) == found


def test_groups_that_cannot_be_read_are_unknown() -> None:
    assert groups(QUERY, "INSERT", {"v": "7"}) is None
    assert groups(QUERY, "TRUNCATE") is None


def test_a_message_must_fit_the_declared_columns_whatever_a_view_reads() -> None:
    views = {"times": {"query": "SELECT name, COUNT(*) AS n FROM t GROUP BY name"}}
    columns = {"name": "STRING", "v": "INT"}
    spec = {"name": "j", "source": {"topic": "t"}, "columns": columns, "views": views}
    for v, refused in (("7", None), ("x", ("'x' is not a valid INT", "$.data[0].v"))):
        value = json.dumps({"type": "INSERT", "data": [{"name": "a", "v": v}]}).encode()
        assert why_refused(job_decoders(load_spec(spec), "t", lambda _: None), value) == refused


def test_a_message_of_a_topic_of_two_sources_must_fit_the_one_whose_table_it_is_of() -> None:
    sources = {
        "orders": {"topic": "t", "table": "orders", "columns": {"id": "INT"}},
        "items": {"topic": "t", "table": "items", "columns": {"id": "DATE"}},
    }
    document = {"name": "j", "sources": sources, "query": JOINED}
    spec = validate(JobSpec, read_text(json.dumps(document), "a"))

    def refusal(table: str, value: str) -> Any:
        message = {"type": "INSERT", "database": "d", "table": table, "data": [{"id": value}]}
        return why_refused(job_decoders(spec, "t", lambda _: None), json.dumps(message).encode())

    assert refusal("orders", "7") is None
    assert refusal("items", "7") == ("'7' is not a valid DATE such as 2020-05-13", "$.data[0].id")
    assert refusal("others", "7") == ("the job does not read that database or table", "$")


@pytest.mark.parametrize(
    ("source", "dedupe", "value", "taker"),
    [
        ("items", None, "7", "orders"),
        ("items", None, "x", None),
        ("items", "pk", "7", None),
        (None, None, "7", None),
    ],
    ids=["counted", "refused too", "counts once", "unknown"],
)
def test_a_message_that_another_source_of_its_topic_has_counted_would_count_twice(
    source: str | None, dedupe: str | None, value: str, taker: str | None
) -> None:
    keyed = {} if dedupe is None else {"dedupe": dedupe, "primary_key": ["id"]}
    sources = {
        "orders": {"topic": "t", "columns": {"id": "INT"}, **keyed},
        "items": {"topic": "t", "columns": {"id": "DATE"}},
    }
    spec = load_spec({"name": "j", "sources": sources, "query": JOINED})
    message = {"type": "INSERT", "database": "d", "table": "t", "data": [{"id": value}]}
    assert find_taker(spec, "t", source, json.dumps(message).encode(), lambda _: None) == taker


def test_the_groups_of_a_message_of_many_rows_take_one_pass() -> None:
    rows = [{"name": f"{number}", "v": "1"} for number in range(20_000)]
    began = time.process_time()
    found = groups(QUERY, "INSERT", *rows, *rows)
    assert len(found) == 20_000
    assert time.process_time() - began < 5.0  # pairs of rows would take minutes
