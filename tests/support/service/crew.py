"""Jobs that share a Spark JVM under a service (`--jobs-per-driver`), each with its history."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from jobs.edge.process.broker import Broker
from jobs.reading.files import NoTable
from schemas.directory.paths import JobDirectory
from schemas.limits import DRIVER_IDLE_SECONDS_MAX
from service.supervision import job_process
from tests.support.histories.products import History, Message, history
from tests.support.jobs.exact_job import must_be_exact, product_job
from tests.support.jobs.running_job import RunningJob, produce
from tests.support.jobs.shop_views import make_shop_views, views_must_be_exact
from tests.support.service.served import Served, end_jobs, eventually

WAIT_SECONDS = 400
MESSAGES = 600


@dataclass(slots=True)
class Member:
    """One of the jobs that share a JVM, with the history that its topic gets."""

    job: RunningJob
    query: int | None  # None: it has three views
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

    def must_be_exact(self) -> None:
        """Compare all results and topics with the truth, once everything is sent and read."""
        assert self.sent == len(self.made.messages)
        if self.query is None:
            views_must_be_exact(self.job, self.made.messages)
        else:
            must_be_exact(self.job, self.made, self.query)


def _records(messages: Sequence[Message]) -> list[tuple[int, bytes | None]]:
    return [(each.partition, each.value) for each in messages]


@dataclass(slots=True)
class Crew:
    """A service whose jobs share a JVM."""

    served: Served
    broker: Broker
    home: Path
    topic: str

    def add(self, number: int, **keys: Any) -> Member:
        """Put and start a job without a mirror, and send the first third of its history."""
        query, topic = number % 4, f"{self.topic}-{number}"
        job = product_job(self.broker, topic, self.home, query, name=f"items-{number}")
        job.spec |= {"mirror": "off", **keys}
        return self._start(Member(job, query, history(100 + number, messages=MESSAGES)))

    def add_views(self, *mirrored: str) -> Member:
        """Put and start a job with three views, and send the first third of its history."""
        job = make_shop_views(self.broker.address, f"{self.topic}-views", self.home)
        for view in mirrored:
            job.spec["views"][view]["mirror"] = "100ms"
        return self._start(Member(job, None, history(200, messages=MESSAGES)))

    def _start(self, member: Member) -> Member:
        with self.served.client() as client:
            content = yaml.safe_dump(member.job.spec)
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

    def read_failures(self, member: Member) -> list[dict[str, Any]]:
        """Return the failures of a job that the service has recorded, newest first."""
        register = self.home / "data" / "service" / "register.sqlite"
        with closing(sqlite3.connect(register)) as connection:
            connection.row_factory = sqlite3.Row
            statement = "SELECT * FROM failures WHERE job = ? ORDER BY failed_at DESC"
            return [dict(row) for row in connection.execute(statement, [member.name])]

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
            member.must_be_exact()

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
    def jvms(self) -> list[psutil.Process]:
        """The JVMs that the jobs of this service share, in the order in which jobs take them."""
        owners = sorted(self.owners, key=lambda owner: _command(owner)[3])
        children = [child for owner in owners for child in owner.children()]
        return [child for child in children if child.name() == "java"]

    @property
    def jvm(self) -> psutil.Process:
        """The only JVM that the jobs of this service have."""
        (jvm,) = self.jvms
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
