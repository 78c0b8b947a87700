"""Queries: accepted ones with their types, and refused ones with the position of the problem.

`vectors`: the queries of the outside vectors. `accepted`, `refused`: one rule each. `hostile`:
texts that try to escape the grammar. Last, properties: a plan printed as SQL parses to the same
plan, and any text gives a plan or a QueryError with a position.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.core.plan.tree import Call, Case, Cast, Column, Compare, Constant, Logical, Plan
from jobs.core.plan.walk import plan_can_fail
from jobs.core.sql.printer import expression_sql
from jobs.core.sql.select import QueryError, QueryProblem, parse_query
from schemas.limits import QUERY_CHARACTERS_MAX
from schemas.types.sql_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIME,
    TINYINT,
    SqlType,
    decimal,
    timestamp,
)
from tests.support.examples import examples
from tests.support.histories import random_queries
from tests.support.histories.plan_sql import plan_sql

COLUMNS: dict[str, SqlType] = {
    "id": BIGINT,
    "name": STRING,
    "cnt": INT,
    "Cased": STRING,
    "t": TINYINT,
    "h": SMALLINT,
    "price": decimal(10, 2),
    "f": FLOAT,
    "d": DOUBLE,
    "ok": BOOLEAN,
    "day": DATE,
    "at": timestamp(3),
    "fine": timestamp(9),
    "clock": TIME,
    "raw": BINARY,
}


def plan(sql: str) -> Plan:
    return parse_query(sql, COLUMNS)


def problems(sql: str, columns: dict[str, SqlType] | None = None) -> list[QueryProblem]:
    with pytest.raises(QueryError) as caught:
        parse_query(sql, COLUMNS if columns is None else columns)
    return caught.value.problems


def argument_type(expression: str) -> SqlType:
    return plan(f"SELECT MAX({expression}) AS x FROM t").arguments[0].type


def result_types(made: Plan) -> list[str]:
    """Return the types as Flink prints them; counts are never NULL."""
    types = {named.name: str(named.type) for named in made.group}
    for aggregate in made.aggregates:
        never_null = " NOT NULL" if aggregate.function == "COUNT" else ""
        types[aggregate.name] = f"{aggregate.type}{never_null}"
    return [f"{name} {types[name]}" for name in made.output]


# --- vectors -------------------------------------------------------------------------------------

LATER = ("FIRST_VALUE", "HAVING")  # FIRST_VALUE by arrival is refused


def test_queries_of_the_outside_vectors_have_flinks_result_types(oracle: Path) -> None:
    vectors = json.loads((oracle / "sql_vectors.json").read_text())["vectors"]
    taken = 0
    for vector in vectors:
        columns = dict.fromkeys(vector["cols"], STRING)
        if any(word in vector["sql"] for word in LATER):
            assert all(problem.column > 1 for problem in problems(vector["sql"], columns))
            continue
        made = parse_query(vector["sql"], columns)
        assert result_types(made) == vector["result_types"], vector["id"]
        taken += 1
    assert taken >= 29


def test_the_query_of_the_first_example() -> None:
    made = plan("select name, sum(cnt), max(cnt) from table1 group by name")
    assert made.output == ("name", "sum_cnt", "max_cnt")
    assert made.used == (Column("name", STRING), Column("cnt", INT))
    assert [named.name for named in made.arguments] == ["cnt"]
    assert [aggregate.argument for aggregate in made.aggregates] == [0, 0]
    assert made.where is None
    assert made.unselected == ()


# --- accepted: names and shapes ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ("COUNT(*), COUNT(cnt), SUM(cnt), SUM(cnt)", "count count_cnt sum_cnt sum_cnt_2"),
        ("COUNT(1), COUNT(*) AS n", "count n"),
        ("SUM(CAST(cnt AS BIGINT)), AVG(price * cnt)", "sum_cnt avg_price_cnt"),
        ("SUM(cnt) AS count, COUNT(*)", "count count_2"),
        ("SUM(cnt) total", "total"),
        ("SUM(cnt) FILTER (WHERE ok), SUM(1)", "sum_cnt sum"),
        ("MAX(UPPER(name))", "max_upper_name"),
        ("SUM(cnt) AS `select`", "select"),
    ],
)
def test_results_are_named_by_as_or_by_function_and_column(items: str, names: str) -> None:
    assert plan(f"SELECT {items} FROM t").output == tuple(names.split())


@pytest.mark.parametrize(
    "source", ["table1", "`table`", "table", '"weird name"', "T AS x", "`a.b`", "source"]
)
def test_from_takes_any_one_identifier(source: str) -> None:
    assert plan(f"SELECT COUNT(*) FROM {source}").output == ("count",)


def test_names_match_exactly_first_and_then_without_case() -> None:
    assert plan("SELECT NAME, COUNT(*) FROM t GROUP BY Name").group[0].expression == Column(
        "name", STRING
    )
    both = {"k": STRING, "K": INT}
    assert parse_query("SELECT MAX(K) FROM t", both).aggregates[0].type == INT
    assert parse_query("SELECT MAX(k) FROM t", both).aggregates[0].type == STRING
    (problem,) = problems("SELECT MAX(kk) FROM t", {"kK": INT, "Kk": INT})
    assert "use the exact case" in problem.message


def test_a_column_may_be_qualified_by_the_table_or_its_alias() -> None:
    assert plan("SELECT x.name, SUM(x.cnt) FROM t x GROUP BY x.name") == plan(
        "SELECT t.name, SUM(t.cnt) FROM t GROUP BY name"
    )
    (problem, *_) = problems("SELECT y.name FROM t x GROUP BY name")
    assert "unknown table `y`; known: `x`" in problem.message


def test_group_by_position_and_alias_are_the_expression() -> None:
    written = plan("SELECT UPPER(name) AS u, COUNT(*) FROM t GROUP BY UPPER(name)")
    assert plan("SELECT UPPER(name) AS u, COUNT(*) FROM t GROUP BY 1") == written
    assert plan("SELECT UPPER(name) AS u, COUNT(*) FROM t GROUP BY u") == written


def test_a_column_wins_over_an_alias_of_the_same_name_in_group_by() -> None:
    made = plan("SELECT UPPER(name) AS name, COUNT(*) FROM t GROUP BY name")
    assert [expression_sql(named.expression) for named in made.group] == ["name", "UPPER(name)"]
    assert made.output == ("name", "count")
    assert made.unselected == ("name_2",)


def test_what_follows_from_the_key_joins_the_key() -> None:
    made = plan("SELECT UPPER(name) || '!' AS u, 'x' AS label, COUNT(*) FROM t GROUP BY name")
    assert [named.name for named in made.group] == ["name", "u", "label"]
    assert made.unselected == ("name",)


def test_a_group_column_may_be_hidden_and_a_query_may_have_no_aggregate() -> None:
    made = plan("SELECT COUNT(*) FROM t GROUP BY name, cnt % 2")
    assert made.unselected == ("name", "cnt")
    assert plan("SELECT name FROM t GROUP BY name").aggregates == ()


def test_no_group_by_is_one_group() -> None:
    made = plan("SELECT COUNT(*) AS c, SUM(cnt) AS s FROM t")
    assert made.group == ()
    assert made.output == ("c", "s")


def test_select_distinct_groups_by_what_it_selects() -> None:
    distinct = parse_query("SELECT DISTINCT name, cnt + 1 AS more FROM t", COLUMNS)
    assert distinct == parse_query("SELECT name, cnt + 1 AS more FROM t GROUP BY 1, 2", COLUMNS)
    with_key = parse_query("SELECT DISTINCT name, COUNT(*) FROM t GROUP BY name", COLUMNS)
    assert with_key == parse_query("SELECT name, COUNT(*) FROM t GROUP BY name", COLUMNS)
    one_row = parse_query("SELECT DISTINCT COUNT(*) FROM t", COLUMNS)
    assert one_row == parse_query("SELECT COUNT(*) FROM t", COLUMNS)


def test_grouping_sets_are_written_out() -> None:
    rollup = parse_query("SELECT name, COUNT(*) FROM t GROUP BY cnt, ROLLUP(name, id)", COLUMNS)
    sets = "GROUPING SETS ((cnt, name, id), (cnt, name), (cnt))"
    assert rollup == parse_query(f"SELECT name, COUNT(*) FROM t GROUP BY {sets}", COLUMNS)
    assert (rollup.grouping_sets, rollup.copies_per_row) == (3, 3)
    assert [named.name for named in rollup.group] == ["cnt", "name", "id", "grouping_id"]
    assert parse_query(plan_sql(rollup), COLUMNS) == rollup


def test_equal_grouping_sets_have_numbers_and_count_once_with_distinct() -> None:
    query = "SELECT name, COUNT(*) FROM t GROUP BY {} GROUPING SETS ((name), name)"
    once = parse_query(query.format("DISTINCT"), COLUMNS)
    assert once == parse_query("SELECT name, COUNT(*) FROM t GROUP BY name", COLUMNS)
    twice = parse_query(query.format(""), COLUMNS)
    assert [named.name for named in twice.group] == ["name", "grouping_id", "group_id"]
    assert parse_query(plan_sql(twice), COLUMNS) == twice
    assert not plan_can_fail(twice)
    cube = "SELECT COUNT(*) FROM t GROUP BY {} CUBE(name, id), ROLLUP(name)"
    sets = [parse_query(cube.format(word), COLUMNS).grouping_sets for word in ("", "DISTINCT")]
    assert sets == [8, 4]


def test_derived_tables_nest() -> None:
    nested = (
        "SELECT n, MAX(d) FROM (SELECT n, c * 2 AS d FROM (SELECT name AS n, cnt AS c FROM t "
        "WHERE ok) WHERE c > 1) WHERE d < 9 GROUP BY n"
    )
    flat = (
        "SELECT name AS n, MAX(cnt * 2) AS max_d FROM t "
        "WHERE ok AND cnt > 1 AND cnt * 2 < 9 GROUP BY name"
    )
    assert plan_sql(parse_query(nested, COLUMNS)) == plan_sql(parse_query(flat, COLUMNS))


def test_filter_becomes_a_case_in_the_argument() -> None:
    made = plan("SELECT SUM(cnt) FILTER (WHERE ok) AS s, COUNT(*) FILTER (WHERE ok) AS c FROM t")
    cnt, ok = Column("cnt", INT), Column("ok", BOOLEAN)
    assert [named.expression for named in made.arguments] == [
        Case(((ok, cnt),), None, INT),
        Case(((ok, Constant(1, INT)),), None, INT),
    ]
    assert [aggregate.function for aggregate in made.aggregates] == ["SUM", "COUNT"]


def test_equal_arguments_are_shared_and_named_after_their_column() -> None:
    made = plan(
        "SELECT SUM(CAST(name AS INT)) AS a, MAX(CAST(name AS INT)) AS b, "
        "MIN(CAST(name AS BIGINT)) AS c, AVG(cnt + 1) AS mean FROM t"
    )
    assert [named.name for named in made.arguments] == ["name", "name_2", "mean"]
    assert [aggregate.argument for aggregate in made.aggregates] == [0, 0, 1, 2]


def test_counting_a_constant_counts_rows() -> None:
    made = plan("SELECT COUNT(1) AS a, COUNT('x') AS b, COUNT(TRUE) FILTER (WHERE ok) AS c FROM t")
    assert [aggregate.argument for aggregate in made.aggregates] == [None, None, 0]


def test_a_derived_table_is_written_into_the_query() -> None:
    derived = plan(
        "SELECT k, SUM(v) AS s FROM (SELECT name AS k, CAST(price AS INT) AS v FROM t WHERE ok) x "
        "WHERE x.v > 3 GROUP BY x.k"
    )
    flat = plan(
        "SELECT name AS k, SUM(CAST(price AS INT)) AS s FROM t "
        "WHERE ok AND CAST(price AS INT) > 3 GROUP BY name"
    )
    assert derived == flat
    assert isinstance(derived.where, Logical)


def test_results_over_a_derived_table_are_named_after_its_columns() -> None:
    made = plan(
        "SELECT cnt, V, SUM(v), COUNT(cnt) "
        "FROM (SELECT name AS cnt, CAST(cnt AS INT) + 1 AS v FROM t) GROUP BY cnt, v"
    )
    assert made.output == ("cnt", "v", "sum_v", "count_cnt")
    assert made.group[0].expression == Column("name", STRING)


def test_a_derived_star_brings_all_columns() -> None:
    made = plan("SELECT name, SUM(v) AS s FROM (SELECT *, cnt * 2 AS v FROM t) GROUP BY name")
    assert [column.name for column in made.used] == ["name", "cnt"]


def test_used_columns_are_in_declared_order_and_only_those_read() -> None:
    made = plan("SELECT name, MAX(cnt) FROM t WHERE id > 1 GROUP BY name, day")
    assert [column.name for column in made.used] == ["id", "name", "cnt", "day"]
    assert len(made.columns) == len(COLUMNS)


def test_comments_and_a_last_semicolon_are_nothing() -> None:
    text = "-- by name\nSELECT name /* the key */, COUNT(*) FROM t GROUP BY name;"
    assert plan(text) == plan("SELECT name, COUNT(*) FROM t GROUP BY name")


# --- accepted: types -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1", "INT"),
        ("-2147483648", "INT"),
        ("2147483648", "BIGINT"),
        ("-9223372036854775808", "BIGINT"),
        ("9223372036854775808", "DECIMAL(19, 0)"),
        ("1.50", "DECIMAL(3, 2)"),
        ("0.05", "DECIMAL(2, 2)"),
        ("1e3", "DOUBLE"),
        ("'x'", "STRING"),
        ("X'00ff'", "BINARY"),
        ("DATE '2024-02-29'", "DATE"),
        ("TIMESTAMP '2024-02-29 12:00:00'", "TIMESTAMP(0)"),
        ("TIMESTAMP '2024-02-29 12:00:00.123'", "TIMESTAMP(3)"),
        ("t + t", "TINYINT"),
        ("t + h", "SMALLINT"),
        ("t + cnt", "INT"),
        ("cnt * id", "BIGINT"),
        ("cnt / 2", "INT"),
        ("cnt + f", "FLOAT"),
        ("price + f", "DOUBLE"),
        ("f + d", "DOUBLE"),
        ("price + price", "DECIMAL(11, 2)"),
        ("price + 1", "DECIMAL(13, 2)"),
        ("price * price", "DECIMAL(21, 4)"),
        ("price / price", "DECIMAL(23, 13)"),
        ("price % 3.5", "DECIMAL(3, 2)"),
        ("price * CAST(price AS DECIMAL(38, 10))", "DECIMAL(38, 6)"),
        ("price + NULL", "DECIMAL(11, 2)"),
        ("-price", "DECIMAL(10, 2)"),
        ("cnt > 1", "BOOLEAN"),
        ("COALESCE(t, NULL, cnt)", "INT"),
        ("COALESCE(price, cnt)", "DECIMAL(12, 2)"),
        ("CASE WHEN ok THEN 1 WHEN cnt > 3 THEN 2.5 END", "DECIMAL(11, 1)"),
        ("IF(ok, NULL, name)", "STRING"),
        ("NULLIF(cnt, 0)", "INT"),
        ("GREATEST(id, cnt)", "BIGINT"),
        ("name || 'x'", "STRING"),
        ("LENGTH(name)", "INT"),
        ("YEAR(day)", "BIGINT"),
        ("EXTRACT(HOUR FROM at)", "BIGINT"),
        ("FLOOR(price)", "DECIMAL(10, 0)"),
        ("FLOOR(d)", "DOUBLE"),
        ("ROUND(price, 1)", "DECIMAL(10, 1)"),
        ("ROUND(price)", "DECIMAL(9, 0)"),
        ("CAST(name AS DECIMAL(10, 3))", "DECIMAL(10, 3)"),
        ("CAST(name AS VARCHAR)", "STRING"),
        ("TRY_CAST(name AS TIMESTAMP(3))", "TIMESTAMP(3)"),
        ("CAST(at AS TIMESTAMP_LTZ(6))", "TIMESTAMP_LTZ(6)"),
        ("CASE WHEN ok THEN fine END", "TIMESTAMP(9)"),
    ],
)
def test_expressions_have_flinks_types(expression: str, expected: str) -> None:
    assert str(argument_type(expression)) == expected


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        ("SUM(t)", "TINYINT"),
        ("SUM(price)", "DECIMAL(38, 2)"),
        ("SUM(f)", "FLOAT"),
        ("AVG(id)", "BIGINT"),
        ("AVG(f)", "FLOAT"),
        ("AVG(d)", "DOUBLE"),
        ("AVG(price)", "DECIMAL(38, 6)"),
        ("AVG(CAST(price AS DECIMAL(20, 9)))", "DECIMAL(38, 9)"),
        ("COUNT(raw)", "BIGINT"),
        ("MAX(ok)", "BOOLEAN"),
        ("MIN(raw)", "BINARY"),
        ("MAX(clock)", "TIME"),
        ("MAX(fine)", "TIMESTAMP(9)"),
    ],
)
def test_aggregates_have_their_result_types(aggregate: str, expected: str) -> None:
    assert str(plan(f"SELECT {aggregate} AS x FROM t").aggregates[0].type) == expected


def test_implicit_casts_are_written_out() -> None:
    made = plan("SELECT COUNT(*) FROM t WHERE cnt > id AND price = 1")
    assert made.where is not None
    assert expression_sql(made.where) == (
        "CAST(cnt AS BIGINT) > id AND CAST(price AS DECIMAL(12, 2)) = CAST(1 AS DECIMAL(12, 2))"
    )


def test_a_cast_to_the_same_type_is_nothing() -> None:
    (argument,) = plan("SELECT MAX(CAST(cnt AS INTEGER)) FROM t").arguments
    assert argument.expression == Column("cnt", INT)
    (argument,) = plan("SELECT MAX(CAST(cnt AS BIGINT)) FROM t").arguments
    assert argument.expression == Cast(Column("cnt", INT), BIGINT)


def test_is_true_is_never_unknown() -> None:
    made = plan("SELECT COUNT(*) FROM t WHERE ok IS TRUE")
    assert made.where == Call(
        "COALESCE", (Column("ok", BOOLEAN), Constant(False, BOOLEAN)), BOOLEAN
    )


def test_a_backslash_in_a_string_is_a_backslash() -> None:
    made = plan(r"SELECT COUNT(*) FROM t WHERE name = 'a\'")
    assert made.where == Compare("=", Column("name", STRING), Constant("a\\", STRING), BOOLEAN)


# --- refused -------------------------------------------------------------------------------------

REFUSED = [
    # text, column of the problem, part of the message with its hint
    ("", 1, "the query is empty"),
    ("DROP TABLE t", 1, "starts with SELECT, not with 'DROP'"),
    ("WITH x AS (SELECT 1) SELECT a FROM x", 19, "a query needs FROM"),
    ("WITH x AS (SELECT 1 FROM t) SELECT COUNT(*) FROM t", 6, "which no FROM names"),
    ("WITH RECURSIVE x AS (SELECT 1 FROM x) SELECT COUNT(*) FROM x", 16, "RECURSIVE"),
    ("WITH x(a) AS (SELECT 1 FROM t) SELECT COUNT(*) FROM x", 6, "WITH needs a name and one"),
    ("WITH x AS (SELECT name FROM t GROUP BY name) SELECT COUNT(*) FROM x", 40, "GROUP BY in a"),
    ("SELECT COUNT(*)", 8, "needs FROM"),
    ("SELECT name FROM t", 8, "needs GROUP BY or an aggregate"),
    ("SELECT * FROM t", 8, "name the columns"),
    ("SELECT t.* FROM t", 8, "name the columns"),
    ("SELECT DISTINCT ON (name) MAX(cnt) FROM t", 21, "cannot have GROUP BY or aggregates"),
    (
        "SELECT DISTINCT COUNT(*) FROM t GROUP BY name",
        17,
        "DISTINCT lacks the key `name` of GROUP BY",
    ),
    ("SELECT COUNT(*) FROM (SELECT DISTINCT name FROM t)", 39, "let a second job"),
    ("SELECT name, cnt FROM t GROUP BY name", 14, "`cnt` is neither in GROUP BY"),
    ("SELECT name, cnt + 1 FROM t GROUP BY name", 14, "GROUP BY cnt, or MAX(cnt)"),
    ("SELECT name, COUNT(*) FROM t", 8, "`name` is neither in GROUP BY"),
    ("SELECT nam, COUNT(*) FROM t GROUP BY name", 8, "unknown column `nam` (try: name)"),
    ("SELECT name, SUM(MAX(cnt)) FROM t GROUP BY name", 18, "an aggregate inside an aggregate"),
    ("SELECT name, COUNT(*) FROM t WHERE SUM(cnt) > 1 GROUP BY name", 36, "possible in WHERE"),
    ("SELECT COUNT(*) AS c FROM t GROUP BY c", 38, "GROUP BY cannot contain an aggregate"),
    ("SELECT COUNT(*) FROM t GROUP BY 2", 33, "is not a position from 1 to 1"),
    ("SELECT MODE(DISTINCT cnt) FROM t", 8, "has no meaning"),
    ("SELECT GROUPING(cnt) FROM t GROUP BY ROLLUP(name)", 8, "GROUPING needs columns of GROUP BY"),
    ("SELECT COUNT(*) FROM t WHERE GROUPING(name) = 0", 30, "only possible in SELECT and HAVING"),
    ("SELECT SUM(GROUPING(name)) FROM t GROUP BY name", 12, "not in SUM"),
    ("SELECT name, COUNT(*) FROM t GROUP BY name WITH ROLLUP", 39, "(try: GROUP BY ROLLUP(a, b)"),
    ("SELECT 1 FROM t GROUP BY CUBE(id, name, cnt, day, ok, price, cnt + 1)", 31, "at most 6"),
    ("SELECT cnt, COUNT(*) FROM t GROUP BY ROLLUP(name)", 8, "`cnt` is neither in GROUP BY"),
    ("SELECT DISTINCT name FROM t GROUP BY ROLLUP(name)", 17, "lacks the key `grouping_id`"),
    ("SELECT GROUPING() FROM t GROUP BY ROLLUP(name)", 8, "wrong number of arguments (0)"),
    ("SELECT name, COUNT(*) FROM t GROUP BY name HAVING COUNT(*)", 51, "HAVING needs a condition"),
    ("SELECT name FROM t GROUP BY name HAVING cnt > 1", 41, "`cnt` is neither in GROUP BY"),
    ("SELECT name FROM t HAVING name > 'a'", 8, "needs GROUP BY or an aggregate"),
    ("SELECT COUNT(*) FROM t HAVING nam > 'a'", 31, "unknown column `nam` (try: name)"),
    ("SELECT COUNT(*) FROM (SELECT cnt FROM t HAVING cnt > 1)", 48, "HAVING in a derived table"),
    ("SELECT MAX(cnt) + id FROM t GROUP BY name", 19, "`id` is neither in GROUP BY"),
    ("SELECT COUNT(*) + NOW() FROM t", 19, "NOW is not deterministic"),
    ("SELECT SUM(MAX(cnt) + 1) FROM t", 12, "an aggregate inside an aggregate"),
    ("SELECT COUNT(*) FROM t WHERE COUNT(*) + 1 > 2", 30, "an aggregate is not possible in WHERE"),
    ("SELECT COUNT(*) + 1 AS n FROM t GROUP BY n", 42, "GROUP BY cannot contain an aggregate"),
    ("SELECT name, COUNT(*) FROM t GROUP BY name ORDER BY name", 53, "has no order"),
    ("SELECT name, COUNT(*) FROM t GROUP BY name LIMIT 3", 50, "LIMIT needs an order"),
    ("SELECT COUNT(*) FROM t UNION SELECT COUNT(*) FROM t", 1, "one SELECT, this is UNION"),
    ("SELECT COUNT(*) FROM t JOIN u ON TRUE", 29, "the job reads one (try: sources: {a:"),
    ("SELECT COUNT(*) FROM t, u", 25, "the job reads one (try: sources: {a:"),
    ("SELECT COUNT(*) FROM db.t", 22, "FROM needs one name"),
    ("SELECT COUNT(*) FROM t TABLESAMPLE (10 PERCENT)", 37, "SAMPLE is not supported here"),
    ("SELECT COUNT(*) FROM t FOR SYSTEM_TIME AS OF '2024'", 46, "is not supported"),
    ("SELECT SUM(cnt) OVER (PARTITION BY name) FROM t", 8, "OVER (...) is not supported"),
    ("SELECT MAX(c) FROM (SELECT COUNT(*) AS c FROM t)", 28, "possible in a derived table"),
    ("SELECT MAX(n) FROM (SELECT name AS n FROM t GROUP BY name)", 54, "a second job"),
    ("SELECT MAX(c) FROM (SELECT cnt + 1 FROM t)", 28, "needs a name (try: AS name)"),
    ("SELECT MAX(cnt IN (SELECT 1)) FROM t", 12, "only possible in FROM"),
    ("SELECT COUNT(*) FROM t WHERE EXISTS (SELECT 1)", 45, "a query needs FROM"),
    ("SELECT MAX(NOW()) FROM t", 12, "NOW is not deterministic"),
    ("SELECT MAX(CURRENT_TIMESTAMP) FROM t", 8, "CURRENT_TIMESTAMP is not deterministic"),
    ("SELECT MAX(RAND()) FROM t", 12, "RAND is not deterministic"),
    ("SELECT MAX(UUID()) FROM t", 12, "UUID is not deterministic"),
    ("SELECT MAX(UPER(name)) FROM t", 12, "unknown function UPER (try: UPPER)"),
    ("SELECT LISTAGG(cnt) FROM t", 16, "needs a STRING"),
    ("SELECT SUM(name) FROM t", 12, "SUM needs numbers, this is STRING (try: CAST"),
    ("SELECT AVG(ok) FROM t", 12, "AVG needs numbers, this is BOOLEAN"),
    (
        "SELECT MAX(GREATEST(NULL, NULL)) FROM t",
        12,
        "NULL has no type here (try: CAST(NULL AS INT)",
    ),
    ("SELECT SUM(cnt, id) FROM t", 8, "SUM has one argument"),
    ("SELECT SUM() FROM t", 8, "SUM has one argument"),
    ("SELECT COUNT(*) FROM t WHERE name = 1", 30, "= mixes STRING and INT (try: CAST"),
    ("SELECT COUNT(*) FROM t WHERE day > '2024-13-01'", 30, "'2024-13-01' is not a date"),
    ("SELECT COUNT(*) FROM t WHERE at IN ('x')", 30, "'x' is not a timestamp"),
    ("SELECT COUNT(*) FROM t WHERE at > '2024-01-01 00:00:00Z'", 30, "is not a timestamp"),
    ("SELECT COUNT(*) FROM t WHERE fine > '2024-01-01 00:00:00'", 30, "does not support TIMESTAMP"),
    ("SELECT COUNT(*) FROM t WHERE at - at > INTERVAL '1' MONTH", 30, "no fixed length"),
    ("SELECT COUNT(*) FROM t WHERE cnt", 30, "WHERE needs a condition, this is INT"),
    ("SELECT COUNT(*) FROM t WHERE ok AND name", 30, "AND needs a condition, this is STRING"),
    ("SELECT MAX(name + 1) FROM t", 12, "+ needs numbers, this is STRING"),
    ("SELECT MAX(-name) FROM t", 13, "- needs a number"),
    ("SELECT MAX(cnt || 'x') FROM t", 12, "CONCAT needs a STRING, this is INT (try: CAST"),
    ("SELECT MAX(CAST(ok AS DATE)) FROM t", 12, "BOOLEAN cannot be CAST to DATE"),
    ("SELECT MAX(CAST(name AS WHATEVER)) FROM t", 12, "unknown type 'WHATEVER'"),
    ("SELECT MAX(CAST(raw AS VARBINARY(3))) FROM t", 12, "CAST to VARBINARY(3) is not supported"),
    ("SELECT MAX(CAST(name AS DECIMAL(50, 2))) FROM t", 12, "use a precision from 1 to 38"),
    ("SELECT MAX(CAST(name AS ROW<a INT>)) FROM t", 12, "is not a type"),
    ("SELECT MAX(cnt::WHATEVER) FROM t", 12, "unknown type 'WHATEVER'"),
    ("SELECT MAX(cnt::numeric) FROM t", 17, "the digits of x::numeric (try: x::DECIMAL(p, s))"),
    ("SELECT MAX(cnt::) FROM t", 17, "cannot read the query near"),
    ("SELECT MAX(cnt::5) FROM t", 17, "cannot read the query near"),
    ("SELECT MAX(CAST(fine AS STRING)) FROM t", 12, "CAST does not support TIMESTAMP(9)"),
    ("SELECT COUNT(*) FROM t WHERE clock > '10'", 30, "is not a valid TIME"),
    ("SELECT MAX(CAST(cnt AS INT UNSIGNED)) FROM t", 12, "nothing is unsigned (try: BIGINT)"),
    ("SELECT MAX(YEAR(fine)) FROM t", 12, "YEAR does not support TIMESTAMP(9)"),
    ("SELECT MAX(HOUR(day)) FROM t", 12, "HOUR needs a TIMESTAMP, this is DATE"),
    ("SELECT MAX(ROUND(price, cnt)) FROM t", 12, "must be a literal whole number"),
    ("SELECT MAX(SUBSTRING(name)) FROM t", 22, "wrong number of arguments (1)"),
    ("SELECT MAX(DATE '2024-02-30') FROM t", 17, "is not a date"),
    ("SELECT MAX(TIMESTAMP 'now') FROM t", 22, "is not a timestamp"),
    ("SELECT MAX(INTERVAL '1' DAY) FROM t", 21, "an INTERVAL is only possible"),
    ("SELECT MAX(99999999999999999999999999999999999999999) FROM t", 12, "at most 38 digits"),
    ("SELECT MAX(1e999) FROM t", 12, "beyond the range of DOUBLE"),
    ("SELECT COUNT(*) FROM t WHERE name LIKE name", 30, "LIKE needs a string literal"),
    ("SELECT COUNT(*) FROM t WHERE name LIKE 'a!' ESCAPE '!'", 30, "must be followed by"),
    ("SELECT COUNT(*) FROM t WHERE name LIKE 'a' ESCAPE '!!'", 30, "takes one character"),
    ("SELECT COUNT(*) FROM t WHERE name ILIKE 'a'", 30, "ILIKE is not supported"),
    ("SELECT COUNT(*) AS n, COUNT(*) AS N FROM t", 23, "differs from `N` in case"),
    ("SELECT name, UPPER(name) AS name, COUNT(*) FROM t GROUP BY name", 14, "have the name `name`"),
    ("SELECT COUNT(*) AS epoch FROM t", 8, "`epoch` is a column of the job's own table"),
    ("SELECT raw, COUNT(*) FROM t GROUP BY raw", 8, "(try: AS raw_, or another name)"),
    ("SELECT COUNT(*) AS `a b` FROM t", 8, "'a b' cannot be the name of a column"),
    ("SELECT COUNT(*) AS `1` FROM t", 8, "and no digit first"),
    ("SELECT COUNT(*) AS " + "n" * 64 + " FROM t", 8, "at most 63"),
    ("SELECT COUNT(* FROM t", 16, "cannot read the query near 'FROM t'"),
    ("SELECT COUNT(*) FROM t WHERE", 24, "cannot read the query"),
    ("SELECT COUNT(*) FROM t WHERE name = 'x", 37, "opened and never closed"),
    ("SELECT COUNT(*) /* FROM t", 17, "opened and never closed"),
    ("SELECT 'a' 'b', COUNT(*) FROM t", 8, "CONCAT is not supported"),
    ("SELECT COUNT(*) FROM t WHERE name SIMILAR TO 'a'", 30, "unlimited time on one row"),
    ("SELECT MAX(SIN(cnt)) FROM t", 12, "its last digit may differ"),
    ("SELECT MAX(LPAD(name, cnt, ' ')) FROM t", 12, "a literal from 0 to 10000"),
    ("SELECT MAX(JSON_VALUE(name, 'a.b')) FROM t", 12, "JSON_VALUE needs a literal path"),
    ("SELECT MAX(DATE_FORMAT(DATE '2024-01-01', 'EEE')) FROM t", 12, "a literal format of yyyy MM"),
    ("SELECT MAX(DATE_FORMAT(DATE '2024-01-01', 'MMMM')) FROM t", 12, "a literal format of yyyy"),
    ("SELECT MAX(TIMESTAMPADD(FORTNIGHT, 1, DATE '2024-01-01')) FROM t", 12, "a unit of time"),
    ("SELECT MAX(DATE '2024-01-01' - INTERVAL '1' HOUR) FROM t", 17, "a DATE has no"),
    ("SELECT MAX(DATE '2024-01-01' + INTERVAL '1' CENTURY) FROM t", 17, "unit of an interval"),
    ("SELECT MAX(cnt * INTERVAL '1' DAY) FROM t", 12, "can only be added to a moment"),
    ("SELECT /*+ STATE_TTL('t' = '1s') */ COUNT(*) FROM t", 8, "is not part of this SQL"),
    ("SELECT COUNT(*) FROM t |> WHERE ok", 24, "'|>' is not part of this SQL"),
    ("SELECT MAX(name[1]) FROM t", 12, "an element of an ARRAY is not supported"),
    ("SELECT MAX(:x) FROM t", 12, "':' is not part of this SQL"),
    ("SELECT MAX(?) FROM t", 12, "'?' is not part of this SQL"),
    ("SELECT MAX(cnt) FROM t WHERE cnt & 1 = 1", 34, "'&' is not part of this SQL"),
]


MORE_REFUSED = [
    (sql, int(column), message)
    for sql, column, message in (
        line.split("\t")
        for line in (Path(__file__).parent / "refused_queries.tsv").read_text("utf-8").splitlines()
        if not line.startswith("#")
    )
]


def test_two_hundred_queries_are_refused_here() -> None:
    assert len({sql for sql, *_ in (*REFUSED, *MORE_REFUSED)}) >= 200


@pytest.mark.parametrize(
    ("sql", "column", "message"), MORE_REFUSED, ids=[case[0] for case in MORE_REFUSED]
)
def test_a_refusal_says_what_is_wrong_where_and_what_would_do(
    sql: str, column: int, message: str
) -> None:
    first = problems(sql)[0]
    hint = f" (try: {first.hint})" if first.hint else ""
    assert (first.line, first.column, first.message + hint) == (1, column, message)


@pytest.mark.parametrize(("sql", "column", "message"), REFUSED, ids=[case[0] for case in REFUSED])
def test_what_is_not_supported_is_refused_with_its_place(
    sql: str, column: int, message: str
) -> None:
    first = problems(sql)[0]
    assert message in str(first)
    assert (first.line, first.column) == (1, column)


def test_a_reserved_name_is_fine_for_a_hidden_group_column() -> None:
    made = parse_query("SELECT COUNT(*) FROM t GROUP BY op", {"op": STRING})
    assert made.unselected == ("op_2",)
    assert parse_query("SELECT op AS kind, COUNT(*) FROM t GROUP BY op", {"op": STRING}).output == (
        "kind",
        "count",
    )


def test_one_answer_names_all_problems_with_line_and_column() -> None:
    found = problems("SELECT nam,\n  SUM(name),\n  NOW()\nFROM t\nGROUP BY nothing")
    assert [(problem.line, problem.column) for problem in found] == [
        (1, 8),
        (2, 7),
        (3, 3),
        (5, 10),
    ]


def test_deep_and_long_queries_are_refused_before_they_cost_anything() -> None:
    deep = "SELECT MAX(" + "(" * 5000 + "1" + ")" * 5000 + ") FROM t"
    assert "nested more than" in problems(deep)[0].message
    assert "nested more than" in problems("SELECT MAX(" + "- " * 5000 + "1) FROM t")[0].message
    whens = "CASE WHEN ok THEN " * 500 + "1" + " END" * 500
    assert "nested more than" in problems(f"SELECT MAX({whens}) FROM t")[0].message
    assert "longer than" in problems("SELECT " + " " * QUERY_CHARACTERS_MAX)[0].message
    chain = " + ".join(["1"] * 1000)
    assert "deeper than" in problems(f"SELECT MAX({chain}) FROM t")[0].message


def test_an_expression_that_doubles_at_every_level_is_refused() -> None:
    doubling = "ok"
    for _ in range(30):
        doubling = f"NULLIF({doubling}, FALSE)"
    assert "larger than" in problems(f"SELECT MAX({doubling}) FROM t")[0].message
    wide = " + ".join(["cnt"] * 90)
    uses = ", ".join(f"SUM(v + {n}) AS s{n}" for n in range(100))
    derived = f"SELECT {uses} FROM (SELECT {wide} AS v FROM t)"
    assert "derived ones included" in problems(derived)[0].message


# --- hostile -------------------------------------------------------------------------------------

HOSTILE = [
    "reflect('java.lang.Runtime', 'getRuntime')",
    "java_method('java.lang.System', 'exit', '0')",
    "try_reflect('java.lang.System', 'getenv')",
    "default.my_udf(name)",
    "`java_method`('java.util.UUID', 'randomUUID')",
    "\"reflect\"('a', 'b')",
    "input_file_name()",
    "spark_partition_id()",
    "from_json(name, 'a INT')",
    "transform(name, x -> x)",
    "array(1, 2)",
    "read_files('/etc/passwd')",
    "${env:HOME}",
    "{{ config }}",
    "name; DROP TABLE t",
    "name) FROM t; DROP TABLE t; --",
    "name) FROM (SELECT * FROM parquet.`/etc/passwd`) --",
    "@@version",
    "@variable",
    "$1",
    "(SELECT MAX(name) FROM text.`/etc/passwd`)",
    "name COLLATE UNICODE_CI",
    "CAST(name AS STRING COLLATE UNICODE_CI)",
    "CAST(name AS INT) OVER ()",
    "CAST(name AS `INT)` AS x)",
    "CAST('x' AS INT; DROP TABLE t)",
    "\uff4eame",
    "n\u0430me",
    "name\u200b",
    "\u2018x\u2019",
    "\uff27REATEST(1, 2)",
    "name\x00",
    "`name``; DROP`",
    "`na\nme`",
    "name = ALL (SELECT 1)",
    "name --\n; DROP TABLE t",
    "e'\\x41'",
    "$$x$$",
    "EXECUTE IMMEDIATE 'x'",
    "SET x = 1",
    "NAMED_STRUCT('a', 1).a",
    "IDENTIFIER('name')",
    "STACK(1, name)",
    "1 := 2",
]


@pytest.mark.parametrize("payload", HOSTILE)
def test_what_tries_to_leave_the_grammar_is_refused(payload: str) -> None:
    for sql in (
        f"SELECT MAX({payload}) AS x FROM t",
        f"SELECT COUNT(*) FROM t WHERE ({payload}) IS NOT NULL",
        f"SELECT COUNT(*) FROM t GROUP BY {payload}, name",
        f"SELECT COUNT(*) FROM (SELECT {payload} AS name FROM t) WHERE name IS NULL",
    ):
        for problem in problems(sql):
            assert problem.line >= 1
            assert problem.column >= 1


@pytest.mark.parametrize("payload", HOSTILE)
def test_the_same_text_in_quotes_is_only_a_value(payload: str) -> None:
    quoted = payload.replace("'", "''")
    made = plan(f"SELECT COUNT(*) FROM t WHERE name = '{quoted}'")
    assert isinstance(made.where, Compare)
    assert made.where.right == Constant(payload, STRING)


@pytest.mark.parametrize(
    "name", ["x`; DROP TABLE t; --", "x y", "x.y", "é", "\uff58", "x\n", "", "9x"]
)
def test_names_of_results_are_plain_identifiers(name: str) -> None:
    quoted = name.replace("`", "``")
    assert problems(f"SELECT COUNT(*) AS `{quoted}` FROM t")


# --- properties ----------------------------------------------------------------------------------


@examples(150)
@given(st.integers(0, 2**32))
@example(2137)  # a key selected twice, and a constant of one grouping set
def test_a_plan_written_as_sql_reads_back_to_the_same_plan(seed: int) -> None:
    text = random_queries.query(Random(seed))
    try:
        made = parse_query(text, random_queries.COLUMNS)
    except QueryError:
        return  # types without a common type; the next test has enough others
    again = parse_query(plan_sql(made), random_queries.COLUMNS)
    assert again == made
    assert again.fingerprint == made.fingerprint


def test_most_random_queries_are_taken() -> None:
    taken = 0
    for seed in range(200):
        try:
            parse_query(random_queries.query(Random(seed)), random_queries.COLUMNS)
            taken += 1
        except QueryError:
            continue
    assert taken > 60


_PIECES = r"""
    SELECT FROM WHERE GROUP BY COUNT ( ) * , . name cnt ok t AS CASE WHEN THEN ELSE END NOT AND
    OR IN BETWEEN LIKE IS NULL CAST TRY_CAST INT DECIMAL(3,1) 1 2.5 1e5 'x' X'0' `q` " ' -- /*
    */ ; + - / % || = <> <= DISTINCT FILTER OVER UNION JOIN ORDER DATE TIMESTAMP INTERVAL IF
    HAVING GROUPING GROUPING_ID SETS ROLLUP CUBE WITH SUM MAX FLOOR TO POSITION DAY JSON_VALUE
    COALESCE EXTRACT SUBSTRING TRIM FOR [ ] { } :: -> |> @ # $ ? \ é VALUES TABLE UNNEST PIVOT
"""
PIECES = [*_PIECES.split(), "\n"]


@examples(200)
@given(st.lists(st.sampled_from(PIECES), max_size=25), st.booleans())
def test_token_soup_gives_a_plan_or_a_query_error(pieces: list[str], started: bool) -> None:
    _plan_or_problems(
        ("SELECT COUNT(*) FROM t WHERE " if started else "SELECT ") + " ".join(pieces)
    )


@examples(100)
@given(st.text(max_size=60))
def test_any_text_gives_a_plan_or_a_query_error(text: str) -> None:
    _plan_or_problems(text)
    _plan_or_problems(f"SELECT MAX({text}) FROM t")


@examples(100)
@given(st.integers(0, 2**32), st.integers(0, 400), st.sampled_from(PIECES))
def test_a_damaged_query_gives_a_plan_or_a_query_error(seed: int, at: int, piece: str) -> None:
    text = random_queries.query(Random(seed))
    _plan_or_problems(text[:at] + piece + text[at + len(piece) :], random_queries.COLUMNS)


def _plan_or_problems(text: str, columns: dict[str, SqlType] | None = None) -> None:
    try:
        parse_query(text, COLUMNS if columns is None else columns)
    except QueryError as error:
        lines = text.split("\n")
        for problem in error.problems:
            assert 1 <= problem.line <= len(lines)
            assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1
            assert problem.message


# --- fingerprint ---------------------------------------------------------------------------------


def test_the_fingerprint_is_pinned_and_tells_plans_apart() -> None:
    columns = {"name": STRING, "cnt": INT}
    text = "SELECT name, SUM(cnt) AS s FROM t WHERE cnt > 0 GROUP BY name"
    made = parse_query(text, columns)
    assert parse_query(text.replace("SELECT", "select "), columns).fingerprint == made.fingerprint
    others = {
        parse_query(other, columns).fingerprint
        for other in (
            text.replace("> 0", "> 1"),
            text.replace("> 0", ">= 0"),
            text.replace("AS s", "AS z"),
            text.replace("SUM", "MAX"),
        )
    }
    others.add(parse_query(text, {"name": STRING, "cnt": BIGINT}).fingerprint)
    assert len(others | {made.fingerprint}) == 6
    # Tables contain it: a change here makes every job rebuild its state.
    assert made.fingerprint == PINNED


PINNED = "cc28056dcf81fd9a68fc51aee05af25a84ba2046a23cd93690d254aa08e62ec7"
