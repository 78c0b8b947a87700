"""Hundreds of whole jobs, each with its faults, and every rule broken once to see that it shows.

Thousands of seeds are in tests/faults/test_simulation.py. A seed that fails is written to
seeds.txt, and those are run first, for ever.
"""

from __future__ import annotations

import pytest

from tests.simulation.broken_rules import BROKEN_RULES, BrokenRule
from tests.simulation.judge import judged
from tests.simulation.runs import known_seeds, run_seeds
from tests.simulation.world import FATAL, FAULTS, Violation
from tests.support.faults.tally import FaultTally

SEEDS = 300
CONTROL_SEEDS = 1_000


def test_seeds_that_failed_once_hold() -> None:
    tally = FaultTally("simulation, known seeds", unit="turns")
    run_seeds(known_seeds(), tally)


def test_a_job_loses_and_repeats_nothing_whatever_fails_around_it() -> None:
    tally = FaultTally("simulation, short", unit="turns")
    run_seeds(range(SEEDS), tally)
    assert set(tally.fired) == {f"{kind}@{point}" for kind, point in (*FAULTS, *FATAL)}


@pytest.mark.parametrize("rule", BROKEN_RULES, ids=lambda rule: rule.says)
def test_negative_control_a_broken_rule_shows(rule: BrokenRule) -> None:
    with rule.broken() as options:
        for seed in range(CONTROL_SEEDS):
            try:
                judged(seed, **options)
            except Violation:
                return
    raise AssertionError(f"{CONTROL_SEEDS} seeds, and nobody has noticed: {rule.says}")


def test_a_seed_is_one_run() -> None:
    (one, judge), (other, second) = judged(11), judged(11)
    assert (one.turns, judge.outputs, judge.table) == (other.turns, second.outputs, second.table)
    assert [fault.fired_at for fault in one.plan] == [fault.fired_at for fault in other.plan]
