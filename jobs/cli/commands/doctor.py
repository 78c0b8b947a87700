"""retally doctor: checks this machine, and prints what is missing and what to do."""

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

from jobs.cli.output import escape_controls, open_console, print_answer
from schemas.spec.connections import load_connections
from schemas.types.json_types import JsonObject

PYTHON_MIN = (3, 11)
MEMORY_MIN_BYTES = 4 << 30  # the most that we measured for the processes of one job
SHARED_MEMORY_MIN_BYTES = 64 << 20
DISK_MIN_BYTES = 1 << 30
BROKER_SECONDS_MAX = 5.0
# We pin exact versions; these packages break if their versions do not match each other.
_PACKAGES = ("pyspark", "delta-spark", "deltalake", "pyarrow", "kafka-python", "confluent-kafka")
_PIN = re.compile(r"([A-Za-z0-9_.-]+)==([^;\s]+).*")


class _CheckFailed(Exception):
    """The check failed; the message says what is wrong and what to do."""


def run(options: argparse.Namespace) -> int:
    screen, good = open_console(), True

    def check() -> Iterator[JsonObject]:
        nonlocal good
        for finding in _run_checks(options):
            good = good and finding["good"]
            yield finding

    def show(finding: JsonObject) -> None:
        mark, style = ("ok  ", "green") if finding["good"] else ("BAD ", "red")
        screen.print(mark, style=style, end="")
        screen.print(f"{finding['subject']}: {escape_controls(finding['text'])}", soft_wrap=True)

    print_answer(options.output, check(), text=show)
    return 0 if good else 1


def _run_checks(options: argparse.Namespace) -> Iterator[JsonObject]:
    """Yield what each check found, or what is wrong and what to do."""
    checks: list[tuple[str, Callable[[], str]]] = [
        ("python", _check_python),
        ("packages", _check_packages),
        ("limits", _check_limits),
        ("java", _check_java),
        ("jars", _check_jars),
        ("memory", _check_memory),
        ("shared memory", _check_shared_memory),
    ]
    if options.data is not None:
        checks.append(("data directory", lambda: _check_data(options.data)))
    checks.append(("broker", lambda: _check_broker(options)))
    for subject, check in checks:
        try:
            yield {"subject": subject, "good": True, "text": check()}
        except Exception as problem:
            text = " ".join(str(problem).split()) or type(problem).__name__
            yield {"subject": subject, "good": False, "text": text}


def _check_python() -> str:
    if sys.version_info < PYTHON_MIN:
        raise _CheckFailed(f"{platform.python_version()}; Python 3.11 or newer is needed")
    return f"{platform.python_version()} at {sys.executable}"


def _check_packages() -> str:
    pinned = map(_PIN.fullmatch, metadata.requires("retally") or ())
    wanted = {pin[1]: pin[2] for pin in pinned if pin is not None}
    found = {name: metadata.version(name) for name in _PACKAGES}
    wrong = [
        f"{name} {version} (wanted {wanted[name]})"
        for name, version in found.items()
        if wanted.get(name, version) != version
    ]
    if wrong:
        raise _CheckFailed(f"{', '.join(wrong)}; {_reinstall()}")
    return ", ".join(f"{name} {version}" for name, version in found.items())


def _reinstall() -> str:
    from jobs.edge.machine.jars import is_checkout

    return "run make setup" if is_checkout() else "install retally in an environment of its own"


def _check_limits() -> str:
    from jobs.edge.machine.process_limits import describe_limits, describe_low_limits

    if low := describe_low_limits():
        raise _CheckFailed(low)
    return describe_limits()


def _check_java() -> str:
    from jobs.edge.machine.java import java

    return str(java())


def _check_jars() -> str:
    from jobs.edge.machine.jars import (
        broker_jars,
        class_archive,
        directory,
        setup_command,
        spark_jars,
    )

    found = f"{len(spark_jars())} for Spark, {len(broker_jars())} for the broker, in {directory()}"
    slow = f"; no archive of Spark's classes: run `{setup_command()}`, then jobs start faster"
    return found if class_archive().is_file() else found + slow


def _check_memory() -> str:
    from jobs.edge.machine.memory import read_memory

    memory = read_memory()
    limit = memory.limit
    within = "" if limit is None else f" of the container's {_format_gib(limit)}"
    available = f"{_format_gib(memory.available)} available{within}"
    if memory.available < MEMORY_MIN_BYTES:
        raise _CheckFailed(f"{available}; a job needs {_format_gib(MEMORY_MIN_BYTES)}")
    return f"{available}, {os.cpu_count()} cores"


def _check_shared_memory() -> str:
    memory = Path("/dev/shm")  # noqa: S108 - only checked, never written
    if not os.access(memory, os.W_OK):
        raise _CheckFailed(
            f"{memory} cannot be written; without it an epoch takes some 0.03 s longer"
        )
    free = shutil.disk_usage(memory).free
    if free < SHARED_MEMORY_MIN_BYTES:
        raise _CheckFailed(
            f"{memory} has {free >> 20} MiB free; 64 are needed (docker: --shm-size)"
        )
    return f"{memory} has {_format_gib(free)} free"


def _check_data(data: Path) -> str:
    from jobs.edge.machine.data_directory import require_writable
    from jobs.edge.machine.disk import free_bytes

    require_writable(data)
    free = free_bytes(data.absolute())
    if free < DISK_MIN_BYTES:
        raise _CheckFailed(
            f"the disk of {data} has {_format_gib(free)} free, and a job needs "
            f"{_format_gib(DISK_MIN_BYTES)}; make room, or name another directory with --data"
        )
    return f"{data} has {_format_gib(free)} free"


def _check_broker(options: argparse.Namespace) -> str:
    from jobs.edge.kafka.admin import KafkaAdmin
    from schemas.spec.connections import kafka_python_options

    connection = load_connections(options.connections, options.brokers).lookup("default")
    addresses = ",".join(connection.bootstrap)
    with KafkaAdmin(kafka_python_options(connection), seconds_max=BROKER_SECONDS_MAX) as admin:
        admin.topic("retally-doctor")
    return f"{addresses} answers"


def _format_gib(size: int) -> str:
    return f"{size / (1 << 30):.1f} GiB"
