"""Where figures were measured: the machine and the versions of what ran on it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from jobs.edge.java import java

PACKAGES = ("retally", "pyspark", "delta-spark", "deltalake", "pyarrow", "confluent-kafka")
BUSY_SAMPLE_SECONDS = 1.0
_VERSIONED = re.compile(r'name="([^"]+)" rev="([^"]+)"')


def machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": model[1] if model else platform.processor(),
        "memory_gib": f"{memory / 2**30:.1f}",
        "system": f"{platform.system()} {platform.release()}",
    }


def busy_share() -> float:
    """Share of the machine's time that others use just now, between 0 and 1."""
    idle_before, all_before = _cpu_times()
    time.sleep(BUSY_SAMPLE_SECONDS)
    idle, total = _cpu_times()
    return 1 - (idle - idle_before) / max(total - all_before, 1)


def _cpu_times() -> tuple[int, int]:
    """Idle and all clock ticks since boot, over all cores."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return ticks[3] + ticks[4], sum(ticks)


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "java": _java_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    root = Path(__file__).resolve().parents[1]
    for file, module in (("setup/ivy.xml", "kafka_2.13"), ("bench/flink/ivy.xml", "flink-clients")):
        found |= {n: v for n, v in _VERSIONED.findall((root / file).read_text()) if n == module}
    return found


def _java_version() -> str:
    shown = subprocess.run([str(java()), "-version"], capture_output=True, text=True, check=False)
    return shown.stderr.splitlines()[0] if shown.stderr else "unknown"
