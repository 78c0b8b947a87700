"""What a changed query can be answered with from the kept state; through the command in
tests/jobs/running/test_evolve.py."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from jobs.core.fold.fold import FoldContext, fold
from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.fold.program import Program
from jobs.core.fold.state import MemoryState
from jobs.core.job.evolution import (
    GroupConverter,
    Planned,
    RowConverter,
    compare_jobs,
    compare_plans,
)
from jobs.core.job.job_plan import plan_of
from jobs.core.plan.tree import Plan
from jobs.core.rows.projection import row_projection
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row
from jobs.core.values.exact_numbers import NAN
from jobs.core.values.order_key import encoder
from schemas.spec.file import load_spec
from schemas.types.sql_types import BIGINT, DOUBLE, STRING, SqlType
from tests.support.epoch_rows import epoch_row

SPEC: dict[str, Any] = {
    "name": "items",
    "source": {"topic": "t"},
    "columns": {"k": "STRING", "v": "BIGINT"},
    "query": "SELECT k, SUM(v) AS s FROM t GROUP BY k",
    "state": {"buckets": 4},
    "sink": {"topic": "out"},
}
COLUMNS: dict[str, SqlType] = {"k": STRING, "v": BIGINT, "x": DOUBLE}


def plan(select: str, rest: str = "GROUP BY k", where: str = "") -> Plan:
    return parse_query(f"SELECT k, {select} FROM t {where} {rest}", COLUMNS)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("MAX(v) AS m", "MIN(v) AS low, MAX(v) AS m, COUNT(*) AS n"),
        ("MAX(v) AS m", "SUM(v) AS s, AVG(v) AS a, COUNT(DISTINCT v) AS d"),
        ("SUM(v) AS s, MAX(x) AS m", "SUM(v) AS s"),
        ("SUM(v) AS s, MAX(x) AS m", "MEDIAN(x) AS mid, SUM(x) AS sx, MIN(x) AS low"),
        ("AVG(v) AS a", "COUNT(v) AS n, SUM(v) AS s, AVG(v) AS a"),
        ("COUNT(*) AS n", "COUNT(*) + 1 AS more"),
    ],
)
def test_the_kept_state_gives_what_a_recomputation_gives(old: str, new: str) -> None:
    before, after = plan(old), plan(new)
    found = compare_plans(before, after, closes=False)
    assert not (found.reasons or found.fixed)
    random, rows = Random(f"{old}{new}"), list[Row]()
    memory_folds = [_memory_fold(each) for each in (before, after)]
    for _ in range(12):
        changes: list[tuple[int, Row]] = []
        for _ in range(6):
            if rows and random.random() < 0.4:
                changes.append((-1, rows.pop(random.randrange(len(rows)))))
            else:
                x = random.choice([None, 0.5, 2.5, NAN])
                row = (random.choice("abc"), random.choice([None, 1, 2, 3]), x)
                rows.append(row)
                changes.append((1, row))
        for memory_fold, used in zip(memory_folds, (before, after), strict=True):
            bundle = Bundle()
            places = [list(COLUMNS).index(column.name) for column in used.used]
            bundle.add(0, 0, [(sign, tuple(row[p] for p in places)) for sign, row in changes])
            memory_fold.fold(bundle.consolidate())
    kept, wanted = memory_folds[0].state, memory_folds[1].state
    carried = GroupConverter(Program(before), Program(after), found.sources)
    deltas = {}
    for key, group in kept._groups.items():
        entries = {argument: kept.entries(argument, key) for argument in Program(before).multisets}
        deltas[key] = carried.delta(key, group, entries)
    made = MemoryState()
    order = encoder((STRING,))
    made.apply(fold(Program(after), MemoryState(), deltas, FoldContext(order)).upserts)
    assert repr(sorted(made._groups.items())) == repr(sorted(wanted._groups.items()))
    for key in made._groups:
        for argument in Program(after).multisets:
            found_entries = [e for e in made.entries(argument, key) if e[1]]
            assert repr(found_entries) == repr(wanted.entries(argument, key))


def _memory_fold(of: Plan) -> MemoryFold:
    projection = row_projection(of)
    assert projection is not None
    return MemoryFold(of, projection)


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (plan("SUM(v) AS s", where="WHERE v > 1"), "WHERE changed"),
        (plan("SUM(v) AS s", rest="GROUP BY k, x"), "GROUP BY changed"),
        (plan("SUM(x) AS sx"), "SUM(x) is over values that no aggregate of the old query is over"),
        (plan("MAX(v) AS m"), "MAX(v) needs all values of v, which are not kept"),
        (plan("VAR_POP(v) AS p"), "VAR_POP(v) needs more than is kept of v"),
        (plan("COUNT(v) AS s"), None),
        (replace(plan("SUM(v) AS s"), empty_keys=((),)), "`empty` changed"),
        (plan("MAX(k) AS s"), "column s was BIGINT and would be STRING"),
    ],
)
def test_what_cannot_be_answered_is_told_with_the_reason(new: Plan, reason: str | None) -> None:
    found = compare_plans(plan("SUM(v) AS s"), new, closes=False)
    told = (*found.reasons, *found.fixed)
    assert bool(told) is (reason is not None)
    assert reason is None or any(each.startswith(reason) for each in told)


def test_windows_that_close_keep_results_only() -> None:
    old, new = plan("MAX(v) AS m"), plan("MAX(v) AS m, MIN(v) AS low")
    assert not compare_plans(old, new, closes=False).reasons
    assert compare_plans(old, new, closes=True).reasons
    assert not compare_plans(old, old, closes=True).reasons
    shown = plan("MAX(v) AS m", "GROUP BY k HAVING MAX(v) > 1")
    assert not compare_plans(old, shown, closes=False).reasons
    assert compare_plans(old, shown, closes=True).reasons


def test_a_new_column_was_null_and_one_that_is_gone_is_left_out() -> None:
    old, new = plan("SUM(v) AS s, MAX(v) AS m"), plan("COUNT(v) AS n, MAX(v) AS m")
    found = compare_plans(old, new, closes=False)
    assert (found.added, found.dropped) == (("n",), ("s",))
    assert RowConverter(old, new).row((10, 4)) == (None, 4)


def test_what_would_be_another_job_is_not_even_read_again() -> None:
    def planned(**changed: Any) -> Planned:
        spec = load_spec(SPEC | changed)
        return Planned(spec, plan_of(spec))

    old, newest = planned(), epoch_row(3)
    assert not compare_jobs(old, planned(), newest).reasons
    other_rows = planned(query="SELECT k, SUM(v) AS s FROM t WHERE v > 1 GROUP BY k")
    found = compare_jobs(old, other_rows, newest)
    assert found.reasons and not (found.fixed or found.begins)
    groups = {"query": "SELECT v, COUNT(*) AS n FROM t GROUP BY v"}
    found = compare_jobs(old, planned(**groups), newest)
    assert found.fixed
    assert "give sink.topic another name" in found.fixed[0]
    found = compare_jobs(old, planned(**groups, sink={"topic": "out-2"}), newest)
    assert found.reasons and found.begins and not found.fixed
    for changed, word in (
        ({"state": {"buckets": 8}}, "state.buckets is fixed"),
        ({"query": "SELECT k, MAX(k) AS s FROM t GROUP BY k"}, "column s was BIGINT"),
    ):
        found = compare_jobs(old, planned(**changed), newest)
        assert found.fixed
        assert found.fixed[0].startswith(word)
