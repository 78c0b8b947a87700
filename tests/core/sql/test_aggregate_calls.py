"""Aggregate calls: shared arguments, costs, types, and refusals."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jobs.core.aggregates import FUNCTIONS, SYNONYMS
from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.fold.program import Program
from jobs.core.plan.tree import Composite, Ordering, Plan
from jobs.core.rows.projection import row_projection
from jobs.core.sql.printer import aggregate_label
from jobs.core.sql.select import QueryError, parse_query
from jobs.core.values.change import Row
from schemas.limits import LIST_CHARACTERS_MAX, LIST_VALUES_MAX, TOP_K_MAX
from schemas.types.sql_types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, array_of, decimal

COLUMNS = {
    "k": STRING,
    "v": INT,
    "w": DOUBLE,
    "d": decimal(10, 2),
    "s": STRING,
    "f": BOOLEAN,
    "n": BIGINT,
}


def plan(sql: str) -> Plan:
    return parse_query(sql, COLUMNS)


# --- shared arguments, and costs ------------------------------------------------------------------


def test_all_that_needs_the_values_of_one_argument_shares_its_multiset() -> None:
    program = Program(
        plan(
            "SELECT MAX(v), MIN(v), ANY_VALUE(v), COUNT(DISTINCT v), SUM(DISTINCT v), MEDIAN(v), "
            "MODE(v), TOP_K(v, 3), ARRAY_AGG(v IGNORE NULLS), PERCENTILE_DISC(0.5) WITHIN GROUP "
            "(ORDER BY v), SUM(v) FROM t"
        )
    )
    assert [argument.name for argument in program.plan.arguments] == ["v"]
    assert program.multisets == (0,)
    assert [cell.name for cell in program.cells] == [
        "row_count",
        "acc_distinct_count_v",
        "acc_distinct_sum_v",
        "acc_present_v",
        "acc_sum_v",
        "acc_count_v",
    ]


def test_one_order_of_one_value_is_one_argument() -> None:
    made = plan(
        "SELECT FIRST_VALUE(s ORDER BY v), LAST_VALUE(s ORDER BY v), STRING_AGG(s, ',' ORDER BY v "
        "DESC), LISTAGG(s) WITHIN GROUP (ORDER BY v) FROM t"
    )
    (argument,) = made.arguments
    assert argument.name == "s_by_v"
    assert isinstance(argument.expression, Composite)
    assert [each.order for each in made.aggregates] == [
        (Ordering(), Ordering()),
        (Ordering(), Ordering()),
        (Ordering(True, False), Ordering(True, False)),
        (Ordering(), Ordering()),
    ]


@pytest.mark.parametrize(
    "call", ["BOOL_AND(f)", "STDDEV_POP(v)", "VAR_SAMP(w)", "SUM(d)", "AVG(w)", "COUNT(v)"]
)
def test_what_adds_up_keeps_no_multiset(call: str) -> None:
    program = Program(plan(f"SELECT {call} FROM t"))
    assert program.multisets == program.scanned == ()


def test_what_a_query_does_not_use_is_not_in_its_code() -> None:
    source = Program(plan("SELECT k, SUM(v), MAX(v), COUNT(*) FROM t GROUP BY k")).source
    assert "present" not in source
    assert "appeared" not in source
    assert "update_multiset_0(delta, stored, largest, smallest):" in source
    assert "] = cell_" not in source  # no entry cells


def test_a_plan_of_before_keeps_its_fingerprint() -> None:
    """These plans are older than all other aggregates: tables know them by the fingerprint."""
    made = parse_query(
        "SELECT name, SUM(cnt) AS total, MAX(cnt) AS top, COUNT(*) AS n FROM product GROUP BY name",
        {"name": STRING, "cnt": INT},
    )
    assert made.fingerprint == FINGERPRINT


FINGERPRINT = "9963405682fa1f9a0bb0446f63ed1a54ea4bdf68636f04ad4822df4c686b03cd"


# --- refused --------------------------------------------------------------------------------------

REFUSED = [
    ("FIRST_VALUE(v)", 8, "order of arrival", "FIRST_VALUE(x ORDER BY y)"),
    ("LAST_VALUE(v) FILTER (WHERE f)", 8, "order of arrival", "LAST_VALUE(x ORDER BY y)"),
    ("FIRST_VALUE(v) IGNORE NULLS", 8, "order of arrival", "FIRST_VALUE(x ORDER BY y)"),
    ("MAX(v) RESPECT NULLS", 8, "ignores NULLs", None),
    ("APPROX_COUNT_DISTINCT(v)", 8, "a sketch cannot remove", "COUNT(DISTINCT x)"),
    ("SUM(v ORDER BY n)", 8, "has no ORDER BY", None),
    ("SUM(v, n)", 8, "has one argument", "SUM(x)"),
    ("SUM()", 8, "has one argument", "SUM(x)"),
    ("SUM(DISTINCT v, n)", 8, "has one argument", "SUM(x)"),
    ("COUNT(v, n)", 8, "has one argument", "COUNT(x)"),
    ("SUM(s)", 12, "needs numbers", None),
    ("STDDEV(s)", 15, "needs numbers", None),
    ("MEDIAN(f)", 15, "needs numbers", None),
    ("BOOL_AND(v)", 17, "needs a BOOLEAN", "BOOL_AND(x > 0)"),
    ("STRING_AGG(v)", 19, "needs a STRING", "CAST(x AS STRING)"),
    ("STRING_AGG(s, v)", 22, "the separator must be a string literal", "', '"),
    ("STRING_AGG(s, ',', 'x')", 8, "has two arguments", None),
    ("STRING_AGG(DISTINCT s, ',' ORDER BY v)", 44, "only the values themselves", None),
    ("ARG_MAX(s)", 8, "has two arguments", "ARG_MAX(name, cnt)"),
    ("ARG_MAX(s, v, 0)", 22, "k must be a literal", "10"),
    ("ARG_MIN_N(s, v)", 8, "has three arguments", "ARG_MIN_N(name, cnt, 2)"),
    ("HISTOGRAM(DISTINCT s)", 8, "HISTOGRAM(DISTINCT ...) has no meaning", None),
    ("ARG_MAX(s, v ORDER BY n)", 8, "has no ORDER BY", None),
    ("LAST_VALUE(DISTINCT s ORDER BY s)", 8, "has no meaning", None),
    ("MODE(DISTINCT v)", 8, "has no meaning", None),
    ("TOP_K(v)", 8, "has two arguments", "TOP_K(cnt, 3)"),
    ("TOP_K(v, 0)", 17, "k must be a literal", "10"),
    ("TOP_K(v, -1)", 18, "k must be a literal", "10"),
    (f"TOP_K(v, {TOP_K_MAX + 1})", 17, "k must be a literal", "10"),
    ("TOP_K(v, n)", 17, "k must be a literal", "10"),
    ("PERCENTILE_CONT(1.5) WITHIN GROUP (ORDER BY v)", 24, "from 0 to 1", "0.95"),
    ("PERCENTILE_CONT('x') WITHIN GROUP (ORDER BY v)", 24, "from 0 to 1", "0.95"),
    ("PERCENTILE_CONT(1e-9) WITHIN GROUP (ORDER BY v)", 24, "from 0 to 1", "0.95"),
    ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY v, n)", 55, "has one ORDER BY expression", None),
    ("PERCENTILE_CONT(0.5)", 8, "has two arguments", None),
    ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY s)", 52, "needs numbers", None),
    ("PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY v DESC NULLS FIRST)", 52, "no NULL", None),
    ("PERCENTILE_DISC(v, 0.5 ORDER BY n)", 8, "has no ORDER BY inside", None),
    ("SUM(v) WITHIN GROUP (ORDER BY v)", 8, "has no WITHIN GROUP", None),
    ("STRING_AGG(s ORDER BY v) WITHIN GROUP (ORDER BY v)", 8, "has no WITHIN GROUP", None),
    ("UPPER(s) FILTER (WHERE f)", 8, "FILTER is only possible with an aggregate", None),
    ("UPPER(s) WITHIN GROUP (ORDER BY v)", 8, "only possible with an aggregate", None),
    ("MAX(SUM(v))", 12, "an aggregate inside an aggregate", None),
    ("STRING_AGG(s, ',' ORDER BY MAX(v))", 35, "an aggregate inside an aggregate", None),
    ("SUM(v) FILTER (WHERE MAX(v) > 1)", 29, "not possible in FILTER", None),
    ("GROUP_CONCAT(s)", 8, "not supported", "STRING_AGG(x, ', ' ORDER BY x)"),
]


@pytest.mark.parametrize(
    ("call", "column", "message", "hint"), REFUSED, ids=[r[0] for r in REFUSED]
)
def test_a_call_that_is_not_taken_says_where_and_why(
    call: str, column: int, message: str, hint: str | None
) -> None:
    with pytest.raises(QueryError) as caught:
        plan(f"SELECT {call} FROM t")
    problem = caught.value.problems[0]
    assert message in problem.message
    assert problem.column == column
    assert hint is None or problem.hint == hint


# --- accepted -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "result", "shown"),
    [
        ("COUNT(DISTINCT v)", BIGINT, "COUNT(DISTINCT v)"),
        ("MAX(DISTINCT v)", INT, "MAX(v)"),
        ("VARIANCE(d)", DOUBLE, "VAR_SAMP(d)"),
        ("SOME(v > 1)", BOOLEAN, "BOOL_OR(r)"),
        ("MIN_BY(s, v)", STRING, "ARG_MIN(s, v)"),
        ("LISTAGG(s)", STRING, "STRING_AGG(s, ',')"),
        ("LISTAGG(DISTINCT s, '#')", STRING, "STRING_AGG(DISTINCT s, '#')"),
        ("ARRAY_AGG(d)", array_of(decimal(10, 2)), "ARRAY_AGG(d)"),
        ("ARRAY_AGG(d IGNORE NULLS)", array_of(decimal(10, 2)), "ARRAY_AGG(d IGNORE NULLS)"),
        ("ARRAY_AGG(d) IGNORE NULLS", array_of(decimal(10, 2)), "ARRAY_AGG(d IGNORE NULLS)"),
        ("TOP_K(DISTINCT s, 5)", array_of(STRING), "TOP_K(DISTINCT s, 5)"),
        ("MODE() WITHIN GROUP (ORDER BY v)", INT, "MODE() WITHIN GROUP (ORDER BY v)"),
        ("PERCENTILE(w, 0.95)", DOUBLE, "PERCENTILE_CONT(w, 0.95)"),
        (
            "PERCENTILE_DISC(0.250) WITHIN GROUP (ORDER BY s DESC)",
            STRING,
            "PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY s DESC)",
        ),
        (
            "STRING_AGG(s, ';' ORDER BY v DESC NULLS FIRST, s) FILTER (WHERE f)",
            STRING,
            "STRING_AGG(s, ';' ORDER BY v DESC NULLS FIRST, s) FILTER (WHERE f)",
        ),
    ],
)
def test_a_call_has_its_type_and_is_shown_as_a_call(call: str, result: object, shown: str) -> None:
    made = plan(f"SELECT {call} AS r FROM t")
    (aggregate,) = made.aggregates
    assert aggregate.type == result
    assert aggregate_label(made, aggregate) == shown


def test_synonyms_are_no_functions_of_their_own() -> None:
    assert not SYNONYMS.keys() & FUNCTIONS.keys()
    assert set(SYNONYMS.values()) <= FUNCTIONS.keys()


# --- results that do not fit ----------------------------------------------------------------------


def folded(sql: str, rows: Sequence[Row]) -> tuple[Row, int]:
    made = plan(sql)
    projection = row_projection(made)
    assert projection is not None
    bundle = Bundle()
    bundle.add(0, 0, [(1, row) for row in rows])
    outcome = MemoryFold(made, projection).fold(bundle.consolidate())
    ((_, _, result),) = outcome.changelog
    return result, outcome.counters.misfits


def test_a_list_that_is_too_long_is_null_and_counted() -> None:
    fits = [("x" * (LIST_CHARACTERS_MAX // 2 - 1),), ("y" * (LIST_CHARACTERS_MAX // 2 - 1),)]
    joined, misfits = folded("SELECT STRING_AGG(s, ', ') AS r FROM t", fits)
    assert (len(str(joined[0])), misfits) == (LIST_CHARACTERS_MAX, 0)
    for call in ("STRING_AGG(s, ', ')", "ARRAY_AGG(s)", "TOP_K(s, 3)"):
        sql = f"SELECT {call} AS r FROM t"
        assert folded(sql, [*fits, ("zzz",)]) == ((None,), 1)


def test_a_list_of_too_many_values_is_null_and_counted() -> None:
    for rows in ([(7,)] * (LIST_VALUES_MAX + 1), [(n,) for n in range(LIST_VALUES_MAX + 1)]):
        assert folded("SELECT ARRAY_AGG(v) AS r FROM t", rows) == ((None,), 1)
        found, misfits = folded("SELECT ARRAY_AGG(v) AS r FROM t", rows[1:])
        assert isinstance(found[0], tuple)
        assert (len(found[0]), misfits) == (LIST_VALUES_MAX, 0)
    assert folded("SELECT STRING_AGG(s, '') AS r FROM t", [("",)] * (LIST_VALUES_MAX + 1)) == (
        (None,),
        1,
    )
