"""Whole jobs with joins of two and of three topics, each with its faults.

After every epoch each view is compared with the same join of the rows that are live. More seeds,
among which every fault happens, are in tests/faults/test_simulation.py.
"""

from __future__ import annotations

import pytest

from tests.simulation.broken_joins import BROKEN_JOINS
from tests.simulation.broken_rules import BrokenRule
from tests.simulation.jobs import THREE_SOURCES, TWO_SOURCES, SimulatedJob
from tests.simulation.judge import judged
from tests.simulation.runs import run_seeds
from tests.simulation.world import Violation
from tests.support.faults.tally import FaultTally

JOBS = pytest.mark.parametrize("job", [TWO_SOURCES, THREE_SOURCES], ids=["two", "three"])
SEEDS, CONTROL_SEEDS = 25, 300


@JOBS
def test_joins_are_right_at_every_epoch_whatever_fails_around_them(job: SimulatedJob) -> None:
    run_seeds(range(SEEDS), FaultTally("simulation of joins, short", unit="turns"), job)


@pytest.mark.parametrize("rule", BROKEN_JOINS, ids=[rule.says for rule in BROKEN_JOINS])
def test_negative_control_a_broken_rule_of_joins_shows(rule: BrokenRule) -> None:
    with rule.broken() as options:
        for seed in range(CONTROL_SEEDS):
            try:
                judged(seed, job=TWO_SOURCES, **options)
            except Violation:
                return
    raise AssertionError(f"{CONTROL_SEEDS} seeds, and nobody has noticed: {rule.says}")
