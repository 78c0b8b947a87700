"""Twenty thousand simulated jobs (tests/simulation), in parts, so that a run can go on where
another ended."""

from __future__ import annotations

import pytest

from tests.simulation.jobs import SEVERAL, THREE_SOURCES, TWO_SOURCES, SimulatedJob
from tests.simulation.runs import run_seeds
from tests.simulation.world import FATAL, FAULTS
from tests.support.faults.tally import FaultTally

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800)]
SEEDS, PARTS, FIRST = 20_000, 10, 1_000
JOIN_SEEDS = range(25, 325)  # after those of make test


@pytest.mark.parametrize("part", range(PARTS))
def test_simulated_jobs_lose_and_repeat_nothing(part: int) -> None:
    size = SEEDS // PARTS
    start = FIRST + part * size
    run_seeds(range(start, start + size), FaultTally(f"simulation, part {part + 1}", unit="turns"))


@pytest.mark.parametrize("part", range(PARTS))
def test_simulated_jobs_with_views_lose_and_repeat_nothing(part: int) -> None:
    size = SEEDS // PARTS
    start = FIRST + part * size
    tally = FaultTally(f"simulation of views, part {part + 1}", unit="turns")
    run_seeds(range(start, start + size), tally, SEVERAL)


@pytest.mark.parametrize("job", [TWO_SOURCES, THREE_SOURCES], ids=["two", "three"])
def test_simulated_jobs_with_joins_lose_and_repeat_nothing(job: SimulatedJob) -> None:
    tally = FaultTally("simulation of joins", unit="turns")
    run_seeds(JOIN_SEEDS, tally, job)
    assert set(tally.fired) == {f"{kind}@{point}" for kind, point in (*FAULTS, *FATAL)}
