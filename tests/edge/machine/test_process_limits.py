"""A limit of the process that a job outgrows is named, by `doctor` and at the start."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from jobs.cli.commands.doctor import _check_limits
from jobs.edge.machine import java
from jobs.edge.machine.java import JavaMissing, find_machine_java
from jobs.edge.machine.process_limits import LimitTooLow, count_open_states, require_limits
from jobs.edge.spark.session import SparkNotStarted, session
from jobs.running.job import Job
from schemas.limits import JOB_ADDRESS_BYTES_MIN, JOB_DESCRIPTORS_MIN
from schemas.spec.connections import Connections
from schemas.spec.file import load_spec

ANY = resource.RLIM_INFINITY
NO_HEAP = """#!/bin/sh
echo 'Error occurred during initialization of VM' >&2
echo 'Could not reserve enough space for object heap' >&2
exit 1
"""


class Limits:
    """The limits of this process, as a test wants them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of = {resource.RLIMIT_NOFILE: (ANY, ANY), resource.RLIMIT_AS: (ANY, ANY)}
        monkeypatch.setattr(resource, "getrlimit", self.of.__getitem__)
        monkeypatch.setattr(resource, "setrlimit", self.of.__setitem__)


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Limits:
    return Limits(monkeypatch)


@pytest.fixture
def no_heap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that does not start."""
    command = tmp_path / "bin" / "java"
    command.parent.mkdir()
    command.write_text(NO_HEAP)
    command.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return command


def test_no_limit_is_no_problem(limits: Limits) -> None:
    require_limits()
    assert _check_limits() == "any number of open files, any number of bytes of address space"


@pytest.mark.parametrize(("files", "states"), [(1_024, 256), (20_000, 4_096), (ANY, 4_096)])
def test_the_hot_states_of_many_views_stay_open_if_the_limit_of_files_allows_it(
    limits: Limits, files: int, states: int
) -> None:
    limits.of[resource.RLIMIT_NOFILE] = (files, ANY)
    assert count_open_states() == states


def test_few_open_files_are_named_with_what_a_job_needs(limits: Limits) -> None:
    limits.of[resource.RLIMIT_NOFILE] = (256, 256)
    wanted = f"the limit of open files is 256, and a job needs {JOB_DESCRIPTORS_MIN}: ulimit -n"
    with pytest.raises(LimitTooLow, match=wanted):
        require_limits()
    with pytest.raises(Exception, match=wanted):
        _check_limits()


def test_a_soft_limit_of_open_files_is_raised(limits: Limits) -> None:
    limits.of[resource.RLIMIT_NOFILE] = (256, 4_096)
    require_limits()
    assert limits.of[resource.RLIMIT_NOFILE] == (JOB_DESCRIPTORS_MIN, 4_096)


def test_little_address_space_is_named(limits: Limits) -> None:
    limits.of[resource.RLIMIT_AS] = (3_000_000 << 10, ANY)
    wanted = r"the limit of address space is 3,000,000 KiB, .* 4 GiB: ulimit -v unlimited"
    with pytest.raises(LimitTooLow, match=wanted):
        require_limits()
    with pytest.raises(Exception, match=wanted):
        _check_limits()
    limits.of[resource.RLIMIT_AS] = (JOB_ADDRESS_BYTES_MIN, ANY)
    require_limits()


def test_a_job_names_the_limit_before_it_does_anything(limits: Limits, tmp_path: Path) -> None:
    limits.of[resource.RLIMIT_NOFILE] = (256, 256)
    spec = load_spec(
        {
            "name": "items",
            "source": {"topic": "t"},
            "columns": {"k": "STRING"},
            "query": "SELECT k, COUNT(*) AS n FROM t GROUP BY k",
        }
    )
    with pytest.raises(LimitTooLow, match="ulimit -n"):
        Job(spec, tmp_path, Connections({})).run()


def test_a_java_that_does_not_run_has_its_say(limits: Limits, no_heap: Path) -> None:
    words = f"{no_heap} does not run .*Could not reserve enough space for object heap"
    with pytest.raises(JavaMissing, match=rf"{words}\): install a JDK"):
        find_machine_java()
    limits.of[resource.RLIMIT_AS] = (3_000_000 << 10, ANY)
    with pytest.raises(LimitTooLow, match=rf"{words}\): the limit of address space is"):
        find_machine_java()


def test_a_jvm_of_spark_that_ends_at_its_start_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def end(_: SparkSession.Builder) -> SparkSession:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    java.java.cache_clear()
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", end)
    with pytest.raises(SparkNotStarted, match="what Java said is above: see memory and limits"):
        session("items")
