"""Every aggregate beside COUNT(*): a job for each, catching up with the same topic of groups of
about 50 rows. Rates run from the commit of the first epoch, so that they are of a warm engine. A
last job has all of them, and an audit recomputes what it says."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from bench.frame import Bench, Figure, Loaded
from bench.generator import Shape
from bench.outcome import BenchFailed
from bench.product import MINIBATCH, RetallyJob
from jobs.core.accumulators import FUNCTIONS, Reading

TITLE = "aggregates"
CHANGES_MAX = 600_000
GROUPS, ROWS_OF_A_GROUP = 2_000, 50
EPOCH_ROWS_MAX = 100_000
SHARE_MIN = 0.4  # of the rate of COUNT(*), but for what reads a whole group each time
AUDIT_SECONDS_MAX = 300

CALLS = {
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
    loaded = bench.loaded(shape)
    rows = rate_of(bench, loaded, "rows", "COUNT(*)")
    bench.add(Figure(TITLE, "retally", "COUNT(*)", rows, "changes/s"))
    calls = {name: CALLS.get(name, f"{name}(cnt)") for name in FUNCTIONS}
    for name, function in FUNCTIONS.items():
        call = calls[name]
        share = rate_of(bench, loaded, name.lower(), call) / rows
        linear = function.reading is Reading.ALL
        bench.add(
            Figure(TITLE, "retally", call, share, "of COUNT(*)",
                   "" if linear else f">= {SHARE_MIN}", None if linear else share >= SHARE_MIN)
        )  # fmt: skip

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
    )


def rate_of(bench: Bench, loaded: Loaded, name: str, call: str) -> float:
    """Changes a second that a job with this aggregate takes in, once it is warm."""
    job = job_of(bench, loaded, name, f"{call} AS r")
    with bench.measuring(f"retally: {call}"):
        outcome = job.catch_up()
    warm = next(point.changes for point in outcome.progress if point.changes)
    return outcome.rate_after(warm)


def audit(job: RetallyJob) -> None:
    retally = Path(sys.executable).with_name("retally")
    command = [str(retally), "audit", job.name, "--data", str(job.directory)]
    done = subprocess.run(
        [*command, "--brokers", job.brokers],
        capture_output=True, timeout=AUDIT_SECONDS_MAX, check=False,
    )  # fmt: skip
    if done.returncode:
        raise BenchFailed(f"{job.name}: the audit says {done.stdout.decode()[-500:]}")
