"""Runtime: the parts of a running service, put together once."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from functools import partial
from typing import Any

import msgspec
from fastapi import Request

from jobs.core.job.job_plan import plan_of
from schemas.limits import INDEX_LOOK_SECONDS, SETTLE_SECONDS_MAX
from schemas.spec.job import JobSpec
from schemas.table.epoch import EpochRow
from service.access.audit_log import Trail
from service.access.requirements import Access
from service.access.tokens import Tokens
from service.answers.results import Results, TableReads
from service.answers.samples import Samples
from service.attempts import Attempts
from service.limits.stream_slots import Following
from service.live.epoch_history import Behind
from service.live.follower import Follower
from service.live.reader_process import Nursery
from service.moments import instant, now_ms
from service.places import discarded
from service.problems import Problem
from service.request_counts import RequestCounts
from service.settings import Settings
from service.supervision.evolving import Evolving
from service.supervision.jobs import Jobs
from service.supervision.lags import Lags
from service.supervision.operations import Operations
from service.supervision.register import Desired, JobRecord, OperationRecord, Register
from service.supervision.spec_body import CheckedSpec, read_spec
from service.supervision.supervisor import Supervisor
from service.table.state_size import StateSizes


class Runtime:
    """Made before the first request, closed after the last; the jobs go on without it."""

    def __init__(self, settings: Settings, nursery: Nursery | None = None) -> None:
        self._nursery = nursery or Nursery()
        places = settings.places
        places.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.settings = settings
        self.tokens = Tokens(places.tokens)
        self.access = Access(self.tokens, settings.host, places.home)
        self.trail = Trail(places.home / "trail.log")
        self.register = Register(places.register)
        self.jobs = Jobs(settings, self.register)
        self.supervisor = Supervisor(
            self.register, places, settings.run_arguments, settings.running_max
        )
        self.table_reads = TableReads()
        self.results = Results(self.table_reads)
        evolving = Evolving(self.register, self.jobs, self.supervisor.wake)
        self.operations = Operations(self.register, settings, evolving, self._done)
        self.lags = Lags(settings.connections, self._to_be_asked, self._is_behind)
        self.state_sizes = StateSizes()
        self.samples = Samples(settings.connections)
        self.attempts = Attempts(self._nursery.attempt)
        self.request_counts = RequestCounts()
        self.following = Following(settings.capacity.followers)
        self._lock = threading.Lock()
        self._followers: dict[str, Follower] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is that of the requests, which followers wake."""
        self._loop = loop
        trash = self.settings.places.trash
        for path in trash.iterdir() if trash.is_dir() else ():
            discarded(path)
        for record in self.register.jobs():
            self._follow(record)
        self.supervisor.start()
        self.operations.start()
        self.lags.start()

    def close(self) -> None:
        self.attempts.close()
        self.lags.close()
        self.operations.close()
        self.supervisor.close()
        with self._lock:
            followers, self._followers = self._followers, {}
        for follower in followers.values():
            follower.close()
        self.register.close()
        self._nursery.close()

    # --- jobs -----------------------------------------------------------------------------------

    async def check(self, body: bytes, name: str | None = None) -> CheckedSpec:
        """Return the spec in a body, read in a process of its own."""
        return await self.attempts.run(partial(read_spec, body, name, self.settings.connections))

    def put(
        self,
        name: str,
        body: bytes,
        if_match: str | None,
        if_none_match: str | None,
        *,
        replace: bool,
    ) -> tuple[JobRecord, bool]:
        put = self.jobs.put
        record, created = put(name, body, if_match, if_none_match, replace=replace)
        self._follow(record)
        return record, created

    def approve(self, name: str, if_match: str | None) -> JobRecord:
        """The job with its pending spec; who followed the old table is let go of."""
        record = self.jobs.approve(name, if_match)
        with self._lock:
            follower = self._followers.pop(name, None)
        if follower is not None:
            follower.close()
        shutil.rmtree(self.jobs.places(name).index, ignore_errors=True)
        self._follow(record)
        return record

    def delete(self, name: str, *, drop_data: bool, if_match: str | None) -> None:
        self.jobs.delete(name, drop_data=drop_data, if_match=if_match)
        with self._lock:
            follower = self._followers.pop(name, None)
        if follower is not None:
            follower.close()
        # Its follower may have made the index's directory anew while it was removed.
        shutil.rmtree(self.jobs.places(name).own, ignore_errors=True)

    def _done(self, operation: OperationRecord, result: str) -> None:
        """An operation has done its work; what that makes of jobs and followers. Who is told that
        it is done sees it, in all answers, and can go on from it."""
        if operation.kind == "clone":  # it becomes a job
            name = msgspec.json.decode(operation.arguments)["name"]
            self._follow(self.jobs.take_up(name))
        elif operation.kind == "evolve":
            self._follow(self.jobs.record(operation.job))
        told = msgspec.json.decode(result)
        if isinstance(told, dict) and told.get("epoch") is not None:
            self._await_epoch(told.get("job", operation.job), told["epoch"])

    def _await_epoch(self, job: str, epoch: int) -> None:
        """Not for ever: a table that cannot be followed is no reason to hold up others."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while time.monotonic() < deadline:
            with self._lock:
                follower = self._followers.get(job)
            if follower is None or (follower.newest is not None and follower.newest.epoch >= epoch):
                return
            time.sleep(INDEX_LOOK_SECONDS)

    def _follow(self, record: JobRecord) -> None:
        spec = self.jobs.spec(record)
        with self._lock:
            known = self._followers.get(record.name)
            if known is None:
                places = self.jobs.places(record.name)
                made = Follower(places, spec, self._nursery, self._loop, self._outgrown)
                self._followers[record.name] = made
            elif known.shape.plan == plan_of(spec):
                known.spec = spec
            else:
                self._followers[record.name] = known.give_way(spec)

    def _outgrown(self, follower: Follower) -> bool:
        """The table of a job is of another query than its follower's: `retally evolve` was here,
        as an operation of ours or by itself."""
        name = follower.places.name
        spec = self.jobs.evolved(name)
        if spec is None:
            return False
        with self._lock:
            if self._followers.get(name) is follower:
                self._followers[name] = follower.give_way(spec)
        return True

    def follower(self, name: str) -> Follower:
        """Who follows the table of a job; every job has one, so the register is not asked."""
        follower = self._followers.get(name)
        if follower is None:
            raise Problem("job-unknown", 404, f"there is no job {name[:80]!r}")
        return follower

    async def ready(self, name: str) -> Follower:
        """As `follower`, once it has looked at the table: a service that has just begun must not
        say that a job has none."""
        follower = self.follower(name)
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while not follower.settled and not follower.closed:
            share = follower.stood.share()
            left = deadline - time.monotonic()
            if left <= 0:
                detail = f"the results of job {name!r} are being read from its table; try again"
                raise Problem("job-not-ready", 503, detail, headers={"Retry-After": "2"})
            if not follower.settled:
                await follower.next_epoch(min(left, 0.05), share)
        return follower

    # --- those who follow changes ---------------------------------------------------------------

    def release(self) -> None:
        """End all streams, so that their clients come back to the next service at once."""
        with self._lock:
            followers = list(self._followers.values())
        for follower in followers:
            follower.release()

    # --- where jobs stand -----------------------------------------------------------------------

    def followers_with_epochs(self) -> list[tuple[str, Follower, EpochRow]]:
        with self._lock:
            followers = sorted(self._followers.items())
        return [(name, each, each.newest) for name, each in followers if each.newest is not None]

    def _to_be_asked(self) -> list[tuple[str, JobSpec, EpochRow]]:
        """Whose lag is worth a question: jobs that are to run."""
        wanted = {job.name for job in self.register.jobs() if job.desired == Desired.RUNNING}
        found = self.followers_with_epochs()
        return [(name, each.spec, newest) for name, each, newest in found if name in wanted]

    def _is_behind(self, name: str) -> None:
        """The lag of a job is known anew: its course has it from now on."""
        with self._lock:
            follower = self._followers.get(name)
        if follower is not None and follower.newest is not None:
            lag = self.lags.of(name, follower.newest)
            if lag is not None:
                follower.course.behind(Behind(now_ms(), lag["records"], lag["partitions"]))

    def standing(self, name: str) -> dict[str, Any]:
        """How far a job is, as its table says."""
        with self._lock:
            follower = self._followers.get(name)
        newest = None if follower is None else follower.newest
        if follower is None or newest is None:
            problem = None if follower is None else follower.problem
            return {
                "epoch": None,
                "watermark": None,
                "groups": None,
                "lag": None,
                "rates": None,
                "table": problem,
            }
        return {
            "epoch": newest.epoch,
            "watermark": newest.watermarks.get("combined"),
            "groups": newest.counters.get("groups"),
            "committed_at": instant(newest.committed_at // 1_000),
            "moved": newest.moved,
            "lag": self.lags.of(name, newest),
            "rates": follower.rates(),
            "table": follower.problem,
        }


def runtime_of(request: Request) -> Runtime:
    runtime: Runtime = request.app.state.runtime
    return runtime
