"""retally doctor: what this machine lacks, a line each, with what to do about it."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from jobs.cli.output import console, print_json, safe
from schemas.spec.connections import load_connections

PYTHON_MIN = (3, 11)
MEMORY_MIN_BYTES = 4 << 30  # what the processes of one job take at most, by our own measure
SHARED_MEMORY_MIN_BYTES = 64 << 20
DISK_MIN_BYTES = 1 << 30
BROKER_SECONDS_MAX = 5.0
# Versions are pinned exactly, and these are the ones whose mixture breaks.
_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "kafka-python", "confluent-kafka")
_PIN = re.compile(r"([A-Za-z0-9_.-]+)==([^;\s]+).*")


class Finding(NamedTuple):
    """What was looked at, whether it is right, and what was found or is to be done."""

    subject: str
    good: bool
    text: str


class _Bad(Exception):
    """What is wrong, and what to do."""


def run(options: argparse.Namespace) -> int:
    good = True
    screen = None if options.json else console()
    for finding in _findings(options):
        good = good and finding.good
        if screen is None:
            print_json(finding._asdict())
            continue
        mark, style = ("ok  ", "green") if finding.good else ("BAD ", "red")
        screen.print(mark, style=style, end="")
        screen.print(f"{finding.subject}: {safe(finding.text)}", soft_wrap=True)
    return 0 if good else 1


def _findings(options: argparse.Namespace) -> Iterator[Finding]:
    checks: list[tuple[str, Callable[[], str]]] = [
        ("python", _python),
        ("packages", _packages),
        ("java", _java),
        ("jars", _jars),
        ("memory", _memory),
        ("shared memory", _shared_memory),
    ]
    if options.data is not None:
        checks.append(("data directory", lambda: _data(options.data)))
    checks.append(("broker", lambda: _broker(options)))
    for subject, check in checks:
        try:
            yield Finding(subject, True, check())
        except Exception as problem:
            text = " ".join(str(problem).split()) or type(problem).__name__
            yield Finding(subject, False, text)


def _python() -> str:
    if sys.version_info < PYTHON_MIN:
        raise _Bad(f"{platform.python_version()}; Python 3.11 or newer is needed")
    return f"{platform.python_version()} at {sys.executable}"


def _packages() -> str:
    pinned = map(_PIN.fullmatch, metadata.requires("retally") or ())
    wanted = {pin[1]: pin[2] for pin in pinned if pin is not None}
    found = {name: metadata.version(name) for name in _PACKAGES}
    wrong = [
        f"{name} {version} (wanted {wanted[name]})"
        for name, version in found.items()
        if wanted.get(name, version) != version
    ]
    if wrong:
        raise _Bad(f"{', '.join(wrong)}; run make setup")
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _java() -> str:
    from jobs.edge.process.java import java

    return str(java())


def _jars() -> str:
    from jobs.edge.process.jars import broker_jars, class_archive, directory, spark_jars

    found = f"{len(spark_jars())} for Spark, {len(broker_jars())} for the broker, in {directory()}"
    slow = "; no archive of Spark's classes: `make setup` makes one, and jobs start sooner"
    return found if class_archive().is_file() else found + slow


def _memory() -> str:
    text = Path("/proc/meminfo").read_text()
    found = re.search(r"MemAvailable:\s+(\d+) kB", text)
    available = int(found[1]) << 10 if found else 0
    if available < MEMORY_MIN_BYTES:
        raise _Bad(f"{_gib(available)} available; a job wants {_gib(MEMORY_MIN_BYTES)}")
    return f"{_gib(available)} available, {os.cpu_count()} cores"


def _shared_memory() -> str:
    memory = Path("/dev/shm")  # noqa: S108 - it is only looked at
    if not os.access(memory, os.W_OK):
        raise _Bad(f"{memory} cannot be written; epochs take some 0.03 s longer without it")
    free = shutil.disk_usage(memory).free
    if free < SHARED_MEMORY_MIN_BYTES:
        raise _Bad(f"{memory} has {free >> 20} MiB free; 64 are wanted (docker: --shm-size)")
    return f"{memory} has {_gib(free)} free"


def _data(data: Path) -> str:
    place = data.absolute()
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        raise _Bad(f"{place} cannot be written")
    free = shutil.disk_usage(place).free
    if free < DISK_MIN_BYTES:
        raise _Bad(f"{place} has {_gib(free)} free")
    return f"{data} has {_gib(free)} free"


def _broker(options: argparse.Namespace) -> str:
    from jobs.edge.kafka.admin import KafkaAdmin
    from schemas.spec.broker_address import AddressRefused
    from schemas.spec.connections import kafka_python_options

    connection = load_connections(options.connections, options.brokers).named("default")
    addresses = ",".join(connection.bootstrap)
    try:
        with KafkaAdmin(kafka_python_options(connection), seconds_max=BROKER_SECONDS_MAX) as admin:
            admin.topic("retally-doctor")
    except AddressRefused:
        raise
    except Exception as error:
        raise _Bad(
            f"no answer from {addresses} ({type(error).__name__}); start one with retally broker, "
            "or name yours with --brokers or RETALLY_BROKERS"
        ) from None
    return f"{addresses} answers"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
