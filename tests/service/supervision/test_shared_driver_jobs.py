"""Larger crews of a shared Spark JVM: views, two JVMs, and a JVM that hangs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from schemas.limits import DRIVER_SILENT_SECONDS_MAX
from tests.support.service.crew import Crew, Member, crew_of

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.faults, pytest.mark.timeout(580)]

RESTART_SECONDS = 60  # of three jobs and a JVM, on a busy machine


@pytest.fixture
def crew(broker: Broker, topic: str, tmp_path: Path) -> Iterator[Crew]:
    (tmp_path / "data").mkdir()
    with crew_of(broker, topic, tmp_path, 3) as running:
        yield running


def test_a_jvm_that_hangs_is_killed_and_all_its_jobs_come_back_exact(crew: Crew) -> None:
    members = [crew.add(0), crew.add(1), crew.add_views()]
    crew.must_go_on(members)
    jvm, pids = crew.jvm, [crew.pid(each) for each in members]
    began = time.monotonic()
    jvm.suspend()
    for member in members:
        member.send(50)
    for member, before in zip(members, pids, strict=True):
        crew.pid(member, other_than=before)
    assert time.monotonic() - began < DRIVER_SILENT_SECONDS_MAX + RESTART_SECONDS
    crew.must_go_on(members)
    assert crew.jvm != jvm
    for member in members:
        failure = crew.read_failures(member)[0]
        assert failure["code"] == "failed", failure
        assert "did not answer for 30 s" in failure["reason"], failure
    crew.must_end_exactly(members)


def test_a_jvm_that_pauses_and_goes_on_is_kept(crew: Crew) -> None:
    members = [crew.add(0), crew.add(1)]
    crew.must_go_on(members)
    jvm, pids = crew.jvm, [crew.pid(each) for each in members]
    for _ in range(2):  # longer than the limit together
        jvm.suspend()
        time.sleep(0.6 * DRIVER_SILENT_SECONDS_MAX)
        jvm.resume()
        crew.must_go_on(members)
    assert crew.jvm == jvm
    assert [crew.pid(each) for each in members] == pids
    crew.must_end_exactly(members)


def test_five_jobs_share_two_jvms_and_the_end_of_one_is_not_that_of_the_other(crew: Crew) -> None:
    members: list[Member] = []
    for number in range(5):
        members.append(crew.add(number))
        crew.must_go_on(members[-1:])
    assert len(crew.jvms) == 2
    first, others = members[:3], members[3:]  # a job takes the first JVM with room
    pids = [crew.pid(each) for each in members]
    crew.jvms[0].kill()
    crew.must_go_on(others)
    for member, before in zip(first, pids, strict=False):
        crew.pid(member, other_than=before)
    crew.must_go_on(members)
    assert [crew.pid(each) for each in others] == pids[3:]
    assert [crew.served.job(each.name)["failures"] for each in others] == [0, 0]
    assert len(crew.jvms) == 2
    crew.must_end_exactly(members)
