"""Measure the time from a change to its readable result, at a steady rate.

    steady stream with probe rows ──► source topic ──► engine ──► result topic ──► read_committed
          │ handed over at t0                                                        │ seen at t1
          └────────────────────────────── t1 - t0 ◄──────────────────────────────────┘

A probe row is the only row of its group, so the first result of the group belongs to the probe.
"""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass

import msgspec

from bench.generator import Changing, pace, steady
from bench.outcome import BenchFailed
from bench.topic import Topics, hand_over, producer, read_committed

PROBES_PER_SECOND = 50
# Probes of the first seconds do not count, because the engine has just worked off its backlog.
SETTLE_SECONDS = 5
READER_START_SECONDS = 2
ARRIVE_SECONDS_MAX = 120
PROBE_KEY = b"probe-"


@dataclass(frozen=True, slots=True)
class Latency:
    probes: int
    p50_seconds: float
    p99_seconds: float
    max_seconds: float


class _Reader:
    """Records when a consumer gets the first committed record of each probe's group."""

    def __init__(self, brokers: str, topic: str) -> None:
        self.seen: dict[str, float] = {}
        self._brokers, self._topic = brokers, topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._thread.start()
        time.sleep(READER_START_SECONDS)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self) -> None:
        for batch in read_committed(self._brokers, self._topic, self._stop):
            now = time.monotonic()
            for key, _, _ in batch:
                if PROBE_KEY in key:
                    self.seen.setdefault(msgspec.json.decode(key)["name"], now)


def probe_latency(
    brokers: str, topic: Topics, sink_topic: str, table: Changing, *, rate: float, seconds: float
) -> Latency:
    """Send a steady stream to `topic`, and time its probes until they are in `sink_topic`."""
    ticks = steady(table, rate=rate, seconds=SETTLE_SECONDS + seconds, probe_rate=PROBES_PER_SECOND)
    reader = _Reader(brokers, sink_topic)
    reader.start()
    client = producer(brokers, linger_ms=0)
    sent: dict[str, float] = {}
    timed: set[str] = set()
    for tick in pace(ticks):
        now = time.monotonic()
        sent |= dict.fromkeys(tick.probes, now)
        if tick.at >= SETTLE_SECONDS:
            timed |= set(tick.probes)
        hand_over(client, topic, tick)
    client.flush()
    give_up = time.monotonic() + ARRIVE_SECONDS_MAX
    while not sent.keys() <= reader.seen.keys() and time.monotonic() < give_up:
        time.sleep(0.05)
    reader.stop()
    lost = len(sent.keys() - reader.seen.keys())
    if lost:
        raise BenchFailed(f"{lost} of {len(sent)} probes never became readable in {sink_topic}")
    waits = sorted(reader.seen[name] - sent[name] for name in timed)
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    return Latency(len(waits), statistics.median(waits), cuts[98], waits[-1])
