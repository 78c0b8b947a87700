"""Hundreds of whole jobs, each with its faults, and every rule broken once to see that it shows.

Thousands of seeds are in tests/faults/test_simulation.py. A seed that fails is written to
seeds.txt, and those are run first, for ever.
"""

from __future__ import annotations

import pytest

from tests.simulation.broken_rules import BROKEN_RULES, BrokenRule
from tests.simulation.broken_views import BROKEN_VIEWS
from tests.simulation.jobs import SEVERAL, SINGLE, SimulatedJob
from tests.simulation.judge import judged
from tests.simulation.runs import known_seeds, run_seeds
from tests.simulation.world import FATAL, FAULTS, Violation
from tests.support.faults.tally import FaultTally

pytestmark = pytest.mark.costly("hundreds of histories with faults, for one view and for several")

SEEDS = 150
CONTROL_SEEDS = 1_000


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(SINGLE, id="one query"),
        pytest.param(SEVERAL, id="views", marks=pytest.mark.slow),
    ],
)
def test_seeds_that_failed_once_hold(job: SimulatedJob) -> None:
    tally = FaultTally("simulation, known seeds", unit="turns")
    run_seeds(known_seeds(), tally, job)


def test_all_views_are_right_at_every_epoch_whatever_fails_around_them() -> None:
    tally = FaultTally("simulation of views, short", unit="turns")
    run_seeds(range(SEEDS), tally, SEVERAL)
    assert set(tally.fired) == {f"{kind}@{point}" for kind, point in (*FAULTS, *FATAL)}


def test_a_job_loses_and_repeats_nothing_whatever_fails_around_it() -> None:
    tally = FaultTally("simulation, short", unit="turns")
    run_seeds(range(SEEDS), tally)
    assert set(tally.fired) == {f"{kind}@{point}" for kind, point in (*FAULTS, *FATAL)}


CONTROLS = [(SINGLE, rule) for rule in BROKEN_RULES] + [(SEVERAL, rule) for rule in BROKEN_VIEWS]


@pytest.mark.parametrize(("job", "rule"), CONTROLS, ids=[rule.says for _, rule in CONTROLS])
def test_negative_control_a_broken_rule_shows(job: SimulatedJob, rule: BrokenRule) -> None:
    with rule.broken() as options:
        for seed in range(CONTROL_SEEDS):
            try:
                judged(seed, job=job, **options)
            except Violation:
                return
    raise AssertionError(f"{CONTROL_SEEDS} seeds, and nobody has noticed: {rule.says}")


def test_a_seed_is_one_run() -> None:
    (one, judge), (other, second) = judged(11), judged(11)
    assert (one.turns, judge.outputs, judge.table) == (other.turns, second.outputs, second.table)
    assert [fault.fired_at for fault in one.plan] == [fault.fired_at for fault in other.plan]
