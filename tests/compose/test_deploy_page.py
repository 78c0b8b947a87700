"""docs/deploy.md on a real engine: its commands as they stand, and exact results after each fault.

up ──► job ──► something is lost, changed or taken back ──► goes on ──► all of it exact

`make compose-test` runs these; each test has a stack of its own.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.compose.exactness import SINK, check_exact
from tests.compose.page import commands
from tests.compose.stack import PROJECT, SIX, Stack, change_setting, commit, setting
from tests.support.faults.tally import FaultTally

pytestmark = [pytest.mark.engine, pytest.mark.timeout(7_200)]


def first_job(stack: Stack) -> None:
    """Follow the page up to a job with results."""
    stack.shell.follow("Quick start", "docker compose", "TOKEN=")
    assert stack.names() == sorted(SIX)
    assert all(map(stack.healthy, SIX)), "`up --wait` returned before all were healthy"
    stack.shell.follow("First job", "U=", "-X PUT", "-X POST")
    stack.until(stack.rows, "the first results")


def test_the_page_leads_to_exact_results_that_outlive_stop_and_start(stack: Stack) -> None:
    tally = FaultTally(f"compose on engine {stack.engine.version}: the page, stop and start")
    first_job(stack)
    assert len(stack.shell.follow("First job", "results?").split("sum_cnt")) > 5
    assert "event: change" in stack.shell.follow("First job", "curl -N")
    stack.shell.follow("When something is wrong")
    check_exact(stack, tally)
    tally.plan("stop and start")
    stack.shell.follow("Stop and start", "stop")
    assert not any(stack.state(name)["Running"] for name in stack.names())
    stack.shell.follow("Stop and start", "start")
    tally.fire("stop and start")
    tally.recoveries.append(stack.until_an_epoch_after(stack.epoch))
    check_exact(stack, tally)
    stack.shell.follow("Stop and start", "down")
    assert stack.names() == []
    tally.close()


def test_each_of_the_six_containers_may_be_killed(stack: Stack) -> None:
    tally = FaultTally(f"compose on engine {stack.engine.version}: kill -9 of each container")
    first_job(stack)
    for name in SIX:
        tally.plan(name)
        epoch = stack.epoch
        began = time.monotonic()
        stack.kill(name)
        tally.fire(name)
        stack.until_healthy()
        stack.until_an_epoch_after(max(epoch, stack.epoch))
        tally.recoveries.append(time.monotonic() - began)
        check_exact(stack, tally)
    tally.close()


def test_containers_may_be_made_anew_and_become_more_and_fewer(stack: Stack) -> None:
    tally = FaultTally(f"compose on engine {stack.engine.version}: re-created, scaled")
    first_job(stack)

    def changed(what: str, *words: str) -> None:
        tally.plan(what)
        epoch, began = stack.epoch, time.monotonic()
        before = {name: stack.inspect(name)["Id"] for name in stack.names()}
        stack.compose(*words)
        after = {name: stack.inspect(name)["Id"] for name in stack.names()}
        assert after != before, "no container was made or removed"
        tally.fire(what)
        stack.until_healthy()
        stack.until_an_epoch_after(max(epoch, stack.epoch))
        tally.recoveries.append(time.monotonic() - began)
        check_exact(stack, tally)

    up = ("--profile", "demo", "up", "--detach", "--wait")
    changed("the master made anew", *up, "--force-recreate", "--no-deps", "spark-master")
    change_setting(stack.clone, "JOB_CORES", "3")
    changed("a changed setting", *up)
    assert any(
        "defaultCores=3" in each for each in stack.inspect("spark-master-1")["Config"]["Env"]
    )
    (three,) = commands("Scale")
    changed("three workers", *three.split()[2:])
    assert "spark-worker-3" in stack.names()
    changed("one worker", *three.replace("=3", "=1").split()[2:])
    assert [name for name in stack.names() if "worker" in name] == ["spark-worker-1"]
    tally.close()


def test_a_backup_brings_back_an_empty_volume_and_one_that_went_on(stack: Stack) -> None:
    tally = FaultTally(f"compose on engine {stack.engine.version}: backup and restore")
    first_job(stack)
    check_exact(stack, tally)
    stack.shell.follow("Back up", "stop", "tar -C")
    kept = stack.clone / "retally-data.tgz"
    assert kept.stat().st_size > 10_000

    tally.plan("restore into an empty volume")
    stack.compose("--profile", "demo", "down")
    stack.engine.docker("volume", "rm", f"{PROJECT}_data")
    stack.shell.follow("Restore")
    stack.shell.follow("Quick start", "--profile demo")
    tally.fire("restore into an empty volume")
    tally.recoveries.append(stack.until_an_epoch_after(stack.epoch))
    check_exact(stack, tally)

    # The job has published more since the backup: the topic is ahead of the restored table.
    tally.plan("restore into a newer volume")
    began = time.monotonic()
    stack.shell.follow("Restore")
    tally.fire("restore into a newer volume")
    stack.until(lambda: stack.failure == "sink-ahead", "the refusal of the old sink")
    spec = (stack.clone / "items.yaml").read_text()
    (stack.clone / "items.yaml").write_text(spec.replace(SINK, f"{SINK}-2"))
    stack.shell.follow("First job", "-X PUT", "-X POST")
    stack.until_an_epoch_after(stack.epoch)
    tally.recoveries.append(time.monotonic() - began)
    check_exact(stack, tally, sink=f"{SINK}-2")
    stack.shell.follow("Back up", "start")
    tally.close()


def test_a_new_version_continues_the_jobs(stack: Stack, upstream: Path) -> None:
    tally = FaultTally(f"compose on engine {stack.engine.version}: upgrade")
    first_job(stack)
    check_exact(stack, tally)
    old, failures = stack.inspect("service-1")["Image"], stack.job()["failures"]
    package = upstream / "service" / "__init__.py"
    package.write_text(package.read_text() + "\n# A newer version.\n")
    newer = f"{setting(upstream, 'RETALLY_VERSION')}.1"
    change_setting(upstream, "RETALLY_VERSION", newer)
    commit(upstream, "a newer version")
    tally.plan("upgrade")
    epoch, began = stack.epoch, time.monotonic()
    stack.shell.follow("Upgrade")
    stack.shell.follow("Quick start", "--profile demo")
    tally.fire("upgrade")
    stack.until_an_epoch_after(max(epoch, stack.epoch))
    tally.recoveries.append(time.monotonic() - began)
    for name in SIX[1:]:
        container = stack.inspect(name)
        assert container["Image"] != old
        assert container["Config"]["Image"].endswith(f":{newer}")
    assert stack.job()["failures"] == failures
    check_exact(stack, tally)
    tally.close()
