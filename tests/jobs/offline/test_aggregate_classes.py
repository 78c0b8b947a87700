"""Aggregate classes of operators give what DuckDB computes, whatever comes and goes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.checking.recomputation import sort_present
from jobs.core.aggregates.operator_class import AggregateFailed, recompute_class
from jobs.core.fold.group_results import CLASS
from jobs.core.fold.in_memory import MemoryFold
from jobs.core.fold.rules import Rules
from jobs.core.fold.state import Clock
from jobs.core.job.job_plan import plan_of
from jobs.core.rows.consolidate import Consolidation
from jobs.core.sql.printer import aggregate_sql
from jobs.core.sql.select import QueryError
from jobs.core.values.change import Op
from jobs.offline.replay import replay
from schemas import limits
from schemas.spec.file import SpecError, load_spec, spec_text
from tests.support.examples import examples
from tests.support.jobs import operator_classes
from tests.support.jobs.operator_classes import ALLOWED, PREFIX, declare

Rows = list[dict[str, Any]]
CLASSES = {
    "TOTAL": declare("Sum", "BIGINT"),
    "GEO": declare("GeoMean", "DOUBLE"),
    "WEIGHTED": declare("WeightedMean", "DECIMAL(20, 4)"),
    "BURST": declare("Burst", "BIGINT", timers=True),
    "IDLE": declare("Burst", "BIGINT", timers="processing"),
    "FIRED": declare("Fired", "STRING", timers=True),
    "ENDLESS": declare("Endless", "STRING", timers=True),
    "WRONG": declare("Wrong", "BIGINT"),
}
GAP = 10


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETALLY_AGGREGATES", ALLOWED)


def spec(query: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "classes",
        "source": {"topic": "t"},
        "columns": {"k": "STRING", "x": "INT", "d": "DECIMAL(10, 2)", "ms": "BIGINT"},
        "functions": CLASSES,
        "query": query,
        "minibatch": {"size": 1_000_000, "latency": "1h"},
        **more,
    }


def change(op: str, row: dict[str, Any]) -> dict[str, Any]:
    return {"op": op, "row": {name: None if v is None else str(v) for name, v in row.items()}}


def results(steps: Iterable[dict[str, Any]], query: str, **more: Any) -> dict[Any, Any]:
    """Return the rows of a replay by their group, as they are before the end of time."""
    last = change("+I", {"k": "end", "x": 9, "d": 0, "ms": 0})
    found: dict[Any, Any] = {}
    for output in list(replay(spec(query, **more), [*steps, {"flush": True}, last])):
        if "op" in output:
            if output["row"]["k"] == "end":
                break
            values = tuple(output["row"].values())
            if output["op"] in ("+I", "+U"):
                found[values[0]] = values[1:]
            else:
                assert found.pop(values[0]) == values[1:]
    return found


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[dict[str, Any]], Rows]:
    """Draw steps that add and retract rows in bundles, and the rows that are left."""
    rows = st.fixed_dictionaries(
        {
            "k": st.sampled_from("ab"),
            "x": st.integers(1, 9) | st.none(),
            "d": st.decimals(-99, 99, places=2) | st.none(),
            "ms": st.integers(0, 60),
        }
    )
    steps: list[dict[str, Any]] = []
    live: Rows = []
    for _ in range(draw(st.integers(1, 25))):
        if live and draw(st.integers(0, 2)) == 0:
            steps.append(change("-D", live.pop(draw(st.integers(0, len(live) - 1)))))
        else:
            live.append(draw(rows))
            steps.append(change("+I", live[-1]))
        if draw(st.booleans()):
            steps.append({"flush": True})
    return steps, live


def in_duckdb(live: Rows, query: str) -> Iterator[tuple[Any, ...]]:
    names = {"k": "VARCHAR", "x": "INT", "d": "DECIMAL(10, 2)", "ms": "BIGINT"}
    columns = ", ".join(f"{name} {kind}" for name, kind in names.items())
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t ({columns})")
        for row in live:
            connection.execute("INSERT INTO t VALUES (?, ?, ?, ?)", [row[name] for name in names])
        yield from connection.execute(query).fetchall()


@examples(100)
@given(histories())
def test_a_class_is_what_duckdb_computes(drawn: tuple[list[dict[str, Any]], Rows]) -> None:
    steps, live = drawn
    found = results(
        steps,
        "SELECT k, TOTAL(x) AS s, total(DISTINCT x) AS sd, GEO(x) FILTER (WHERE x > 2) AS g, "
        "WEIGHTED(d, x) AS w, TOTAL(x) * 2 AS twice FROM t GROUP BY k HAVING TOTAL(x) > 3",
    )
    computed = in_duckdb(
        live,
        "SELECT k, SUM(x), SUM(DISTINCT x), EXP(AVG(LN(x)) FILTER (WHERE x > 2)), "
        "SUM(d * x) / SUM(x) FILTER (WHERE d IS NOT NULL), SUM(x) * 2 "
        "FROM t GROUP BY k HAVING SUM(x) > 3",
    )
    expected = {key: values for key, *values in computed}
    assert found.keys() == expected.keys()
    for key, (total, distinct, geo, weighted, twice) in found.items():
        assert [total, distinct, twice] == [expected[key][0], expected[key][1], expected[key][4]]
        assert (geo is None) == (expected[key][2] is None)
        assert geo is None or math.isclose(geo, expected[key][2], rel_tol=1e-12)
        assert (weighted is None) == (expected[key][3] is None)
        assert weighted is None or math.isclose(float(weighted), expected[key][3], abs_tol=1e-4)


# Rows that follow each other within the gap are one burst; the last one that has ended counts.
BURSTS = """
WITH marked AS (
    SELECT *, CASE WHEN ms - LAG(ms) OVER (PARTITION BY k ORDER BY ms) <= {gap} THEN 0 ELSE 1 END
        AS starts FROM t
), numbered AS (
    SELECT *, SUM(starts) OVER (PARTITION BY k ORDER BY ms) AS burst FROM marked
), bursts AS (
    SELECT k, burst, COUNT(*) AS n, MAX(ms) + {gap} AS ends FROM numbered GROUP BY k, burst
)
SELECT t.k, (SELECT ARG_MAX(n, burst) FROM bursts AS b WHERE b.k = t.k AND b.ends <= {watermark})
FROM t GROUP BY t.k
"""


@pytest.mark.parametrize(("name", "step"), [("BURST", "watermark"), ("IDLE", "clock")])
@examples(100)
@given(histories(), st.lists(st.integers(0, 40), max_size=4), st.data())
def test_timers_fire_as_on_the_rows_in_their_order(
    name: str,
    step: str,
    drawn: tuple[list[dict[str, Any]], Rows],
    times: list[int],
    data: st.DataObject,
) -> None:
    steps, live = drawn
    for time in times:  # a watermark, or processing time passes, somewhere in between
        steps.insert(data.draw(st.integers(0, len(steps))), {step: time})
    passed = [each[step] for each in steps if step in each]
    found = results(steps, f"SELECT k, {name}(ms, {GAP}) AS b FROM t GROUP BY k")
    time = max(passed, default=-1) if step == "watermark" else sum(passed)
    expected = dict(in_duckdb(live, BURSTS.format(gap=GAP, watermark=time)))
    assert {key: b for key, (b,) in found.items()} == expected


@pytest.mark.parametrize(("name", "step"), [("BURST", "watermark"), ("IDLE", "clock")])
def test_a_timer_that_a_later_row_deletes_fires_if_its_time_passes_first(
    name: str, step: str
) -> None:
    rows = [{"k": "a", "x": 1, "d": None, "ms": ms} for ms in (0, 50)]
    steps = [*(change("+I", row) for row in rows), {"flush": True}, {step: GAP}]
    assert results(steps, f"SELECT k, {name}(ms, {GAP}) AS b FROM t GROUP BY k") == {"a": (1,)}


def burst_of(rows: Iterable[int], until: int) -> tuple[int | None, int | None]:
    """Return the rows of the last burst that ended by a time, and when the next one ends."""
    bursts: list[list[int]] = []
    for at in sorted(rows):
        if bursts and at - bursts[-1][-1] <= GAP:
            bursts[-1].append(at)
        else:
            bursts.append([at])
    ended = [burst for burst in bursts if burst[-1] + GAP <= until]
    later = [burst[-1] + GAP for burst in bursts if burst[-1] + GAP > until]
    return len(ended[-1]) if ended else None, min(later, default=None)


MOVES = st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.integers(0, 25), st.integers(0, 25))


@pytest.mark.parametrize("ttl_ms", [0, 40])
@pytest.mark.parametrize("name", ["BURST", "IDLE"])
@examples(100)
@given(st.lists(MOVES, max_size=25))
def test_the_state_has_the_timers_of_the_rows_of_live_groups_and_no_others(
    name: str, ttl_ms: int, moves: list[tuple[str, int, int, int]]
) -> None:
    made = fold_of(name, Rules(ttl_ms=ttl_ms, refresh=ttl_ms > 0))
    clock = Clock.EVENT if name == "BURST" else Clock.PROCESSING
    live: dict[str, set[int]] = {}
    written: dict[str, int] = {}
    now, watermark = 0, 0
    for key, at, ms, raised in moves:
        rows = live.setdefault(key, set())
        fold_rows(made, [(-1 if at in rows else 1, key, at)], now, watermark)
        rows ^= {at}
        written[key] = now
        now, watermark = now + ms, watermark + raised
        made.pass_time(now, watermark=watermark)
        if ttl_ms:
            live = {k: each for k, each in live.items() if written[k] + ttl_ms > now}
        until = watermark if clock is Clock.EVENT else now
        expected = {k: burst_of(each, until) for k, each in live.items() if each}
        groups = {k: made.state.groups([(k,)])[0] for k in "ab"}
        assert {k: group.result[0] for k, group in groups.items() if group} == {
            k: value for k, (value, _) in expected.items()
        }
        timers = [each for each in made.state.due(clock, 10**6) if each.namespace == CLASS]
        assert sorted((each.key[0], each.time) for each in timers) == sorted(
            (k, time) for k, (_, time) in expected.items() if time is not None
        )


def test_under_a_ttl_a_group_whose_results_are_withheld_has_no_timer_of_a_class() -> None:
    made = fold_of("BURST", Rules(ttl_ms=1_000, withhold=True))

    def timers() -> list[int]:
        return [each.time for each in made.state.due(Clock.EVENT, 10**6)]

    fold_rows(made, [(1, "a", 1)], 0, 0)
    assert timers() == []
    made.pass_time(0, release=True, watermark=0)
    assert timers() == [1 + GAP]
    fold_rows(made, [(1, "a", 5)], 0, 0)
    assert timers() == [], "the time of the last results is not that of the rows"
    made.pass_time(0, release=True, watermark=0)
    assert timers() == [5 + GAP]
    expired = made.pass_time(1_000, watermark=0).changelog
    assert [op for op, _, _ in expired] == [Op.DELETE]
    assert timers() == []


def test_after_a_shorter_ttl_a_timer_of_a_class_still_fires() -> None:
    made = fold_of("IDLE", Rules(ttl_ms=1_000))
    fold_rows(made, [(1, "a", 100)], 0, 0)
    made._rules = Rules(ttl_ms=10)
    fired = made.pass_time(100 + GAP).changelog
    assert [(op, row) for op, _, row in fired][1:] == [(Op.UPDATE_AFTER, (1,))]
    assert [op for op, _, _ in made.pass_time(1_000).changelog] == [Op.DELETE]


def fold_of(name: str, rules: Rules) -> MemoryFold:
    """Return the fold of a query with one class over the columns k and ms."""
    plan = plan_of(load_spec(spec(f"SELECT k, {name}(ms, {GAP}) AS b FROM t GROUP BY k")))
    return MemoryFold(plan, lambda row: ((row[0],), ((row[1], GAP),)), rules=rules)


def fold_rows(
    made: MemoryFold, changes: Iterable[tuple[int, str, int]], now_ms: int, watermark: int
) -> None:
    consolidation = Consolidation(0)
    consolidation.add([(sign, (key, at)) for sign, key, at in changes])
    made.fold([consolidation], now_ms, watermark)


def test_timers_fire_once_in_time_order_before_the_watermark_is_forwarded() -> None:
    steps = [
        change("+I", {"k": "a", "x": 1, "d": None, "ms": 100}),
        {"watermark": 109},
        {"watermark": 110},
        {"watermark": 129},
        change("+I", {"k": "a", "x": 1, "d": None, "ms": 115}),
        {"watermark": 131},
    ]
    output = list(replay(spec("SELECT k, FIRED(ms) AS f FROM t GROUP BY k"), steps))
    told = [
        each["watermark"] if "watermark" in each else each["row"]["f"]
        for each in output
        if "watermark" in each or each.get("op") in ("+I", "+U")
    ]
    assert told[:-2] == [
        None,
        109,
        "110",
        110,
        "110,120",
        129,
        "110,120,125",  # of the second row; 129 has passed
        "110,120,125,130",
        131,
    ]
    assert told[-2] == "110,120,125,130,135,145", "the end of the input fires what is left"


def test_a_group_has_one_timer_of_its_classes_until_it_ends() -> None:
    made = fold_of("BURST", Rules())

    def fold(*changes: tuple[int, int]) -> list[int]:
        fold_rows(made, [(sign, "a", at) for sign, at in changes], 0, 0)
        return [timer.time for timer in made.state.due(Clock.EVENT, 10**6)]

    assert fold((1, 1)) == [1 + GAP]
    for at in range(2, 50):
        assert fold((-1, at - 1), (1, at)) == [at + GAP]
    assert fold((-1, 49)) == []


def test_under_a_ttl_a_timer_of_a_class_emits_no_equal_row() -> None:
    made = fold_of("BURST", Rules(ttl_ms=1_000, refresh=True))
    for changes in ([(1, "a", 1)], [(-1, "a", 1), (1, "a", 15)]):
        fold_rows(made, changes, 5, 0)
    assert made.pass_time(5, watermark=20).changelog == []
    fired = [(op, row) for op, _, row in made.pass_time(5, watermark=25).changelog]
    assert fired == [(Op.UPDATE_BEFORE, (None,)), (Op.UPDATE_AFTER, (1,))]


def test_a_timer_fires_after_the_rows_of_its_time() -> None:
    rows = [{"k": "a", "x": 1, "d": None, "ms": ms} for ms in (0, GAP)]
    steps = [*(change("+I", row) for row in rows), {"watermark": 2 * GAP}]
    assert results(steps, f"SELECT k, BURST(ms, {GAP}) AS b FROM t GROUP BY k") == {"a": (2,)}


def test_an_audit_runs_the_class_over_the_values_that_are_present() -> None:
    plan = plan_of(load_spec(spec(f"SELECT k, BURST(ms, {GAP}) AS b FROM t GROUP BY k")))
    (burst,), (argument,) = plan.aggregates, plan.arguments
    values = sort_present([((90, GAP), 1), ((5, GAP), 2), ((0, GAP), 1), ((7, GAP), -1)])
    found = [recompute_class(burst, argument.type, values, at) for at in (None, 14, 15, 99, 100)]
    assert found == [None, None, 3, 3, 1]


def test_what_a_class_does_wrong_is_named_with_its_row_and_its_group() -> None:
    def run(x: int | None, query: str = "SELECT k, WRONG(x) AS w FROM t GROUP BY k") -> None:
        list(replay(spec(query), [change("+I", {"k": "a", "x": x, "d": None, "ms": 7})]))

    run(3)
    where = rf"the aggregate class {PREFIX}:Wrong: "
    with pytest.raises(AggregateFailed, match=where + r"accumulate failed: ZeroDivisionError") as e:
        run(0)
    assert "(operator_classes.py, line " in str(e.value)
    assert "; the row: [0]; correct the class" in str(e.value)
    assert str(e.value).endswith("(in the group ('a',))")
    with pytest.raises(AggregateFailed, match=where + "result returned 'ten', which is no BIGINT"):
        run(1)
    timers = f"more than {limits.CLASS_TIMERS_MAX} timers fire in one group"
    with pytest.raises(AggregateFailed, match=timers):
        run(1, "SELECT k, ENDLESS(ms) AS w FROM t GROUP BY k")


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (100.5, "TypeError: .*in an int, not 100.5"),
        (60_000.0, "TypeError: "),
        (True, "TypeError: "),
        (2**63, "ValueError: .*more than 64 bits"),
    ],
)
def test_a_timer_is_at_a_whole_millisecond(
    time: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        operator_classes.Fired, "accumulate", lambda self, _, at: self.timers.register(time)
    )
    with pytest.raises(AggregateFailed, match=rf"{PREFIX}:Fired: register failed: {reason}") as e:
        query = "SELECT k, FIRED(ms) AS w FROM t GROUP BY k"
        list(replay(spec(query), [change("+I", {"k": "a", "x": 1, "d": None, "ms": 7})]))
    assert "; the row: [7]; correct the class" in str(e.value)
    assert str(e.value).endswith("(in the group ('a',))")


def test_a_class_is_loaded_only_if_the_operator_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(**functions: Any) -> None:
        list(replay(spec("SELECT k, COUNT(*) AS n FROM t GROUP BY k", functions=functions), []))

    monkeypatch.setenv("RETALLY_AGGREGATES", f"{PREFIX}:Sum,{PREFIX}:Fired,{PREFIX}:NAMES,a:B")
    run(TOTAL=CLASSES["TOTAL"])
    with pytest.raises(SpecError, match="GeoMean is not among the classes"):
        run(GEO=CLASSES["GEO"])
    with pytest.raises(SpecError, match="a:B cannot be loaded: No module named 'a'"):
        run(B={"class": "a:B", "returns": "INT"})
    right = "NAMES is not a subclass .* `from jobs.core.functions import AggregateFunction`"
    with pytest.raises(SpecError, match=right):
        run(B=declare("NAMES", "INT"))
    both = r"functions.F: .*:Fired has on_timer; add timers: true or timers: processing"
    with pytest.raises(SpecError, match=both):
        run(F=declare("Fired", "STRING"))
    with pytest.raises(SpecError, match=r"functions.S: .*:Sum has no on_timer; remove timers"):
        run(S=declare("Sum", "BIGINT", timers=True))


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("TOTAL()", "TOTAL"),
        ("TOTAL(x ORDER BY ms)", "TOTAL has no ORDER BY"),
        ("TOTAL(SUM(x))", "an aggregate is not possible in TOTAL"),
        ("BURST(x, 5)", "the first argument of a class with timers is the time of a row, this is"),
        ("TOTAL(x) IGNORE NULLS", "TOTAL gets NULLs"),
        ("TOTALS(x)", "unknown function TOTALS"),
        ("TOTAL(y)", "unknown column"),
        ("BURST(ms, 5) + IDLE(ms, 5)", "the timers of a query have one clock"),
    ],
)
def test_a_call_that_is_none_is_refused(call: str, reason: str) -> None:
    with pytest.raises(QueryError, match=reason.replace("(", r"\(")):
        plan_of(load_spec(spec(f"SELECT k, {call} AS r FROM t GROUP BY k")))


def test_a_name_of_retally_is_no_name_of_a_class() -> None:
    for name in ("SUM", "UPPER", "LISTAGG"):
        own = spec("SELECT k, SUM(x) AS s FROM t GROUP BY k", functions={name: CLASSES["TOTAL"]})
        with pytest.raises(QueryError, match=rf"functions.{name}: retally has {name} itself"):
            plan_of(load_spec(own))
    own = spec("SELECT k, SUM(x) AS s FROM t GROUP BY k", functions={"total": CLASSES["TOTAL"]})
    with pytest.raises(SpecError, match="'total' is not a function name; write it in capitals"):
        load_spec(own)


def test_a_spec_and_a_plan_with_a_class_are_read_again() -> None:
    query = (
        "SELECT k, Burst(ms, 5) AS b, TOTAL(DISTINCT x) FILTER (WHERE x > 1) AS s FROM t GROUP BY k"
    )
    made = load_spec(spec(query))
    assert load_spec(spec_text(made)) == made
    plan = plan_of(made)
    burst, total = (aggregate_sql(plan, each) for each in plan.aggregates)
    assert (burst, total) == ("BURST(ms, 5)", "TOTAL(DISTINCT x) FILTER (WHERE x > 1)")
    printed = made.model_copy(
        update={"query": f"SELECT k, {burst} AS b, {total} AS s FROM t GROUP BY k"}
    )
    assert plan_of(printed).fingerprint == plan.fingerprint
