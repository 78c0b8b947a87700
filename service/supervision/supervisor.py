"""The supervisor: makes of what is desired of each job what is so, and says what it sees.

    register (desired) ──► tick ──► start a process, ask it to end, kill it, wait, start again
                            │
                            └──► register (actual, since, reason)

Jobs are processes of their own. They outlive the service; the next one finds them by pid and birth,
or by the job's writer lock, and takes them on. That lock is also why there are never two writers:
a process too many ends with exit code 75, and the supervisor then looks after the one that holds
the lock. Each tick begins from the register and the processes, and remembers nothing but handles.
"""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from schemas import limits
from schemas.table.failure import read_failure
from service.moments import now_ms
from service.places import JobPlaces, ServicePlaces
from service.problems import Problem
from service.supervision import job_log, job_process
from service.supervision.register import ALIVE, Actual, Desired, JobRecord, Register

log = logging.getLogger(__name__)

BAD_SPEC, OWNED_ELSEWHERE = 2, 75
_HELD = "stands still while its query is changed"
_OUTSIDE = "runs outside the service, as process {}"


@dataclass(slots=True)
class _Child:
    """A process that this service has started itself; only of those is the exit code known."""

    process: subprocess.Popen[bytes]

    @property
    def code(self) -> int | None:
        return self.process.poll()


class Supervisor:
    """One thread. `run_arguments` are those of the operator for every job: brokers, connections,
    Spark's master."""

    def __init__(
        self,
        register: Register,
        places: ServicePlaces,
        run_arguments: Sequence[str],
        running_max: int,
    ) -> None:
        self._running_max = running_max
        self._register = register
        self._places = places
        self._run_arguments = list(run_arguments)
        self._children: dict[str, _Child] = {}
        self._asked: dict[str, float] = {}  # when a process was asked to end
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self.ticked_at = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop looking; the jobs go on."""
        self._closed.set()
        self._wake.set()
        self._thread.join()

    def wake(self) -> None:
        self._wake.set()

    @property
    def healthy(self) -> bool:
        return self._thread.is_alive() and time.monotonic() - self.ticked_at < 30

    # --- what people ask for --------------------------------------------------------------------

    def ask(self, name: str, desired: Desired, *, again: bool = False) -> None:
        """Set what is desired; `again` ends a running process first. Asking twice is no error."""
        with self._register.transaction():
            record = self._register.job(name)
            if record is None:
                return
            actual = Actual(record.actual)
            was_to_run = record.desired == Desired.RUNNING
            if desired is Desired.RUNNING and record.pending is not None and not was_to_run:
                detail = f"job {name!r} has a pending spec; approve it, or put one that fits"
                raise Problem("approval-needed", 409, detail)
            if desired is Desired.RUNNING and not was_to_run:
                self._check_room()
            running = actual in (Actual.STARTING, Actual.RUNNING) and (
                record.pid is not None or actual is Actual.RUNNING
            )
            self._register.change_job(name, desired=str(desired), retry_at=None, failures=0)
            if record.held_by is not None:
                return  # the operation ends with the job as it is desired then
            if desired is Desired.RUNNING:
                if again and running:
                    self._register.tell(name, Actual.STOPPING, "restart")
                elif actual not in ALIVE:
                    self._register.tell(name, Actual.STARTING)
            elif running:
                self._register.tell(name, Actual.STOPPING)
            elif actual is not Actual.STOPPING and actual is not Actual.CREATED:
                self._register.tell(name, Actual(desired))
            elif actual is Actual.CREATED and desired is Desired.PAUSED:
                self._register.tell(name, Actual.PAUSED)
        self.wake()

    def _check_room(self) -> None:
        wanted = sum(job.desired == Desired.RUNNING for job in self._register.jobs())
        if wanted >= self._running_max:
            detail = f"{wanted} jobs run already, which is the most here; stop one first"
            raise Problem("too-many-running", 429, detail)

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(limits.SUPERVISOR_TICK_SECONDS)
            self._wake.clear()
            if self._closed.is_set():
                return
            try:
                records = self._register.jobs()
            except Exception:
                log.exception("the register cannot be read")
                continue
            for record in records:
                try:
                    self._tick(record.name)
                except Exception:
                    log.exception("job %s", record.name)
            self.ticked_at = time.monotonic()

    def _tick(self, name: str) -> None:
        # The record is read again under the register's lock, so that no wish of a request is
        # overwritten by what was seen before it; nothing in here takes long.
        with self._register.transaction():
            record = self._register.job(name)
            if record is None:
                return
            pid = self._process(record)
            if pid is None:
                self._without_process(record)
            else:
                self._with_process(record, pid)
        job_log.cut(self._places.job(name).log)

    def _process(self, record: JobRecord) -> int | None:
        """The job's living process: ours, the recorded one, or whoever holds the lock."""
        child = self._children.get(record.name)
        if child is not None and child.code is None:
            return child.process.pid
        if record.pid is not None and child is None:
            if job_process.alive(record.pid, record.pid_born):
                return record.pid
            return None  # it ended; the next tick looks for others
        if record.pid is not None:
            return None  # our own, and its exit code is there to be read
        holder = job_process.writer(self._places.job(record.name).lock)
        return holder if holder is not None and job_process.runs_a_job(holder) else None

    def _with_process(self, record: JobRecord, pid: int) -> None:
        name = record.name
        if record.pid != pid:
            if record.desired != Desired.RUNNING and record.actual != Actual.STOPPING:
                if record.actual != Actual.RUNNING:
                    self._register.tell(name, Actual.RUNNING, _OUTSIDE.format(pid))
                return
            log.info("job %s: process %d is taken on", name, pid)
            self._register.change_job(
                name, pid=pid, pid_born=job_process.birth(pid), began_at=now_ms(), retry_at=None
            )
        if record.actual == Actual.STOPPING:
            self._end(name, pid)
        elif record.held_by is not None:
            self._register.tell(name, Actual.STOPPING, _HELD)
        elif record.desired != Desired.RUNNING:
            # A kill of the service between the two writes of a wish cannot leave this; be sure.
            self._register.tell(name, Actual.STOPPING)
        elif record.actual == Actual.RUNNING:
            ran = now_ms() - (record.began_at or 0)
            if record.failures and ran > limits.RESTART_FORGIVEN_SECONDS * 1_000:
                self._register.change_job(name, failures=0)
        elif self._ready(record, pid):
            self._register.tell(name, Actual.RUNNING)
        elif record.actual != Actual.STARTING:
            self._register.tell(name, Actual.STARTING)

    def _ready(self, record: JobRecord, pid: int) -> bool:
        """Whether a job has found its sources and its table: it writes its spec down then."""
        places = self._places.job(record.name)
        if record.pid != pid or job_process.writer(places.lock) != pid:
            return False
        try:
            written = places.spec.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return False
        # One that was running before us has long written it; ours writes it after its start.
        return record.name not in self._children or written >= (record.began_at or 0)

    def _end(self, name: str, pid: int) -> None:
        """Ask once, then wait; in the end kill."""
        now = time.monotonic()
        if name not in self._asked:
            self._asked[name] = now
            job_process.ask_to_end(pid)
        elif now - self._asked[name] > limits.JOB_STOP_SECONDS_MAX:
            log.warning("job %s does not end; process %d is killed", name, pid)
            job_process.kill(pid)

    def _without_process(self, record: JobRecord) -> None:
        name = record.name
        self._asked.pop(name, None)
        if record.pid is not None:
            self._ended(record)
        elif record.held_by is not None:
            if record.actual in ALIVE:
                self._register.tell(name, Actual.STOPPED, _HELD)
        elif record.actual == Actual.STOPPING:
            self._stopped(record)
        elif record.desired != Desired.RUNNING:
            if record.actual == Actual.RUNNING:  # what ran outside has ended
                self._register.tell(name, Actual(record.desired))
        elif record.actual == Actual.STARTING:
            self._begin(record)
        elif record.actual == Actual.RUNNING or (
            record.retry_at is not None and now_ms() >= record.retry_at
        ):
            self._register.tell(name, Actual.STARTING, record.reason)

    def _stopped(self, record: JobRecord) -> None:
        if record.held_by is not None:
            self._register.tell(record.name, Actual.STOPPED, _HELD)
        elif record.desired == Desired.RUNNING:
            self._register.tell(record.name, Actual.STARTING)
        else:
            self._register.tell(record.name, Actual(record.desired))

    def _begin(self, record: JobRecord) -> None:
        places = self._places.job(record.name)
        began = now_ms()
        job_log.mark(places.log, f"revision {record.revision} starts")
        arguments = ["run", str(places.own_spec), "--data", str(self._places.data)]
        process = job_process.start([*arguments, *self._run_arguments], places.log)
        self._children[record.name] = _Child(process)
        self._register.change_job(
            record.name,
            pid=process.pid,
            pid_born=job_process.birth(process.pid),
            began_at=began,
            retry_at=None,
            run_revision=record.revision,
        )
        log.info("job %s: process %d starts", record.name, process.pid)

    def _ended(self, record: JobRecord) -> None:
        """A process of the job is gone: as it should be, or to be started again."""
        name = record.name
        child = self._children.pop(name, None)
        code = None if child is None else child.code
        self._register.change_job(name, pid=None, pid_born=None)
        if record.actual == Actual.STOPPING:
            self._stopped(record)
            return
        if record.desired != Desired.RUNNING:
            self._register.tell(name, Actual(record.desired))
            return
        if code == OWNED_ELSEWHERE and self._holder(self._places.job(name)) is not None:
            return  # the next tick takes that one on
        places = self._places.job(name)
        kind, retryable, why = self._why(places, record.pid, code)
        why = why.replace(str(self._places.data), "DIR")  # paths of this machine are nobody's news
        if not retryable:  # another try would end the same way
            log.warning("job %s failed: %s", name, why)
            self._register.tell(
                name, Actual.FAILED, why, failure=kind, failures=record.failures + 1, retry_at=None
            )
            return
        pause = min(
            limits.RESTART_PAUSE_SECONDS_MIN * 2 ** min(record.failures, 16),
            limits.RESTART_PAUSE_SECONDS_MAX,
        )
        log.warning("job %s failed, and starts again in %.0f s: %s", name, pause, why)
        self._register.tell(
            name,
            Actual.FAILED,
            why,
            failure=kind,
            failures=record.failures + 1,
            retry_at=now_ms() + int(pause * 1_000),
        )

    @staticmethod
    def _why(places: JobPlaces, pid: int | None, code: int | None) -> tuple[str, bool, str]:
        """The code of a failure, whether another start may heal it, and the reason."""
        left = read_failure(places.failure)
        said = job_log.reason(places.log)
        if left is not None and left.pid == pid:
            return left.code, left.retryable, said or left.reason
        if code == BAD_SPEC:
            lines = job_log.tail(places.log, 1)
            if lines:  # FILE:LINE:COL: key: reason, of a file that is ours
                said = lines[0]["message"].replace(str(places.own_spec), "spec")
            return "spec-refused", False, said or _code_text(code)
        return "died", True, said or _code_text(code)

    def _holder(self, places: JobPlaces) -> int | None:
        return job_process.writer(places.lock)


def _code_text(code: int | None) -> str:
    if code is None:
        return "its process ended; the service was not there to see how"
    if code < 0:
        return f"its process was ended by signal {-code}"
    if code == 0:
        return "its process ended without being told to by the service"
    return f"its process ended with exit code {code}; see its log"
