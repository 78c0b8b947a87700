"""Every change script through the core: what comes out is what the script says, line by line.

A second run of each rebuilds the state from its own upserts after every bundle, as a start after a
crash does; nothing may depend on what was only in memory. `--rewrite` writes what comes out into
the scripts, for review.
"""

from __future__ import annotations

import pytest

from jobs.core.fold.fold import FoldResult
from jobs.core.fold.in_memory import MemoryFold
from jobs.core.fold.state import Key, Upserts
from jobs.core.plan.tree import Plan
from jobs.core.rows.projection import Projection, row_projection
from jobs.core.rows.windows import window_expander, with_window_columns
from jobs.core.sql.grouping_sets import with_set_numbers
from jobs.core.values.change import Row
from jobs.core.values.json_values import render
from tests.support.histories.change_scripts import Script, ScriptedBundle, scripts, shown
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.histories.scripted_bundles import bundles_of, plan_of, rules_of_script

SCRIPTS = scripts()


def plan_over_rows(script: Script) -> Plan:
    """Return the plan of a script over rows with their grouping sets."""
    plan = plan_of(script)
    return plan if plan.grouping_sets == 1 else with_set_numbers(plan)


def projection_of(plan: Plan) -> Projection:
    """Return the projection of rows; a row is in one window at most."""
    if plan.window is None:
        return row_projection(plan)
    windows_of = window_expander(plan, plan.window)
    project = row_projection(with_window_columns(plan, plan.window))
    return lambda row: project(windows_of(row)[0])


def lines_of(plan: Plan, folded: FoldResult) -> list[str]:
    lines = [shown(op, _values(plan, key, row)) for op, key, row in folded.changelog]
    counters = folded.counters
    noticed = {
        "dropped": counters.dropped_retractions,
        "unmatched": counters.unmatched_retractions,
        "below_zero": counters.below_zero_delta,
        "misfits": counters.misfits,
    }
    return lines + [f"{word} {count}" for word, count in noticed.items() if count]


def _values(plan: Plan, key: Key, row: Row) -> list[object]:
    columns = [(named.name, named.type) for named in plan.group]
    columns += plan.results
    shown_by_name = {
        name: render(value, kind) for (name, kind), value in zip(columns, key + row, strict=True)
    }
    return [shown_by_name[name] for name in plan.output]


class Run:
    """A script on its way, with the time that has passed."""

    def __init__(self, script: Script) -> None:
        self.now_ms = 0
        self.bundles = iter(bundles_of(script, plan_of(script)))

    def fold(self, memory_fold: MemoryFold, scripted: ScriptedBundle) -> FoldResult:
        bundle = next(self.bundles)
        if scripted.changes:
            return memory_fold.fold(bundle.consolidate(), self.now_ms)
        if memory_fold.plan.empty_keys:
            return memory_fold.open_groups()
        self.now_ms += scripted.clock_ms
        return memory_fold.pass_time(self.now_ms, release=scripted.release)


def check(script: Script, plan: Plan, projection: Projection, *, rewrite: bool) -> None:
    memory_fold = MemoryFold(plan, projection, rules=rules_of_script(script))
    table: dict[Key, Row] = {}
    outcomes = []
    run = Run(script)
    for scripted in script.bundles:
        folded = run.fold(memory_fold, scripted)
        outcomes.append(lines_of(plan, folded))
        fold_changelog(table, folded.changelog)
        if not script.emit_expired:
            continue  # then the changelog does not say which groups there are
        for key, row in table.items():
            group = memory_fold.state.groups([key])[0]
            assert group is not None
            assert repr(memory_fold.program.row(group)) == repr(row)
        if not rewrite:
            assert outcomes[-1] == scripted.expected
    if rewrite:
        script.rewrite(outcomes)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_script_holds(script: Script, request: pytest.FixtureRequest) -> None:
    plan = plan_over_rows(script)
    projection = projection_of(plan)
    check(script, plan, projection, rewrite=request.config.getoption("--rewrite"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_script_holds_with_a_state_rebuilt_after_every_bundle(
    script: Script, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--rewrite"):
        pytest.skip("the scripts are being rewritten; run again without --rewrite")
    plan = plan_over_rows(script)
    projection = projection_of(plan)
    history: list[Upserts] = []
    run = Run(script)
    for scripted in script.bundles:
        memory_fold = MemoryFold(plan, projection, rules=rules_of_script(script))
        for upserts in history:
            memory_fold.state.apply(upserts)
        folded = run.fold(memory_fold, scripted)
        history.append(folded.upserts)
        assert lines_of(plan, folded) == scripted.expected
