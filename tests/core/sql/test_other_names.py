"""What other engines write in another way has the plan of what retally has."""

from __future__ import annotations

import pytest

from jobs.core.plan.tree import Plan
from jobs.core.sql.select import QueryError, parse_joins, parse_query
from schemas.limits import EXPRESSION_NODES_MAX
from schemas.types.sql_types import BOOLEAN, DATE, INT, STRING, TIME, SqlType, timestamp
from tests.support.histories.plan_sql import plan_sql

COLUMNS: dict[str, SqlType] = {
    **dict.fromkeys(("k", "s"), STRING),
    **dict.fromkeys(("v", "o"), INT),
    **dict.fromkeys(("t", "u"), timestamp(3)),
    "f": BOOLEAN,
    "d": DATE,
    "tm": TIME,
    "z": timestamp(3, local_zone=True),
}


def plan(sql: str) -> Plan:
    return parse_query(sql, COLUMNS)


CALLS = [
    ("COUNT_IF(v > 1)", "COUNT(*) FILTER (WHERE v > 1)"),
    ("COUNTIF(v > 1 OR f) FILTER (WHERE f)", "COUNT(*) FILTER (WHERE f AND (v > 1 OR f))"),
    ("FIRST(v ORDER BY o DESC)", "FIRST_VALUE(v RESPECT NULLS ORDER BY o DESC)"),
    (
        "LAST(v ORDER BY o) FILTER (WHERE f)",
        "LAST_VALUE(v RESPECT NULLS ORDER BY o) FILTER (WHERE f)",
    ),
    ("FIRST(v IGNORE NULLS ORDER BY o)", "FIRST_VALUE(v ORDER BY o)"),
    ("ANY_VALUE(v ORDER BY o)", "FIRST_VALUE(v ORDER BY o)"),
    ("ARRAY_AGG(v ORDER BY o)[1]", "FIRST_VALUE(v RESPECT NULLS ORDER BY o)"),
    (
        "(ARRAY_AGG(v ORDER BY o) FILTER (WHERE f))[1]",
        "FIRST_VALUE(v RESPECT NULLS ORDER BY o) FILTER (WHERE f)",
    ),
    ("ARRAY_AGG(v IGNORE NULLS ORDER BY o)[1]", "FIRST_VALUE(v ORDER BY o)"),
    ("LIST(v)", "ARRAY_AGG(v)"),
    ("ARGMAX(v, o)", "ARG_MAX(v, o)"),
    ("MIN_BY(v, o, 3) FILTER (WHERE f)", "ARG_MIN_N(v, o, 3) FILTER (WHERE f)"),
    ("QUANTILE_CONT(v, 0.25)", "PERCENTILE_CONT(v, 0.25)"),
    ("QUANTILE_DISC(v, 0.25)", "PERCENTILE_DISC(v, 0.25)"),
    ("LEN(MAX(s))", "CHAR_LENGTH(MAX(s))"),
    ("COUNT(DISTINCT (v, o))", "COUNT(DISTINCT ROW(v, o))"),
    ("COUNT(DISTINCT (v))", "COUNT(DISTINCT v)"),
    ("LIST(v ORDER BY o)[1]", "FIRST_VALUE(v RESPECT NULLS ORDER BY o)"),
    (
        "MAX(TIMESTAMPDIFF(DAY, '2026-01-31', d))",
        "MAX(TIMESTAMPDIFF(DAY, DATE '2026-01-31', d))",
    ),
    ("SUM(CASE WHEN v = 20 THEN NULL END)", "SUM(CAST(NULL AS INT))"),
    ("MAX(s::DECIMAL(5, 2))", "MAX(CAST(s AS DECIMAL(5, 2)))"),
    ("SUM(-v::int8 + o::NUMERIC(3))", "SUM(-CAST(v AS BIGINT) + CAST(o AS DECIMAL(3, 0)))"),
    ("MAX((s || 'x')::TEXT::VARCHAR(3))", "MAX(CAST(CAST((s || 'x') AS STRING) AS VARCHAR(3)))"),
    ("SUM(v)::DOUBLE", "CAST(SUM(v) AS DOUBLE)"),
    ("MAX(SAFE_CAST(s AS INT))", "MAX(TRY_CAST(s AS INT))"),
    ("JSON_AGG(v)", "JSON_ARRAYAGG(v NULL ON NULL)"),
    (
        "JSONB_AGG(v ORDER BY o DESC) FILTER (WHERE f)",
        "JSON_ARRAYAGG(v ORDER BY o DESC NULL ON NULL) FILTER (WHERE f)",
    ),
    ("JSONB_OBJECT_AGG(k, v)", "JSON_OBJECTAGG(KEY k VALUE v NULL ON NULL)"),
    ("STRING_AGG(NULL)", "STRING_AGG(CAST(NULL AS STRING))"),
    ("BOOL_OR(NULL)", "BOOL_OR(CAST(NULL AS BOOLEAN))"),
    ("MAX(CAST(s AS VARCHAR(3)))", "MAX(LEFT(s, 3))"),
    ("MAX(CAST(v AS character ( 3 )))", "MAX(RPAD(CAST(v AS STRING), 3, ' '))"),
    ("MAX(TRY_CAST(s AS VARCHAR(3)))", "MAX(LEFT(s, 3))"),
    ("MAX(EXTRACT(EPOCH FROM t - u))", "MAX(TIMESTAMPDIFF(SECOND, u, t))"),
    ("MAX(t + v * INTERVAL '2' DAY)", "MAX(TIMESTAMPADD(DAY, v * 2, t))"),
    ("MAX(COALESCE(d, '2026-01-31'))", "MAX(COALESCE(d, DATE '2026-01-31'))"),
    ("MAX(IF(f, tm, '08:30:00'))", "MAX(CASE WHEN f THEN tm ELSE TIME '08:30:00' END)"),
]


@pytest.mark.parametrize(("written", "ours"), CALLS, ids=[case[0] for case in CALLS])
def test_a_call_has_the_plan_of_ours(written: str, ours: str) -> None:
    assert plan(f"SELECT {written} AS x FROM t") == plan(f"SELECT {ours} AS x FROM t")


CONDITIONS = [
    ("v == 1", "v = 1"),
    ("d > '2026-01-31'", "d > DATE '2026-01-31'"),
    ("'2026-01-31' <= t", "TIMESTAMP '2026-01-31 00:00:00' <= t"),
    ("t IN ('2026-01-31 08:30:00.5', NULL)", "t IN (TIMESTAMP '2026-01-31 08:30:00.5', NULL)"),
    ("z = '2026-01-31 05:00:00+05:00'", "z = TIMESTAMP_LTZ '2026-01-31 00:00:00Z'"),
    ("z = '2026-01-31 05:00:00+0500'", "z = TIMESTAMP_LTZ '2026-01-31 00:00:00Z'"),
    ("tm > '08:30'", "tm > TIME '08:30:00'"),
    (
        "tm BETWEEN '08:30:00' AND '09:00:00.10'",
        "tm >= TIME '08:30:00' AND tm <= TIME '09:00:00.1'",
    ),
    ("CASE d WHEN '2026-01-31' THEN f END", "CASE WHEN d = DATE '2026-01-31' THEN f END"),
    ("t - u > INTERVAL '90' SECOND", "t > u + INTERVAL '90' SECOND"),
    ("INTERVAL '1 hour' >= (t - u)", "t <= u + INTERVAL '1' HOUR"),
    (
        "t - u BETWEEN INTERVAL '0' DAY AND 2 * INTERVAL '1' DAY",
        "t >= u + INTERVAL '0' DAY AND t <= u + 2 * INTERVAL '1' DAY",
    ),
]


@pytest.mark.parametrize(("written", "ours"), CONDITIONS, ids=[case[0] for case in CONDITIONS])
def test_a_condition_has_the_plan_of_ours(written: str, ours: str) -> None:
    query = "SELECT COUNT(*) FROM t WHERE "
    assert plan(query + written) == plan(query + ours)


QUERIES = [
    (
        "SELECT k, SUM(v) AS s, UPPER(s) AS w FROM t GROUP BY ALL",
        "SELECT k, SUM(v) AS s, UPPER(s) AS w FROM t GROUP BY k, UPPER(s)",
    ),
    ("SELECT COUNT(*) FROM t GROUP BY ALL", "SELECT COUNT(*) FROM t"),
    (
        "WITH w AS (SELECT k, v + 1 AS u FROM t WHERE f), q AS (SELECT * FROM w WHERE u > 3) "
        "SELECT q.k, SUM(u) FROM q GROUP BY k",
        "SELECT k, SUM(v + 1) AS sum_u FROM t WHERE f AND v + 1 > 3 GROUP BY k",
    ),
    ("WITH t AS (SELECT v FROM t) SELECT SUM(v) FROM t", "SELECT SUM(v) FROM t"),
    (
        "SELECT DISTINCT ON (k) k, v, s AS w FROM t ORDER BY k, o DESC",
        "SELECT k, FIRST_VALUE(v RESPECT NULLS ORDER BY o DESC, v DESC, s DESC) AS v, "
        "FIRST_VALUE(s RESPECT NULLS ORDER BY o DESC, v DESC) AS w FROM t GROUP BY k",
    ),
    (
        "SELECT DISTINCT ON (k, o) v AS n FROM t ORDER BY n DESC",
        "SELECT FIRST_VALUE(v RESPECT NULLS ORDER BY v DESC) AS n FROM t GROUP BY k, o",
    ),
    (
        "SELECT DISTINCT ON (1, UPPER(s)) k, v, o AS n FROM t ORDER BY 2",
        "SELECT DISTINCT ON (k, UPPER(s)) k, v, o AS n FROM t ORDER BY v",
    ),
    ("SELECT DISTINCT ON (n) v, k AS n FROM t", "SELECT DISTINCT ON (k) v, k AS n FROM t"),
    (
        "SELECT DISTINCT ON (k) k, v FROM t ORDER BY 1, 2 DESC",
        "SELECT k, FIRST_VALUE(v RESPECT NULLS ORDER BY v DESC) AS v FROM t GROUP BY k",
    ),
]


NUMBERED = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY o DESC) AS n FROM t WHERE f)"
FIRST = (
    "SELECT k, FIRST_VALUE(v RESPECT NULLS ORDER BY o DESC, v DESC, s DESC) AS v, "
    "FIRST_VALUE(s RESPECT NULLS ORDER BY o DESC, v DESC) AS w FROM t WHERE f GROUP BY k"
)
QUERIES += [
    (f"SELECT k, v, s AS w FROM {NUMBERED} WHERE n = 1", FIRST),
    (f"SELECT r.K, r.v, r.s AS w FROM {NUMBERED} AS r WHERE (r.n < 2)", FIRST),
    (f"WITH r AS {NUMBERED} SELECT k, v, s AS w FROM r WHERE 1 = n", FIRST),
    (
        "SELECT t.k, v, s AS w FROM t WHERE f "
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY o DESC) <= 1",
        FIRST,
    ),
    (
        "SELECT y, x FROM (SELECT v + 1 AS x, o AS y, ROW_NUMBER() OVER (PARTITION BY UPPER(k), o "
        "ORDER BY d NULLS LAST) AS n FROM t) WHERE n = 1 AND x > 3",
        "SELECT o AS y, FIRST(v + 1 ORDER BY d NULLS LAST, v + 1, v + 1 > 3) AS x FROM t "
        "GROUP BY UPPER(k), o HAVING FIRST(v + 1 > 3 ORDER BY d NULLS LAST, v + 1)",
    ),
]


@pytest.mark.parametrize(("written", "ours"), QUERIES, ids=[case[0] for case in QUERIES])
def test_a_query_has_the_plan_of_ours(written: str, ours: str) -> None:
    assert plan(written) == plan(ours)


def test_with_may_be_a_side_of_a_join() -> None:
    sources: dict[str, dict[str, SqlType]] = {"a": {"k": STRING, "v": INT}, "b": {"k": STRING}}
    joined = "SELECT COUNT(*) FROM a JOIN {} ON a.k = w.k"
    written = "WITH w AS (SELECT k FROM b WHERE k <> 'x') " + joined.format("w")
    ours = joined.format("(SELECT k FROM b WHERE k <> 'x') AS w")
    assert parse_joins(written, sources) == parse_joins(ours, sources)


def test_with_cannot_grow_without_a_bound() -> None:
    tables = ["w0 AS (SELECT v FROM t)"]
    tables += [
        f"w{n} AS (SELECT v FROM w{n - 1} WHERE v IN (SELECT v FROM w{n - 1}))"
        for n in range(1, 40)
    ]
    with pytest.raises(QueryError, match=f"larger than {EXPRESSION_NODES_MAX} parts"):
        plan(f"WITH {', '.join(tables)} SELECT SUM(v) FROM w39")


def test_names_of_types_of_other_engines() -> None:
    names = {"REAL": "FLOAT", "int8": "BIGINT", "NUMERIC(5, 2)": "DECIMAL(5, 2)", "Text": "STRING"}
    assert {name: str(SqlType.parse(name)) for name in names} == names
    for name in ("NUMERIC", "INT3", "FLOAT2", "INT88"):
        with pytest.raises(ValueError, match=r"NUMERIC\(p, s\)|unknown type|is not a type"):
            SqlType.parse(name)


def test_unsigned_integers_are_the_type_that_holds_them() -> None:
    names = {"TINYINT UNSIGNED": "SMALLINT", "int  unsigned": "BIGINT", "UBIGINT": "DECIMAL(20, 0)"}
    assert {name: str(SqlType.parse(name)) for name in names} == names


@pytest.mark.parametrize(
    "call",
    [
        "JSON_ARRAYAGG(v ORDER BY o DESC NULL ON NULL) FILTER (WHERE f)",
        "JSON_OBJECTAGG(k, v ABSENT ON NULL)",
        "COUNT(DISTINCT ROW(v, s))",
        "COUNT(DISTINCT ROW(v))",
        "CORR(v, o) FILTER (WHERE f)",
        "BIT_XOR(DISTINCT v)",
        "LAST(s ORDER BY v, o DESC)",
        "COUNT(*) FILTER (WHERE tm > '08:30:00' AND z < '2026-01-31 00:00:00.5+01:00')",
    ],
)
def test_a_call_printed_as_sql_is_read_as_the_same(call: str) -> None:
    made = plan(f"SELECT k, {call} AS x FROM t GROUP BY k")
    assert plan(plan_sql(made)) == made
