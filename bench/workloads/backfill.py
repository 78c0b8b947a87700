"""Catch up with a long topic: changes per second when warm, and memory.

The peer is Flink in several set-ups: state on the heap with upsert-kafka, plain and tuned; RocksDB
with incremental checkpoints and canal-json; and both without publishing. retally's rate is measured
from the commit of its first epoch to its last published record. Flink's rate is measured from the
same number of read changes to the end of its job.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.flink.peer import Sink, State
from bench.frame import MIB, Bench, Figure, Loaded, Options
from bench.generator import Shape
from bench.outcome import Outcome

TITLE = "backfill"
WARM_SHARE = 0.25  # of the changes, if retally does not run
MEMORY_MIB_MAX = 4_096
LIVE_ROWS, GROUPS = 1_000_000, 180_000
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Peer:
    """A set-up of Flink, and the factor by which retally has to be faster."""

    name: str
    state: State
    sink: Sink
    tuned: bool = False
    times_min: float | None = None


PEERS = (
    Peer("heap", "hashmap", "upsert-kafka", times_min=2.5),
    Peer("heap, tuned", "hashmap", "upsert-kafka", tuned=True, times_min=1.5),
    Peer("RocksDB", "rocksdb", "canal-json", times_min=5.0),
    Peer("heap, unpublished", "hashmap", "blackhole"),
    Peer("RocksDB, unpublished", "rocksdb", "blackhole"),
)


def shape_of(options: Options) -> Shape:
    """Return the stream of this workload and of the small epochs after it."""
    return Shape(changes=options.changes, live_rows=LIVE_ROWS, groups=GROUPS)


def run(bench: Bench) -> None:
    shape = shape_of(bench.options)
    warm = int(shape.changes * WARM_SHARE)
    rates: dict[str, float] = {}
    loaded = None
    outcome = None
    if bench.options.retally:
        loaded, _, outcome = bench.backfill(shape)
        warm = next(point.changes for point in outcome.progress if point.changes)
        add_figures(bench, outcome, outcome.rate_after(warm))
    if bench.options.flink:
        loaded = loaded or bench.load(shape)
        for peer in PEERS:
            rates[peer.name] = _peer(bench, loaded, warm, peer)
    if outcome is None:
        return
    rate = outcome.rate_after(warm)
    for peer in PEERS:
        if peer.name in rates and peer.times_min is not None:
            times = rate / rates[peer.name]
            bench.add(
                Figure(
                    TITLE,
                    "retally",
                    f"rate, of that of Flink {peer.name}",
                    times,
                    "times",
                    f">= {peer.times_min:.1f}",
                    times >= peer.times_min,
                )
            )


def _peer(bench: Bench, loaded: Loaded, warm: int, peer: Peer) -> float:
    job = bench.make_peer(
        loaded,
        tuned=peer.tuned,
        state=peer.state,
        sink=peer.sink,
    )
    with bench.measuring(f"Flink {peer.name}: backfill"):
        outcome = job.catch_up()
    bench.check_flink(job, loaded)
    rate = outcome.rate_after(warm)
    add_figures(bench, outcome, rate)
    return rate


def add_figures(bench: Bench, outcome: Outcome, rate: float) -> None:
    def add(what: str, value: float, unit: str, bound: str = "", holds: bool | None = None) -> None:
        bench.add(Figure(TITLE, outcome.engine, what, value, unit, bound, holds))

    add("rate when warm", rate, "changes/s")
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
