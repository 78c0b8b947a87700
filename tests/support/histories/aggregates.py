"""Random histories for the aggregates, and two checks that share no code with the fold.

    seed ──► inserts, updates, deletes, in bundles ──► MemoryFold ──► results after every bundle
                     └─► live rows ──► jobs.checking.recomputation, or DuckDB ──► the same results

A history has values of one type; its query has some of the calls for that type. So each call is
tested alone and with others, with shared multisets and without.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.fold.state import Key, rank
from jobs.core.plan.tree import Case, Column, Composite, Constant, Expression, Plan
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row, Value
from schemas.types.sql_types import BOOLEAN, INT, STRING, SqlType
from tests.support.histories.folded_changelog import fold_changelog

NAN, INFINITY = math.nan, math.inf
# Values as retally holds them; the wild ones are beyond what another engine calculates exactly.
TAME: dict[str, list[Value]] = {
    "INT": [-3, 0, 1, 2, 7, 100, None],
    "BIGINT": [-(10**12), 0, 1, 2, 10**12, None],
    "DECIMAL(10, 2)": [-250, 0, 1, 99, 1050, None],
    "DOUBLE": [-1.5, 0.0, 0.25, 2.0, 1024.125, None],
    "STRING": ["", "a", "ab", "b", "é", None],
    "BOOLEAN": [True, False, None],
    "DATE": [-1, 0, 1, 20_000, None],
    "TIMESTAMP(6)": [-1, 0, 1, 1_700_000_000_000_000, None],
    "BINARY": [b"", b"\0", b"a", b"a\0", b"\xff", None],
}
WILD: dict[str, list[Value]] = {
    "TINYINT": [-128, -1, 0, 127, None],
    "INT": [-(2**31), -1, 0, 1, 2**31 - 1, None],
    "BIGINT": [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1, None],
    "DECIMAL(38, 3)": [-(10**38) + 1, -1, 0, 5, 10**38 - 1, None],
    "FLOAT": [-1.5, 0.0, 2.0**-149, 3.4028234663852886e38, NAN, INFINITY, None],
    "DOUBLE": [-1.7e308, 0.1, 0.2, 5e-324, 1e16, 1.7e308, NAN, INFINITY, -INFINITY, None],
    "STRING": ["", "\0", "a", "a\0", "\U0001f600", "z" * 50, None],
    "TIME": ["00:00:00", "12:34:56", "23:59:59", None],
    "TIMESTAMP(9)": ["2026-01-02 03:04:05.123456789", "1969-12-31 23:59:59.999999999", None],
    **{name: TAME[name] for name in ("BOOLEAN", "DATE", "BINARY")},
}
ORDERS: list[Value] = [1, 2, 3, None]

# Calls over v of any type, by an order o, under a condition f.
ANY = [
    "COUNT(DISTINCT v)",
    "COUNT(DISTINCT v, o)",
    "ANY_VALUE(v)",
    "MIN(v)",
    "MAX(v) FILTER (WHERE f)",
    "FIRST_VALUE(v ORDER BY o)",
    "LAST_VALUE(v ORDER BY o)",
    "FIRST_VALUE(v ORDER BY o DESC) FILTER (WHERE f)",
    "LAST_VALUE(v ORDER BY o DESC NULLS FIRST, v)",
    "FIRST(v ORDER BY o)",
    "LAST(v ORDER BY o DESC)",
    "FIRST(v ORDER BY o DESC, v DESC, f DESC)",
    "LAST(v ORDER BY o, v DESC, f)",
    "ARRAY_AGG(v ORDER BY o)[1]",
    "ANY_VALUE(v ORDER BY o)",
    "COUNT(DISTINCT ROW(v, o))",
    "COUNT(DISTINCT ROW(v))",
    "COUNT_IF(f)",
    "ARG_MIN(v, o)",
    "ARG_MIN(DISTINCT v, o)",
    "ARG_MAX(v, o)",
    "ARG_MIN(v, o, 2)",
    "MAX_BY(v, o, 3)",
    "HISTOGRAM(v)",
    "ARRAY_AGG(v ORDER BY o DESC)",
    "ARRAY_AGG(v)",
    "ARRAY_AGG(v IGNORE NULLS)",
    "ARRAY_AGG(DISTINCT v ORDER BY v DESC)",
    "ARRAY_AGG(v ORDER BY o NULLS LAST, v DESC) FILTER (WHERE f)",
    "JSON_ARRAYAGG(v)",
    "JSON_ARRAYAGG(v ORDER BY o NULL ON NULL)",
    "JSON_OBJECTAGG(KEY o VALUE v)",
    "JSON_OBJECTAGG(KEY o VALUE v ABSENT ON NULL) FILTER (WHERE f)",
    "MODE(v)",
    "TOP_K(v, 2)",
    "TOP_K(DISTINCT v, 2)",
    "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY v)",
    "PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY v DESC)",
]
NUMBERS = [
    "SUM(DISTINCT v)",
    "AVG(DISTINCT v)",
    "SUM(DISTINCT v) FILTER (WHERE f)",
    "STDDEV_POP(v)",
    "STDDEV_SAMP(v)",
    "VAR_POP(v)",
    "VAR_SAMP(v)",
    "VAR_SAMP(DISTINCT v)",
    "MEDIAN(v)",
    "MEDIAN(DISTINCT v)",
    "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY v)",
    "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY v DESC)",
    "QUANTILE_CONT(v, 0.75)",
]
TEXTS = [
    "STRING_AGG(v, ', ')",
    "STRING_AGG(v, '' ORDER BY o DESC)",
    "LISTAGG(DISTINCT v, '#') WITHIN GROUP (ORDER BY v DESC)",
    "LISTAGG(v) FILTER (WHERE f)",
]
# DuckDB calls these as retally does.
SHAPES = [
    "SKEWNESS(v)",
    "SKEWNESS(DISTINCT v)",
    "KURTOSIS(v)",
    "KURTOSIS_POP(v) FILTER (WHERE f)",
    "COVAR_POP(v, o)",
    "COVAR_SAMP(o, v)",
    "CORR(v, o)",
    "CORR(DISTINCT o, v)",
    "REGR_COUNT(v, o)",
    "REGR_SLOPE(v, o)",
    "REGR_INTERCEPT(v, o)",
    "REGR_R2(v, o)",
    "REGR_AVGX(v, o)",
    "REGR_AVGY(v, o) FILTER (WHERE f)",
    "REGR_SXX(v, o)",
    "REGR_SYY(v, o)",
    "REGR_SXY(v, o)",
    "QUANTILE_DISC(v, 0.75)",
]
BITS = ["BIT_AND(v)", "BIT_OR(v)", "BIT_XOR(v)", "BIT_XOR(DISTINCT v)", "BIT_OR(o)"]
SAME_IN_DUCKDB = SHAPES + BITS
TRUTHS = ["BOOL_AND(v)", "BOOL_OR(v)", "EVERY(f)", "SOME(f)"]


def calls_of(sql_type: SqlType) -> list[str]:
    own = NUMBERS + SHAPES if sql_type.numeric else []
    own = own + (BITS if sql_type.integer else [])
    own = own + (TEXTS if sql_type == STRING else [])
    return ANY + own + (TRUTHS if sql_type == BOOLEAN else [])


def plan_of(sql_type: SqlType, calls: Sequence[str]) -> Plan:
    selected = ", ".join(f"{call} AS r{number}" for number, call in enumerate(calls))
    columns = {"k": STRING, "v": sql_type, "o": INT, "f": BOOLEAN}
    return parse_query(f"SELECT k, {selected} FROM t GROUP BY k", columns)


def value_of(expression: Expression, row: dict[str, Value]) -> Value:
    """Return an argument's value in a row: a column or a ROW of columns, perhaps with a FILTER."""
    if isinstance(expression, Column):
        return row[expression.name]
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, Composite):
        parts = tuple(value_of(part, row) for part in expression.parts)
        looked_at = {"last": parts[-1:], "any": parts, "never": ()}[expression.null_where]
        return None if any(part is None for part in looked_at) else parts
    assert isinstance(expression, Case)
    ((condition, value),) = expression.branches
    return value_of(value, row) if value_of(condition, row) is True else None


def projection_of(plan: Plan) -> Callable[[Row], tuple[Key, Row]]:
    names = [column.name for column in plan.used]

    def projection(row: Row) -> tuple[Key, Row]:
        named = dict(zip(names, row, strict=True))
        return (named["k"],), tuple(value_of(each.expression, named) for each in plan.arguments)

    return projection


@dataclass(frozen=True, slots=True)
class Seen:
    """A consumer's table after a bundle, and the rows (k, v, o, f) that are live then."""

    table: dict[Key, Row]
    live: list[tuple[Value, ...]]


def run(plan: Plan, pool: Sequence[Value], rng: random.Random, bundles: int) -> Iterator[Seen]:
    memory_fold = MemoryFold(plan, projection_of(plan))
    table: dict[Key, Row] = {}
    live: dict[int, tuple[Value, ...]] = {}
    used = ["kvof".index(column.name) for column in plan.used]
    offset = 0
    for _ in range(bundles):
        bundle = Bundle()
        for _ in range(rng.randint(1, 9)):
            changes = _change(live, pool, rng, offset)
            projected = [(weight, tuple(row[at] for at in used)) for weight, row in changes]
            bundle.add(0, offset, projected)
            offset += 1
        folded = memory_fold.fold(bundle.consolidate())
        assert folded.counters.unmatched_retractions == 0
        table = fold_changelog(dict(table), folded.changelog)
        yield Seen(table, list(live.values()))


def _change(
    live: dict[int, tuple[Value, ...]], pool: Sequence[Value], rng: random.Random, number: int
) -> list[tuple[int, tuple[Value, ...]]]:
    """Insert, update (perhaps with another group) or delete a row."""

    def row() -> tuple[Value, ...]:
        truth = rng.choice((True, False, None))
        return rng.choice(("a", "b", None)), rng.choice(pool), rng.choice(ORDERS), truth

    kind = rng.random()
    if not live or kind < 0.45:
        live[number] = row()
        return [(1, live[number])]
    at = rng.choice(list(live))
    before = live.pop(at)
    if kind < 0.7:
        return [(-1, before)]
    live[at] = row()
    return [(-1, before), (1, live[at])]


def multisets(
    plan: Plan, argument: int, live: Iterable[tuple[Value, ...]]
) -> dict[Key, list[tuple[Value, int]]]:
    """Return each group's values of an argument, with their multiplicities."""
    expression = plan.arguments[argument].expression
    found: dict[Key, dict[Any, tuple[Value, int]]] = defaultdict(dict)
    for row in live:
        value = value_of(expression, dict(zip("kvof", row, strict=True)))
        if value is not None:
            times = found[row[0],].get(rank(value), (value, 0))[1]
            found[row[0],][rank(value)] = (value, times + 1)
    return {key: list(counts.values()) for key, counts in found.items()}
