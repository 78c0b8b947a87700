"""Describe the machine of a measurement, the versions of its software, and other work on it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.process_tree import sampled_footprint
from jobs.edge.machine.java import java

PACKAGES = ("retally", "pyspark", "delta-spark", "deltalake", "pyarrow", "confluent-kafka")
_TICKS = os.sysconf("SC_CLK_TCK")
_VERSIONED = re.compile(r'name="([^"]+)" rev="([^"]+)"')


def machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": model[1] if model else platform.processor(),
        "memory_gib": f"{memory / 2**30:.1f}",
        "system": f"{platform.system()} {platform.release()}",
        "million_additions_ms": f"{_million_additions_ms():.0f}",
    }


def _million_additions_ms() -> float:
    """Measure the current speed of a core, which varies by a factor of 2 on shared machines."""
    times = []
    for _ in range(5):
        began, number = time.perf_counter(), 0
        while number < 1_000_000:
            number += 1
        times.append(time.perf_counter() - began)
    return min(times) * 1_000


@dataclass(slots=True)
class OtherWork:
    """The share of the machine that other work had during a measurement."""

    share: float = 0.0  # of the time of all cores


@contextmanager
def other_work() -> Iterator[OtherWork]:
    work = OtherWork()
    began, busy_before = time.monotonic(), busy_cpu_seconds()
    with sampled_footprint(os.getpid()) as own:
        yield work
    others = busy_cpu_seconds() - busy_before - own.cpu_seconds
    work.share = max(0.0, others / (time.monotonic() - began) / (os.cpu_count() or 1))


def busy_cpu_seconds() -> float:
    """Return the busy time of all cores since boot, with time stolen by other virtual machines."""
    user, nice, system, _, _, irq, softirq, steal = _cpu_ticks()
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _cpu_ticks() -> list[int]:
    line = Path("/proc/stat").read_text().split("\n", 1)[0]
    return [int(ticks) for ticks in line.split()[1:9]]


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "java": _java_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    root = Path(__file__).resolve().parents[1]
    for file, module in (
        ("jobs/setup/ivy.xml", "kafka_2.13"),
        ("bench/flink/ivy.xml", "flink-clients"),
    ):
        found |= {n: v for n, v in _VERSIONED.findall((root / file).read_text()) if n == module}
    return found


def _java_version() -> str:
    shown = subprocess.run([str(java()), "-version"], capture_output=True, text=True, check=False)
    return shown.stderr.splitlines()[0] if shown.stderr else "unknown"
