"""Rows evaluated as arrays are those that the same plan evaluates row by row, and fail alike.

`tests/edge/spark/test_evaluated_expressions.py` holds both against Spark.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import WeightedRows
from jobs.core.rows.projection import RowFailed, row_projection
from jobs.core.rows.windows import (
    WINDOWS_FROM_MS,
    WINDOWS_TO_MS,
    window_expander,
    with_window_columns,
)
from jobs.core.sql.select import QueryError, parse_query
from jobs.core.values.exact_numbers import to_float32
from jobs.edge.rows.evaluated_rows import evaluate_rows
from jobs.edge.rows.expression_vectors import NoVector, Vectors
from jobs.edge.rows.range_rows import RangeRows
from schemas.types.arrow_values import from_arrow, to_arrow
from tests.support.histories import random_queries

COLUMNS = random_queries.COLUMNS
ROWS, QUERIES = 60, 40
VALUES: dict[str, tuple[Any, ...]] = {
    "s": ("", "a", "a b;c😀", "12", "%a_"),
    "r": ("a", ";", "0.0"),
    "t": (-128, -1, 0, 3, 127),
    "i": (-(2**31), -2, 0, 1, 7, 2**31 - 1),
    "l": (-(2**63), -(2**62), -5, 0, 9, 2**53 + 1, 2**62, 2**63 - 1),
    "f": (0.0, to_float32(0.1), -1.5),
    "d": (0.0, 2.675, -0.125, float("inf")),
    "m": (-9_999_999_999, -250, 0, 105, 9_999_999_999),
    "w": (-(10**38) + 1, -1_999, 0, 12_345, 10**38 - 1),
    "b": (True, False),
    "day": (-719_162, -1, 0, 19_782, 2_932_896),
    "at": (-1, 0, 1_709_251_199_999_999),
    "seen": (0, 1_725_148_800_000_000),
    "x": (b"", b"\x00\xff", b"a"),
}


def rows_of(random: Random, plan: Plan) -> list[tuple[Any, ...]]:
    def value(name: str) -> Any:
        return None if random.random() < 0.15 else random.choice(VALUES[name])

    return [tuple(value(column.name) for column in plan.used) for _ in range(ROWS)]


def evaluate_each(plan: Plan, rows: list[tuple[Any, ...]]) -> tuple[list[Any], dict[int, str]]:
    project = row_projection(plan)
    found, failures = [], {}
    for number, row in enumerate(rows):
        try:
            projected = project(row)
        except RowFailed as failed:
            failures[number] = str(failed)
            continue
        if projected is not None:
            found.append((number, (*projected[0], *projected[1])))
    return found, failures


def evaluate_together(plan: Plan, rows: list[tuple[Any, ...]]) -> tuple[list[Any], dict[int, str]]:
    columns = [
        to_arrow(values, column.type)
        for values, column in zip(zip(*rows, strict=True), plan.used, strict=True)
    ]
    numbers = np.arange(len(rows))
    weighted = WeightedRows(numbers, numbers, np.ones(len(rows), np.int64))
    evaluated, left, origins, failing = evaluate_rows(
        plan, RangeRows(columns, weighted.weights), weighted
    )
    assert origins.tolist() == left.positions.tolist()
    failures = dict(failing)
    kinds = [named.type for named in (*plan.group, *plan.arguments)]
    values = [from_arrow(a, kind) for a, kind in zip(evaluated.columns, kinds, strict=True)]
    of_rows = list(zip(*values, strict=True)) or [()] * len(left.positions)
    found = zip(left.positions.tolist(), of_rows, strict=True)
    return [each for each in found if each[0] not in failures], failures


@pytest.mark.parametrize("seed", range(4))
def test_random_queries_give_the_same_rows_and_failures(seed: int) -> None:
    random = Random(seed)
    checked = refused = 0
    while checked < QUERIES:
        try:
            plan = parse_query(random_queries.query(random), COLUMNS)
        except QueryError:
            continue
        if plan.grouping_sets > 1 or not plan.used:
            continue
        rows = rows_of(random, plan)
        each, together = evaluate_each(plan, rows), evaluate_together(plan, rows)
        assert repr(each) == repr(together)
        checked, refused = checked + 1, refused + len(each[1])
    assert refused > 100


ARRAYS = (
    "l + i",
    "l - i * 2",
    "m * 1.19",
    "m + w0",
    "-l",
    "i * i - t",
    "CAST(i AS BIGINT) * 3",
    "CASE WHEN m > 1 AND NOT b THEN m ELSE 0 END",
    "COALESCE(i, t, 0)",
    "i IN (7, NULL, t)",
    "i BETWEEN t AND 7 OR b IS NULL",
    "day > DATE '2024-02-29'",
    "s LIKE 'a%' AND i > 0",
    "s LIKE '%a' OR s LIKE '%b%'",
    "s LIKE 'a' OR s LIKE '%' OR s LIKE '%%'",
    "s LIKE 'a_' OR s LIKE 'a%b' OR s NOT LIKE 'a!%' ESCAPE '!'",
    "CHAR_LENGTH(s) + 1",
    "at < TIMESTAMP '2024-01-01 00:00:00'",
    "(i = 7) = b",
    "CASE WHEN s = 'a' THEN 1 END",
    "CAST(m AS DECIMAL(20, 4))",
)


@pytest.mark.parametrize("text", ARRAYS)
def test_an_expression_over_numbers_is_calculated_as_arrays(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = parse_query(f"SELECT MAX({text.replace('w0', 'm')}) AS x FROM t", COLUMNS)
    small = {
        name: tuple(v for v in values if not isinstance(v, int) or abs(v) < 2**30)
        for name, values in VALUES.items()
    }
    monkeypatch.setattr(f"{__name__}.VALUES", small)
    rows = rows_of(Random(1), plan)
    values, calls = Vectors.values, list[str]()

    def counted(self: Vectors, expression: Any) -> Any:
        found = values(self, expression)
        calls.append(str(expression.type))
        return found

    monkeypatch.setattr(Vectors, "values", counted)
    assert evaluate_each(plan, rows) == evaluate_together(plan, rows)
    assert len(calls) == 1


@pytest.mark.parametrize("text", ["l + 1", "-l", "l * 2", "i / t", "d + 1", "w + 1", "s || r"])
def test_what_could_fail_or_round_is_evaluated_value_by_value(text: str) -> None:
    plan = parse_query(f"SELECT MAX({text}) AS x FROM t", COLUMNS)
    rows = rows_of(Random(2), plan)
    columns = dict(zip((column.name for column in plan.used), zip(*rows, strict=True), strict=True))

    def read(part: Any) -> Any:
        return to_arrow(columns[part.name], part.type)

    with pytest.raises(NoVector):
        Vectors(len(rows), read).values(plan.arguments[0].expression)


@pytest.mark.parametrize("call", ["HOP", "CUMULATE"])
@pytest.mark.parametrize("offset", ["0", "-1.3", "2"])
def test_windows_of_arrays_are_those_of_single_rows(call: str, offset: str) -> None:
    lengths = f"INTERVAL '2' SECOND, INTERVAL '6' SECOND, INTERVAL '{offset}' SECOND"
    query = f"SELECT s, window_start, window_end FROM t GROUP BY s, {call}(l, {lengths})"
    plan = parse_query(query, COLUMNS)
    assert plan.window is not None
    project = row_projection(with_window_columns(plan, plan.window))
    expand, random = window_expander(plan, plan.window), Random(f"{call} {offset}")
    times = (None, 0, -1, -20_001, WINDOWS_FROM_MS, WINDOWS_TO_MS, 2**62, *range(0, 9_000, 700))
    rows = [(random.choice("ab"), random.choice(times)) for _ in range(300)]
    found, failures = evaluate_together(plan, rows)
    wanted = [(number, project(each)) for number, row in enumerate(rows) for each in expand(row)]
    assert found == [(number, one[0]) for number, one in wanted if one is not None]
    assert failures.keys() == {number for number, row in enumerate(rows) if not expand(row)}
