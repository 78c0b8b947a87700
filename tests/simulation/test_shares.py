"""Whole jobs whose starts have one to three publishers, each with its faults.

Share 0 and its helpers die, stall and are fenced one by one: a helper goes on after its share 0 is
dead, as a process may for a moment. After every turn the progress covers whole epochs only.
"""

from __future__ import annotations

import pytest

from tests.simulation.broken_rules import BrokenRule
from tests.simulation.broken_shares import BROKEN_SHARES
from tests.simulation.jobs import SHARED
from tests.simulation.judge import judged
from tests.simulation.runs import run_seeds
from tests.simulation.world import FATAL, FAULTS, Violation
from tests.support.faults.tally import FaultTally

SEEDS, CONTROL_SEEDS = 150, 1_000


def test_shares_lose_and_repeat_nothing_whatever_fails_around_them() -> None:
    tally = FaultTally("simulation of shares, short", unit="turns")
    run_seeds(range(SEEDS), tally, SHARED)
    assert set(tally.fired) == {f"{kind}@{point}" for kind, point in (*FAULTS, *FATAL)}


@pytest.mark.parametrize("rule", BROKEN_SHARES, ids=[rule.says for rule in BROKEN_SHARES])
def test_negative_control_a_broken_rule_of_shares_shows(rule: BrokenRule) -> None:
    with rule.broken() as options:
        for seed in range(CONTROL_SEEDS):
            try:
                judged(seed, job=SHARED, **options)
            except Violation:
                return
    raise AssertionError(f"{CONTROL_SEEDS} seeds, and nobody has noticed: {rule.says}")
