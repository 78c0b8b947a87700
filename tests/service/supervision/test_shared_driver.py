"""Jobs of one Spark JVM (`--jobs-per-driver`): exact, and each alone with its kill or failure.

three histories ──► three jobs in one JVM ──► a kill, a stop, a stall, a lost topic of one
                                       └─► the epochs of the others go on; all end in the truth
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from jobs.edge.process.broker import Broker
from jobs.table.files import NoTable
from schemas.directory.failure import read_failure
from schemas.directory.paths import JobDirectory
from schemas.limits import DRIVER_IDLE_SECONDS_MAX
from service.supervision import job_process
from tests.support.histories.products import History, Message, history
from tests.support.jobs.exact_job import must_be_exact, product_job
from tests.support.jobs.running_job import RunningJob, produce
from tests.support.service.served import Served, end_jobs, eventually
from tests.support.topics import admin_client

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

WAIT_SECONDS = 90
MESSAGES = 600
JOB_BYTES_MAX = 250 << 20  # of memory, for a job more


@dataclass(slots=True)
class Member:
    """One of the jobs that share a JVM, with the history that its topic gets."""

    job: RunningJob
    query: int
    made: History
    sent: int = 0

    @property
    def name(self) -> str:
        return str(self.job.spec["name"])

    def send(self, count: int) -> None:
        """Send the next messages of the history."""
        chosen: Sequence[Message] = self.made.messages[self.sent : self.sent + count]
        assert chosen, "the history is too short for the test"
        produce(self.job.brokers, self.job.spec["source"]["topic"], _records(chosen))
        self.sent += len(chosen)

    def is_caught_up(self) -> bool:
        """Return whether the newest epoch has all records that were sent."""
        try:
            newest = self.job.epochs()[-1]
        except (NoTable, IndexError):
            return False
        read = [at for found in newest.offsets.values() for at in found.values()]
        return sum(read) == self.sent


def _records(messages: Sequence[Message]) -> list[tuple[int, bytes | None]]:
    return [(each.partition, each.value) for each in messages]


@dataclass(slots=True)
class Crew:
    """A service whose jobs share a JVM."""

    served: Served
    broker: Broker
    home: Path
    topic: str

    def add(self, number: int) -> Member:
        """Put and start a job, and send the first third of its history."""
        query = number % 4
        job = product_job(
            self.broker, f"{self.topic}-{number}", self.home, query, name=f"items-{number}"
        )
        member = Member(job, query, history(100 + number, messages=MESSAGES))
        with self.served.client() as client:
            content = yaml.safe_dump(job.spec)
            assert client.put(f"/v1/jobs/{member.name}", content=content).status_code == 201
        self.act(member, "start")
        member.send(MESSAGES // 3)
        return member

    def act(self, member: Member, action: str) -> None:
        with self.served.client() as client:
            assert client.post(f"/v1/jobs/{member.name}/{action}").status_code == 202

    def await_state(self, member: Member, state: str) -> dict[str, Any]:
        found: dict[str, Any] = eventually(
            lambda: (job := self.served.job(member.name))["actual"] == state and job, WAIT_SECONDS
        )
        return found

    def find_pid(self, member: Member) -> int | None:
        return job_process.find_writer(JobDirectory(self.home / "data", member.name).lock)

    def pid(self, member: Member, *, other_than: int | None = None) -> int:
        """Return the process of a job; wait for a new one if it was `other_than`."""
        return int(
            eventually(lambda: (pid := self.find_pid(member)) != other_than and pid, WAIT_SECONDS)
        )

    def must_go_on(self, members: Sequence[Member], count: int = 50) -> None:
        """Send some messages to each of these jobs, and wait for the epochs that have them."""
        for member in members:
            member.send(count)
        for member in members:
            eventually(member.is_caught_up, WAIT_SECONDS)

    def must_end_exactly(self, members: Sequence[Member]) -> None:
        """Send the rest, wait for it, stop the jobs, and compare each with the truth."""
        self.must_go_on(members, MESSAGES)
        for member in members:
            self.act(member, "stop")
        for member in members:
            self.await_state(member, "STOPPED")
            assert member.sent == len(member.made.messages)
            must_be_exact(member.job, member.made, member.query)

    @property
    def owners(self) -> list[psutil.Process]:
        """The processes that own a shared JVM of this service."""
        return [
            each
            for each in psutil.process_iter()
            if "jobs.edge.spark.shared_driver" in (line := _command(each))
            and any(word.startswith(str(self.home)) for word in line)
        ]

    @property
    def jvm(self) -> psutil.Process:
        """The only JVM that the jobs of this service have."""
        (owner,) = self.owners
        (jvm,) = [each for each in owner.children() if each.name() == "java"]
        return jvm

    def read_memory(self, members: Sequence[Member]) -> int:
        """Return the bytes that the processes of the jobs and of their JVM have of their own."""
        (owner,) = self.owners
        first = [owner, *(psutil.Process(self.pid(each)) for each in members)]
        family = {each.pid for one in first for each in (one, *one.children(recursive=True))}
        return sum(map(_own_bytes, family))


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended
        return []


def _own_bytes(pid: int) -> int:
    """Return the memory of a process that is no file; a page of several processes is divided."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) << 10
    return 0


@contextmanager
def crew_of(broker: Broker, topic: str, home: Path, jobs_per_driver: int) -> Iterator[Crew]:
    served = Served.start(
        home / "data", "--jobs-per-driver", str(jobs_per_driver), brokers=broker.address
    )
    crew = Crew(served, broker, home, topic)
    try:
        yield crew
    finally:
        served.stop()
        end_jobs(home / "data")
        eventually(lambda: not crew.owners, DRIVER_IDLE_SECONDS_MAX + 20)


@pytest.fixture
def crew(broker: Broker, topic: str, tmp_path: Path) -> Iterator[Crew]:
    (tmp_path / "data").mkdir()
    with crew_of(broker, topic, tmp_path, 3) as running:
        yield running


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
    failure = read_failure(JobDirectory(crew.home / "data", members[0].name).failure)
    assert failure is None or failure.retryable
    crew.must_end_exactly(members)


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
