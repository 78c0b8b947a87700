"""Check aggregates over random histories, against their definitions and DuckDB."""

from __future__ import annotations

import math
import random
from typing import Any

import duckdb
import pyarrow as pa

from jobs.checking.recomputation import recompute
from jobs.core.fold.state import Key
from jobs.core.plan.tree import Plan
from jobs.core.values.change import Row
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, to_arrow
from schemas.types.sql_types import BIGINT, BOOLEAN, INT, STRING, SqlType
from tests.support.histories import aggregates as histories


def check_definitions(type_name: str, seeds: range) -> None:
    sql_type = SqlType.parse(type_name)
    calls = histories.calls_of(sql_type)
    for seed in seeds:
        rng = random.Random(f"{type_name} {seed}")
        plan = histories.plan_of(sql_type, rng.sample(calls, rng.randint(1, len(calls))))
        for number, seen in enumerate(histories.run(plan, histories.WILD[type_name], rng, 6)):
            wanted = defined(plan, seen.live)
            assert repr(by_group(seen.table)) == repr(by_group(wanted)), (seed, number, plan.output)


def defined(plan: Plan, live: list[Any]) -> dict[Key, Row]:
    groups = dict.fromkeys((row[0],) for row in live)
    columns = []
    for each in plan.aggregates:
        assert each.argument is not None
        kind = plan.arguments[each.argument].type
        values = histories.multisets(plan, each.argument, live)
        columns.append([recompute(each, kind, values.get(key, [])) for key in groups])
    return dict(zip(groups, zip(*columns, strict=True), strict=True))


BY_O, BY_O_DOWN = "o NULLS FIRST, v NULLS FIRST", "o DESC NULLS LAST, v DESC NULLS LAST"
THERE = "FILTER (WHERE v IS NOT NULL)"
BOTH = "FILTER (WHERE v IS NOT NULL AND o IS NOT NULL)"
DUCKDB = {
    "COUNT(DISTINCT v)": "COUNT(DISTINCT v)",
    "COUNT(DISTINCT v, o)": "COUNT(DISTINCT (v, o)) FILTER (WHERE v IS NOT NULL AND o IS NOT NULL)",
    "ANY_VALUE(v)": "MIN(v)",
    "MIN(v)": "MIN(v)",
    "MAX(v) FILTER (WHERE f)": "MAX(v) FILTER (WHERE f)",
    "FIRST_VALUE(v ORDER BY o)": f"FIRST(v ORDER BY {BY_O}) {THERE}",
    "LAST_VALUE(v ORDER BY o)": f"LAST(v ORDER BY {BY_O}) {THERE}",
    "FIRST_VALUE(v ORDER BY o DESC) FILTER (WHERE f)": (
        f"FIRST(v ORDER BY {BY_O_DOWN}) FILTER (WHERE v IS NOT NULL AND f)"
    ),
    "LAST_VALUE(v ORDER BY o DESC NULLS FIRST, v)": (
        f"LAST(v ORDER BY o DESC NULLS FIRST, v) {THERE}"
    ),
    "FIRST(v ORDER BY o)": f"FIRST(v ORDER BY {BY_O})",
    "LAST(v ORDER BY o DESC)": f"LAST(v ORDER BY {BY_O_DOWN})",
    "FIRST(v ORDER BY o DESC, v DESC, f DESC)": f"FIRST(v ORDER BY {BY_O_DOWN})",
    "LAST(v ORDER BY o, v DESC, f)": "LAST(v ORDER BY o NULLS FIRST, v DESC NULLS LAST)",
    "ARRAY_AGG(v ORDER BY o)[1]": f"ARRAY_AGG(v ORDER BY {BY_O})[1]",
    "ANY_VALUE(v ORDER BY o)": f"ANY_VALUE(v ORDER BY {BY_O})",
    "COUNT(DISTINCT ROW(v, o))": "COUNT(DISTINCT ROW(v, o))",
    "COUNT(DISTINCT ROW(v))": "COUNT(DISTINCT ROW(v))",
    # If every condition is NULL, DuckDB's is NULL; that of Spark, BigQuery and Presto is 0.
    "COUNT_IF(f)": "COALESCE(COUNT_IF(f), 0)",
    "ARG_MIN(v, o)": "FIRST(v ORDER BY o, v) FILTER (WHERE v IS NOT NULL AND o IS NOT NULL)",
    "ARG_MIN(DISTINCT v, o)": "ARG_MIN(v, (o, v)) FILTER (WHERE v IS NOT NULL AND o IS NOT NULL)",
    "ARG_MAX(v, o)": "LAST(v ORDER BY o, v) FILTER (WHERE v IS NOT NULL AND o IS NOT NULL)",
    "ARG_MIN(v, o, 2)": f"(LIST(v ORDER BY o, v) {BOTH})[:2]",
    "MAX_BY(v, o, 3)": f"(LIST(v ORDER BY o DESC, v DESC) {BOTH})[:3]",
    "HISTOGRAM(v)": "CAST(to_json(HISTOGRAM(v)) AS TEXT)",
    "ARRAY_AGG(v ORDER BY o DESC)": f"LIST(v ORDER BY {BY_O_DOWN})",
    "ARRAY_AGG(v)": "LIST(v ORDER BY v NULLS FIRST)",
    "ARRAY_AGG(v IGNORE NULLS)": f"LIST(v ORDER BY v) {THERE}",
    "ARRAY_AGG(DISTINCT v ORDER BY v DESC)": "LIST(DISTINCT v ORDER BY v DESC NULLS LAST)",
    "ARRAY_AGG(v ORDER BY o NULLS LAST, v DESC) FILTER (WHERE f)": (
        "LIST(v ORDER BY o NULLS LAST, v DESC NULLS LAST) FILTER (WHERE f)"
    ),
    "JSON_ARRAYAGG(v)": f"CAST(to_json(COALESCE(LIST(v ORDER BY v) {THERE}, [])) AS TEXT)",
    "JSON_ARRAYAGG(v ORDER BY o NULL ON NULL)": f"CAST(to_json(LIST(v ORDER BY {BY_O})) AS TEXT)",
    "TOP_K(v, 2)": f"(LIST(v ORDER BY v DESC) {THERE})[:2]",
    "TOP_K(DISTINCT v, 2)": f"(LIST(DISTINCT v ORDER BY v DESC) {THERE})[:2]",
    "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY v)": (
        "(LIST(v ORDER BY v) FILTER (WHERE v IS NOT NULL))[(COUNT(v) + 1) // 2]"
    ),
    "SUM(DISTINCT v)": "SUM(DISTINCT v)",
    "SUM(DISTINCT v) FILTER (WHERE f)": "SUM(DISTINCT v) FILTER (WHERE f)",
    "STDDEV_POP(v)": "STDDEV_POP(v)",
    "STDDEV_SAMP(v)": "STDDEV_SAMP(v)",
    "VAR_POP(v)": "VAR_POP(v)",
    "VAR_SAMP(v)": "VAR_SAMP(v)",
    "VAR_SAMP(DISTINCT v)": "VAR_SAMP(DISTINCT v)",
    "MEDIAN(v)": "MEDIAN(CAST(v AS DOUBLE))",
    "MEDIAN(DISTINCT v)": "MEDIAN(DISTINCT CAST(v AS DOUBLE))",
    "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY v)": "QUANTILE_CONT(CAST(v AS DOUBLE), 0.25)",
    "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY v DESC)": (
        "QUANTILE_CONT(CAST(v AS DOUBLE), 0.9 ORDER BY v DESC)"
    ),
    "QUANTILE_CONT(v, 0.75)": "QUANTILE_CONT(CAST(v AS DOUBLE), 0.75)",
    "QUANTILE_DISC(v, 0.75)": "QUANTILE_DISC(v, 0.75)",
    **{call: call for call in histories.SAME_IN_DUCKDB},
    "STRING_AGG(v, ', ')": "STRING_AGG(v, ', ' ORDER BY v)",
    "STRING_AGG(v, '' ORDER BY o DESC)": f"STRING_AGG(v, '' ORDER BY {BY_O_DOWN})",
    "LISTAGG(DISTINCT v, '#') WITHIN GROUP (ORDER BY v DESC)": (
        "STRING_AGG(DISTINCT v, '#' ORDER BY v DESC)"
    ),
    "LISTAGG(v) FILTER (WHERE f)": "STRING_AGG(v, ',' ORDER BY v) FILTER (WHERE f)",
    "BOOL_AND(v)": "BOOL_AND(v)",
    "BOOL_OR(v)": "BOOL_OR(v)",
    "EVERY(f)": "BOOL_AND(f)",
    "SOME(f)": "BOOL_OR(f)",
}
CLOSE = (
    *("STDDEV", "VAR", "MEDIAN", "PERCENTILE_CONT", "QUANTILE_CONT"),
    *("SKEW", "KURT", "COVAR", "CORR", "REGR"),
)


def check_duckdb(type_name: str, seeds: range) -> None:
    """Compare all histories of a type with DuckDB, in one query."""
    sql_type = SqlType.parse(type_name)
    calls = [call for call in histories.calls_of(sql_type) if call in DUCKDB]
    if sql_type not in (INT, BIGINT, STRING, BOOLEAN):  # DuckDB writes other types in another way
        calls = [call for call in calls if not call.startswith(("JSON", "HIST"))]
    if sql_type == BIGINT:  # in doubles, as DuckDB has them, the sums of such numbers lose digits
        calls = [call for call in calls if call not in histories.SHAPES]
    seen: list[tuple[list[str], Plan, dict[Key, Row]]] = []
    rows: list[tuple[Any, ...]] = []
    for seed in seeds:
        rng = random.Random(f"{type_name} duckdb {seed}")
        some = rng.sample(calls, rng.randint(1, len(calls)))
        plan = histories.plan_of(sql_type, some)
        for each in histories.run(plan, histories.TAME[type_name], rng, 5):
            rows += [(len(seen), *row) for row in each.live]
            seen.append((some, plan, each.table))
    types = {"place": BIGINT, "k": STRING, "v": sql_type, "o": INT, "f": BOOLEAN}
    columns = list(zip(*rows, strict=True))
    arrays = [to_arrow(column, kind) for column, kind in zip(columns, types.values(), strict=True)]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("live", pa.Table.from_arrays(arrays, names=list(types)))
    everything = histories.plan_of(sql_type, calls)
    results = ", ".join(f"{DUCKDB[call]} AS r{number}" for number, call in enumerate(calls))
    asked = f"SELECT place, k, {results} FROM live GROUP BY place, k"
    answer: Any = connection.sql(asked).to_arrow_table()
    found = [
        from_arrow(answer[f"r{number}"].cast(arrow_type(each.type)), each.type)
        for number, each in enumerate(everything.aggregates)
    ]
    by_place = {
        (at, key): dict(zip(calls, values, strict=True))
        for at, key, *values in zip(
            answer["place"].to_pylist(), answer["k"].to_pylist(), *found, strict=True
        )
    }
    judged = 0
    for at, (some, _, table) in enumerate(seen):
        for (key,), row in table.items():
            wanted = by_place.pop((at, key))
            for call, value in zip(some, row, strict=True):
                assert alike(call, value, wanted[call]), (at, key, call, value, wanted[call])
                judged += 1
    assert not by_place, "groups that the changelog does not know"
    assert judged > len(seeds) * len(calls)


def alike(call: str, value: Any, wanted: Any) -> bool:
    if call.startswith(("CORR", "REGR_SLOPE")) and wanted is not None and math.isnan(wanted):
        wanted = None  # DuckDB divides by zero; the standard and PostgreSQL have NULL
    if call.startswith(CLOSE) and value is not None and wanted is not None:
        return math.isclose(value, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return repr(value) == repr(wanted)


def by_group(table: dict[Key, Row]) -> list[tuple[Key, Row]]:
    return sorted(table.items(), key=lambda entry: str(entry[0]))
