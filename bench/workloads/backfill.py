"""Catching up with a long topic: changes a second once the engine is warm, and memory.

retally's rate runs from the commit of its first epoch to the last record published; Flink's from
the moment it had read as many changes to the end of its job.
"""

from __future__ import annotations

from bench.flink.peer import FlinkJob
from bench.frame import MIB, Bench, Figure, Loaded
from bench.generator import Shape
from bench.outcome import Outcome

TITLE = "backfill"
WARM_SHARE = 0.25  # of the changes, where retally's first epoch does not say it
MEMORY_MIB_MAX = 4_096
MILLION = 1_000_000


def run(bench: Bench) -> None:
    shape = Shape(changes=bench.options.changes)
    warm = int(shape.changes * WARM_SHARE)
    flink = 0.0
    loaded = None
    outcome = None
    if bench.options.retally:
        loaded, _, outcome = bench.backfilled(shape)
        warm = next(point.changes for point in outcome.progress if point.changes)
    if bench.options.flink:
        loaded = loaded or bench.loaded(shape)
        flink = _peer(bench, loaded, warm, tuned=False)
        _peer(bench, loaded, warm, tuned=True)
    if outcome is not None:
        rate = outcome.rate_after(warm)
        bound = f">= Flink's {flink:,.0f}" if flink else ""
        add_figures(bench, outcome, rate, bound, rate >= flink if flink else None)


def _peer(bench: Bench, loaded: Loaded, warm: int, *, tuned: bool) -> float:
    sink_topic = bench.new_topic("flink")
    job = FlinkJob(
        bench.brokers,
        loaded.topic,
        sink_topic,
        bench.out,
        bench.directory / sink_topic,
        tuned=tuned,
    )
    with bench.measuring(f"Flink{', tuned' if tuned else ''}: backfill"):
        outcome = job.catch_up()
    bench.check_flink(sink_topic, loaded)
    rate = outcome.rate_after(warm)
    add_figures(bench, outcome, rate)
    return rate


def add_figures(
    bench: Bench, outcome: Outcome, rate: float, bound: str = "", holds: bool | None = None
) -> None:
    def add(what: str, value: float, unit: str, bound: str = "", holds: bool | None = None) -> None:
        bench.add(Figure(TITLE, outcome.engine, what, value, unit, bound, holds))

    add("rate when warm", rate, "changes/s", bound, holds)
    add("whole run, start included", outcome.seconds, "s")
    add("processor time", outcome.cpu_seconds / outcome.changes * MILLION, "s per million")
    memory = outcome.memory_bytes_max / MIB
    if outcome.engine == "retally":
        add(
            "memory, RssAnon at most",
            memory,
            "MiB",
            f"< {MEMORY_MIB_MAX:,}",
            memory < MEMORY_MIB_MAX,
        )
    else:
        add("memory, RssAnon at most", memory, "MiB")
