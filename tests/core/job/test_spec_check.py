"""The check of a spec: each mistake in an SQL text has its position in the whole text."""

from __future__ import annotations

import pytest

from jobs.core.job.spec_check import check_spec, sort_problems
from schemas.spec.file import read_text

HEAD = "name: items\nsource: {topic: shop}\ncolumns: {name: STRING, cnt: INT}\n"


def check(text: str) -> list[str]:
    """The problems of a spec, each as `line:column key: reason`, without suggestions."""
    return [
        f"{each.line}:{each.column} {each.path}: {each.reason.split(' (try')[0]}"
        for each in sort_problems(check_spec(read_text(text, "<spec>")).problems)
    ]


def test_a_valid_spec_has_its_spec_and_the_plan_of_each_view() -> None:
    text = HEAD + "views:\n  one: {query: SELECT COUNT(*) AS n FROM t}\n"
    found = check_spec(read_text(text, "<spec>"))
    assert found.spec is not None
    assert (list(found.plans), found.problems) == (["one"], ())


def test_a_mistake_in_a_view_is_found_in_its_own_query() -> None:
    text = HEAD + (
        "views:\n"
        "  right: {query: SELECT COUNT(*) AS n FROM t}\n"
        "  wrong:\n"
        "    query: |\n"
        "      SELECT name,\n"
        "        SUM(cntt) AS s\n"
        "      FROM t GROUP BY name\n"
    )
    assert check(text) == ["9:13 views.wrong.query: unknown column `cntt`"]


def test_a_mistake_in_a_marker_of_a_topic_is_found_in_the_marker() -> None:
    text = (
        "name: items\n"
        "source:\n"
        "  topics:\n"
        "    - a\n"
        "    - topic: b\n"
        "      watermark: {generator: punctuated, marker: nam = 'end'}\n"
        "columns: {name: STRING}\n"
        "query: SELECT name, COUNT(*) AS n FROM t GROUP BY name\n"
    )
    assert [each.rpartition(": ")[2] for each in check(text)] == ["unknown column `nam`"]
    assert check(text)[0].startswith("6:50 ")


def test_a_mistake_in_the_rows_that_move_the_watermark_names_their_condition() -> None:
    text = (
        "name: items\nsource: {topic: t}\nwatermark: {where: n = 'x' GROUP BY n}\n"
        "columns: {n: STRING}\nquery: SELECT n, COUNT(*) AS c FROM t GROUP BY n\n"
    )
    (found,) = check(text)
    assert "a watermark.where is a predicate on one row" in found


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("query: SELECT cntt FROM t\nminibach: 3\n", ["4:15 query", "5:1 "]),
        (
            "views: {a: {query: SELECT cntt FROM t, ttl: x}}\n",
            ["4:27 views.a.query", "4:40 views.a"],
        ),
    ],
)
def test_an_invalid_spec_has_the_mistakes_of_its_queries_too(
    keys: str, expected: list[str]
) -> None:
    found = [each.partition(": ")[0] for each in check(HEAD + keys)]
    assert [each for each in found if each in expected] == expected


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            "query: SELECT name, COUNT(*) AS n FROM t GROUP BY ROLLUP(name), name\nempty: row\n",
            "5:1 empty: row belongs to a query without GROUP BY",
        ),
        (
            "views: {a: {query: SELECT COUNT(*) AS n FROM t, empty: row, state: {ttl: 1d}}}\n",
            "4:69 views.a.state.ttl: the row of an empty input must not expire",
        ),
        (
            "query: SELECT COUNT(*) AS n FROM t\nempty: row\nearly_retractions: drop\n",
            "6:1 early_retractions: drop is for results as in Flink",
        ),
    ],
)
def test_a_row_without_input_needs_a_group_without_columns_that_stays(
    keys: str, problem: str
) -> None:
    (found,) = check(HEAD + keys)
    assert found.startswith(problem)


def test_a_query_that_is_an_alias_has_the_position_inside_it() -> None:
    text = "name: &a SELECT x FROM t\n" + HEAD.partition("\n")[2] + "query: *a\n"
    assert "4:1 query: line 1, column 8: unknown column `x`" in check(text)


JOINED = (
    "name: revenue\n"
    "sources:\n"
    "  orders: {topic: a, columns: {id: BIGINT, customer: BIGINT, at: TIMESTAMP(3)}}\n"
    "  customers: {topic: b, columns: {id: BIGINT, region: STRING}}\n"
)
JOIN = "SELECT region FROM orders o JOIN customers c ON o.customer = c.id GROUP BY region"


def test_a_job_of_several_sources_has_a_plan_of_its_query() -> None:
    found = check_spec(read_text(f"{JOINED}query: {JOIN}\n", "<spec>"))
    assert (list(found.plans), found.problems) == ([""], ())


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (f"query: {JOIN.replace('o.customer', 'o.custmer')}\n", "5:56 query: unknown column `c"),
        (f"query: {JOIN}\nemit: final\n", "6:1 emit: final is not possible over a join"),
        (
            f"query: {JOIN}\nallowed_lateness: 5s\n",
            "6:1 allowed_lateness: is not possible over a join",
        ),
        (
            f"views:\n  v: {{query: {JOIN}, emit: final}}\n",
            "6:97 views.v.emit: final is not possible over a join",
        ),
        ("query: SELECT COUNT(*) FROM orders o WHERE o.__es > 3\n", "5:46 query: `__es` is the"),
    ],
)
def test_a_mistake_in_a_job_of_several_sources_is_found(keys: str, problem: str) -> None:
    (found,) = check(JOINED + keys)
    assert found.startswith(problem)


def test_queries_are_checked_beside_other_mistakes_of_a_job_of_several_sources() -> None:
    found = check(JOINED + f"query: {JOIN.replace('region', 'regoin')}\nretention: long\n")
    assert [each[:4] for each in found] == ["5:15", "5:83", "6:1 "]
    assert all("unknown column `regoin`" in each for each in found[:2])


def test_a_mistake_in_the_time_of_a_source_is_found_in_its_entry() -> None:
    wrong = "columns: {id: BIGINT, region: STRING}, watermark: {time: {expression: idd}}}"
    text = JOINED.replace("columns: {id: BIGINT, region: STRING}}", wrong) + f"query: {JOIN}\n"
    expected = "4:95 sources.customers.watermark.time.expression: unknown column `idd`"
    assert check(text) == [expected]
