"""Compare every aggregate with COUNT(*), in a job for each, over groups of about 50 rows.

All jobs catch up with the same topic. The measurement starts at the commit of the first epoch, when
the engine is warm. A last job has all aggregates, and an audit recomputes its results."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from bench.frame import Bench, Figure, Loaded
from bench.generator import Shape
from bench.outcome import BenchFailed
from bench.product import MINIBATCH, RetallyJob
from jobs.core.aggregates import FUNCTIONS

TITLE = "aggregates"
CHANGES_MAX = 600_000
GROUPS, ROWS_OF_A_GROUP = 2_000, 50
EPOCH_ROWS_MAX = 100_000
SHARE_MIN = 0.4  # of COUNT(*)
AS_LONG = ("STRING_AGG", "ARRAY_AGG")  # as their groups: no share is promised
MILLION = 1_000_000
AUDIT_SECONDS_MAX = 600

ROWS = "COUNT(*)"
# The calls of functions other than NAME(cnt).
_SPOKEN = {
    "COUNT": "COUNT(DISTINCT cnt)",
    "FIRST_VALUE": "FIRST_VALUE(price ORDER BY id)",
    "LAST_VALUE": "LAST_VALUE(price ORDER BY id)",
    "ARG_MIN": "ARG_MIN(id, cnt)",
    "ARG_MAX": "ARG_MAX(id, cnt)",
    "STRING_AGG": "STRING_AGG(description, ',')",
    "ARRAY_AGG": "ARRAY_AGG(cnt)",
    "TOP_K": "TOP_K(cnt, 10)",
    "PERCENTILE_CONT": "PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY cnt)",
    "PERCENTILE_DISC": "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY cnt)",
    "BOOL_AND": "BOOL_AND(cnt > 10)",
    "BOOL_OR": "BOOL_OR(cnt > 10)",
}
_FLOATS = "CAST(price AS DOUBLE)"
# Sums of floats are integers of a thousand bits, which cost more.
_OF_FLOATS = ("SUM", "AVG", "STDDEV_POP", "MEDIAN", "MAX")
CALLS = {
    **{name: _SPOKEN.get(name, f"{name}(cnt)") for name in FUNCTIONS},
    **{f"{name}_OF_FLOATS": f"{name}({_FLOATS})" for name in _OF_FLOATS},
}


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    shape = replace(
        Shape(),
        changes=min(bench.options.changes, CHANGES_MAX),
        live_rows=GROUPS * ROWS_OF_A_GROUP,
        groups=GROUPS,
        skew=None,
    )
    loaded = bench.load(shape)
    rows = warm(bench, loaded, "rows", ROWS)
    bench.add(Figure(TITLE, "retally", ROWS, rows.rate, "changes/s"))
    bench.add(Figure(TITLE, "retally", ROWS, rows.cpu_seconds * MILLION, "s per million"))
    calls = {name: CALLS[name] for name in bench.options.calls or CALLS}
    for name, call in calls.items():
        found = warm(bench, loaded, name.lower(), call)
        # A busy engine is as fast as its processor time says, and processor time does not depend on
        # other work on the machine.
        share = rows.cpu_seconds / found.cpu_seconds
        promised = name not in AS_LONG
        bound = f">= {SHARE_MIN}" if promised else ""
        holds = share >= SHARE_MIN if promised else None
        bench.add(Figure(TITLE, "retally", call, share, "of COUNT(*)", bound, holds))
        bench.add(Figure(TITLE, "retally", call, found.rate / rows.rate, "of its rate"))

    job = job_of(bench, loaded, "all", ", ".join(f"{call} AS {n}" for n, call in calls.items()))
    job.catch_up()
    audit(job)


def job_of(bench: Bench, loaded: Loaded, name: str, calls: str) -> RetallyJob:
    return RetallyJob(
        name=name.replace("_", "-"),
        brokers=bench.brokers,
        topic=loaded.topic,
        directory=bench.directory / f"{loaded.topic}-{name}",
        minibatch={**MINIBATCH, "max_rows": EPOCH_ROWS_MAX},
        overrides={"query": f"SELECT name, {calls} FROM product GROUP BY name"},
        published_ms=None,
    )


@dataclass(frozen=True, slots=True)
class Warm:
    """The costs of a job from its second epoch on."""

    rate: float  # changes per second
    cpu_seconds: float  # per change


def warm(bench: Bench, loaded: Loaded, name: str, call: str) -> Warm:
    """Measure a job with this aggregate alone, after its first epoch."""
    job = job_of(bench, loaded, name, f"{call} AS r")
    with bench.measuring(f"retally: {call}"):
        outcome = job.catch_up()
    first = next(point.changes for point in outcome.progress if point.changes)
    return Warm(outcome.rate_after(first), outcome.cpu_seconds_after(first))


def audit(job: RetallyJob) -> None:
    retally = Path(sys.executable).with_name("retally")
    command = [str(retally), "audit", job.name, "--data", str(job.directory)]
    done = subprocess.run(
        [*command, "--brokers", job.brokers],
        capture_output=True,
        timeout=AUDIT_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        raise BenchFailed(f"{job.name}: the audit failed: {done.stdout.decode()[-500:]}")
