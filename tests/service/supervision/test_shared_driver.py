"""Jobs of one Spark JVM (`--jobs-per-driver`): exact, and each alone with its kill or failure.

three histories ──► three jobs in one JVM ──► a kill, a stop, a stall, a lost topic of one
                                       └─► the epochs of the others go on; all end in the truth
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from schemas.directory.documents import read_document
from schemas.directory.failure import Failure
from schemas.directory.paths import JobDirectory
from tests.support.service.crew import Crew, Member, crew_of
from tests.support.topics import admin_client

pytestmark = [pytest.mark.spark, pytest.mark.broker]

JOB_BYTES_MAX = 250 << 20  # of memory, for a job more


@pytest.fixture
def crew(broker: Broker, topic: str, tmp_path: Path) -> Iterator[Crew]:
    (tmp_path / "data").mkdir()
    with crew_of(broker, topic, tmp_path, 3) as running:
        yield running


@pytest.mark.slow
def test_jobs_of_one_jvm_are_exact_and_a_job_more_takes_little_memory(crew: Crew) -> None:
    members: list[Member] = []
    memory = []
    for number in range(3):
        members.append(crew.add(number))
        for _ in range(3):
            crew.must_go_on(members, 20)
        memory.append(crew.read_memory(members))
    print(*(f"{number} jobs: {found >> 20} MiB" for number, found in enumerate(memory, 1)))
    # The second job brings the second of two workers; from then on they are shared.
    assert memory[2] - memory[1] < JOB_BYTES_MAX, memory
    crew.must_end_exactly(members)


@pytest.mark.faults
def test_a_job_that_is_killed_stalled_or_stopped_leaves_the_others_alone(crew: Crew) -> None:
    members = [crew.add(0), crew.add(1), crew.add(2)]
    crew.must_go_on(members)
    one, others = members[0], members[1:]
    jvm, pids = crew.jvm, [crew.pid(each) for each in others]

    os.kill(before := crew.pid(one), signal.SIGKILL)
    crew.must_go_on(others)
    crew.pid(one, other_than=before)
    crew.must_go_on(members)

    os.kill(crew.pid(one), signal.SIGSTOP)
    one.send(20)
    crew.must_go_on(others)
    os.kill(crew.pid(one), signal.SIGCONT)
    crew.must_go_on(members, 20)

    crew.act(one, "stop")
    crew.await_state(one, "STOPPED")
    crew.must_go_on(others)
    crew.act(one, "start")
    crew.must_go_on(members, 20)

    assert crew.jvm == jvm
    assert [crew.pid(each) for each in others] == pids
    assert [crew.served.job(each.name)["failures"] for each in others] == [0, 0]
    crew.must_end_exactly(members)


@pytest.mark.faults
def test_a_job_whose_topic_is_deleted_ends_and_the_others_go_on(crew: Crew) -> None:
    members = [crew.add(0), crew.add(1)]
    crew.must_go_on(members)
    one, others = members[0], members[1:]
    with admin_client(crew.broker.address) as admin:
        admin.delete_topics([one.job.spec["source"]["topic"]])
    failed = crew.await_state(one, "FAILED")
    assert one.job.spec["source"]["topic"] in failed["reason"], failed
    crew.must_go_on(others)
    crew.act(one, "stop")
    crew.must_end_exactly(others)


@pytest.mark.faults
def test_all_jobs_of_a_jvm_that_is_killed_come_back_exact(crew: Crew) -> None:
    members = [crew.add(0), crew.add(1), crew.add(2)]
    crew.must_go_on(members)
    jvm, pids = crew.jvm, [crew.pid(each) for each in members]
    for member in members:
        member.send(100)
    jvm.kill()
    for member, before in zip(members, pids, strict=True):
        crew.pid(member, other_than=before)
    crew.must_go_on(members)
    assert crew.jvm != jvm
    failure = read_document(JobDirectory(crew.home / "data", members[0].name).failure, Failure)
    assert failure is None or failure.retryable
    crew.must_end_exactly(members)


@pytest.mark.faults
def test_a_full_driver_takes_no_more_jobs(broker: Broker, topic: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with crew_of(broker, topic, tmp_path, 2) as crew:
        members = [crew.add(0), crew.add(1)]
        crew.must_go_on(members)
        assert len(crew.owners) == 1
        third = crew.add(2)
        crew.must_go_on([*members, third])
        assert len(crew.owners) == 2
        crew.must_end_exactly([*members, third])
