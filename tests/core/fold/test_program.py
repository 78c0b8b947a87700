"""The generated fold: one set of accumulators for all that share them, and nothing of a user's."""

from __future__ import annotations

import ast

import pytest

from jobs.core.fold.program import NEVER, Program
from jobs.core.sql.select import QueryError, parse_query
from schemas.types.sql_types import SqlType

TYPES = {
    name: SqlType.parse(text)
    for name, text in {"k": "STRING", "v": "INT", "w": "DOUBLE", "d": "DECIMAL(5, 2)"}.items()
}


def program_of(sql: str) -> Program:
    return Program(parse_query(sql, TYPES))


def test_aggregates_of_one_argument_share_its_accumulators() -> None:
    program = program_of("SELECT k, SUM(v), AVG(v), COUNT(v), COUNT(*) FROM t GROUP BY k")
    assert [cell.name for cell in program.cells] == ["row_count", "acc_sum_v", "acc_count_v"]
    assert program.multisets == ()


def test_min_and_max_of_one_argument_share_its_multiset() -> None:
    program = program_of("SELECT MAX(v), MIN(w), MIN(v), MAX(w), MAX(d) FROM t")
    assert [program.plan.arguments[argument].name for argument in program.multisets] == [
        "v",
        "w",
        "d",
    ]
    assert len(program.cells) == 1


def test_count_of_rows_needs_nothing_but_the_row_count() -> None:
    program = program_of("SELECT k, COUNT(*) AS n FROM t GROUP BY k")
    delta = program.gather([("a",), ("a",)], [0, 1], [1, 2])["a",]
    cells = program.merge(None, delta)
    assert cells == (3,)
    assert program.result(cells, (), [0]) == (3,)


def test_a_query_without_aggregates_keeps_the_groups() -> None:
    program = program_of("SELECT k FROM t GROUP BY k")
    cells = program.merge(None, program.gather([("a",)], [0], [1])["a",])
    assert program.result(cells, (), [0]) == ()


def test_gather_keeps_heads_apart_and_the_first_plus_of_a_group() -> None:
    program = program_of("SELECT k, SUM(v) AS s FROM t GROUP BY k")
    keys = [("a",), ("a",), ("a",), ("b",)]
    deltas = program.gather(keys, [5, 6, 5, 1], [7, 4, ~2, ~3], [1, 0, -1, -1])
    count, first_plus, heads, *cells = deltas["a",]
    assert (count, first_plus, heads, cells) == (0, 4, [(2, 5)], [0, 0])
    assert deltas["b",] == [-1, NEVER, [(3, 1)], -1, -1]


def test_undo_retraction_cancels_a_head() -> None:
    program = program_of("SELECT k, SUM(v) AS s, MAX(v) AS top FROM t GROUP BY k")
    delta = program.gather([("a",)], [5], [~0], [-1])["a",]
    program.undo_retraction(delta, 5)
    assert delta[0] == 0
    assert delta[3:5] == [0, 0]
    assert delta[5] == {5: 0}


def test_equal_plans_have_equal_code() -> None:
    sql = "SELECT k, SUM(v) AS s, MAX(w) AS top, AVG(d) AS mean FROM t GROUP BY k"
    assert program_of(sql).source == program_of(sql).source


def test_the_code_is_functions_with_docstrings_and_nothing_else() -> None:
    """It is shown to people, and run: so it is looked at as a whole."""
    program = program_of(
        "SELECT k, SUM(v), AVG(w), MAX(d), MIN(w), COUNT(*), COUNT(d) FROM t GROUP BY k"
    )
    functions = ast.parse(program.source).body
    assert all(isinstance(function, ast.FunctionDef) for function in functions)
    for function in functions:
        assert isinstance(function, ast.FunctionDef)
        assert ast.get_docstring(function)
    names = {node.id for node in ast.walk(ast.parse(program.source)) if isinstance(node, ast.Name)}
    assert not names & {"__import__", "open", "eval", "exec", "getattr"}


def test_texts_of_a_query_never_get_into_the_code() -> None:
    for name in ('"v\nimport os"', "\"__import__('os')\"", "`v\nimport os`"):
        with pytest.raises(QueryError):
            program_of(f"SELECT SUM({name}) AS s FROM t")
        with pytest.raises(QueryError):
            program_of(f"SELECT SUM(v) AS {name} FROM t")
    program = program_of("SELECT SUM(CASE WHEN k = 'import os' THEN v END) AS s FROM t")
    assert "import os" not in program.source
