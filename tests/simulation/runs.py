"""Many seeds, one tally; and the seeds that have failed, which are kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.simulation.jobs import SINGLE, SimulatedJob
from tests.simulation.judge import judged
from tests.simulation.world import Violation, World
from tests.support.faults.tally import FaultTally

SEEDS = Path(__file__).with_name("seeds.txt")
FAILURES_SHOWN = 5


def known_seeds() -> list[int]:
    lines = SEEDS.read_text().splitlines() if SEEDS.exists() else []
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


def run_seeds(seeds: Iterable[int], tally: FaultTally, job: SimulatedJob = SINGLE) -> None:
    """Run them all, keep those that fail, and close the tally."""
    failures: list[str] = []
    for seed in seeds:
        try:
            world, judge = judged(seed, job=job)
        except Exception as problem:
            failures.append(f"seed {seed}: {type(problem).__name__}: {problem}")
            _keep(seed)
            _count(tally, str(problem) if isinstance(problem, Violation) else "lost")
            continue
        tally.inputs += sum(len(p) for s in world.broker.sources.values() for p in s.partitions)
        tally.outputs += judge.outputs
        tally.recoveries += world.recoveries
        _faults(tally, world)
    assert not failures, "\n".join([f"{len(failures)} seeds failed", *failures[:FAILURES_SHOWN]])
    tally.close()


def _faults(tally: FaultTally, world: World) -> None:
    """A job that has had to stop has nothing more to be hurt."""
    for fault in world.plan:
        if fault.fired_at is not None or world.refused is None:
            tally.plan(fault.name)
        if fault.fired_at is not None:
            tally.fire(fault.name)


def _count(tally: FaultTally, said: str) -> None:
    if said.startswith("duplicates"):
        tally.duplicates += 1
    elif said.startswith("out_of_order"):
        tally.out_of_order += 1
    else:
        tally.lost += 1


def _keep(seed: int) -> None:
    if seed not in known_seeds():
        with SEEDS.open("a") as file:
            file.write(f"{seed}\n")
