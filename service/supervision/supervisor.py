"""The supervisor: moves each job to its desired state, and reports its actual state.

    register (desired) ──► tick: decide ──► start a process, terminate it, kill it, wait
                                   │
                                   └──► register (actual, since, reason)

service.supervision.decisions has what a tick does in each state.

Jobs are processes that outlive the service. The next service finds them by pid and time of birth,
or by the job's writer lock, and adopts them. The lock also prevents two writers: a second process
ends with exit code 75, and the supervisor adopts the process that holds the lock. Each tick starts
from the register and the processes; the supervisor keeps nothing in memory but process handles.
"""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from schemas import limits
from schemas.directory.documents import read_document
from schemas.directory.failure import Failure
from schemas.directory.reports import StartProgress, Waiting
from schemas.failures.catalogue import is_retryable
from schemas.types.moments import now_ms
from service.paths import JobPaths, ServicePaths, hide_paths
from service.problems import Problem
from service.supervision import job_log, job_process
from service.supervision.decisions import Action, Process, decide, decide_request
from service.supervision.register import Actual, Desired, FailureRecord, JobRecord, Register

log = logging.getLogger(__name__)

BAD_SPEC, OWNED_ELSEWHERE = 2, 75
_LOG_LINES = 40  # of a run that reported no stack
_HELD = "paused while its query is changed"
_ENDED_WITH_SERVICE = "its process ended while no service was running"
_BY_MEMORY = ("died", "failed")  # how a job ends of which the kernel has killed a process
_OUT_OF_MEMORY = "the container of the service is out of memory, and the kernel killed a process"
_OUTSIDE = "runs outside the service, as process {}"


@dataclass(slots=True)
class _Child:
    """A process that this service has started; only these have a known exit code."""

    process: subprocess.Popen[bytes]
    memory_kills: int  # in this container, before its start

    @property
    def code(self) -> int | None:
        return self.process.poll()

    @property
    def was_short_of_memory(self) -> bool:
        return job_process.count_memory_kills() > self.memory_kills


class Supervisor:
    """One thread. `run_arguments` apply to every job: brokers, connections, Spark's master."""

    def __init__(
        self,
        register: Register,
        paths: ServicePaths,
        run_arguments: Sequence[str],
        running_max: int,
    ) -> None:
        self._running_max = running_max
        self._register = register
        self._paths = paths
        self._run_arguments = list(run_arguments)
        self._children: dict[str, _Child] = {}
        self._terminated: dict[str, float] = {}  # when each process was told to end
        self._seen: set[str] = set()  # jobs whose process was alive under this service
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self.ticked_at = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; the jobs keep running."""
        self._closed.set()
        self._wake.set()
        self._thread.join()

    def wake(self) -> None:
        self._wake.set()

    @property
    def healthy(self) -> bool:
        return self._thread.is_alive() and time.monotonic() - self.ticked_at < 30

    # --- requests -------------------------------------------------------------------------------

    def set_desired(self, name: str, desired: Desired, *, again: bool = False) -> None:
        """Set the desired state; `again` restarts a running process. It is idempotent."""
        with self._register.transaction():
            record = self._register.find_job(name)
            if record is None:
                return
            if desired is Desired.RUNNING and record.desired != Desired.RUNNING:
                if record.pending is not None:
                    detail = f"job {name!r} has a pending spec; approve it, or put one that fits"
                    raise Problem("approval-needed", detail)
                self._check_room()
            self._register.change_job(name, desired=str(desired), retry_at=None, failures=0)
            action = decide_request(desired, record, again=again)
            changed = structs.replace(record, desired=desired)
            self._take(action, changed, reason="restart" if again else None)
        self.wake()

    def _check_room(self) -> None:
        wanted = sum(job.desired == Desired.RUNNING for job in self._register.list_jobs())
        if wanted >= self._running_max:
            detail = f"{wanted} jobs are running, which is the maximum; stop one first"
            raise Problem("too-many-running", detail)

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.wait(limits.SUPERVISOR_TICK_SECONDS)
            self._wake.clear()
            if self._closed.is_set():
                return
            try:
                records = self._register.list_jobs()
            except Exception:
                log.exception("cannot read the register")
                continue
            for record in records:
                try:
                    self._tick(record.name)
                except Exception:
                    log.exception("cannot supervise job %s, trying again", record.name)
            self.ticked_at = time.monotonic()

    def _tick(self, name: str) -> None:
        # The record is read again under the register's lock, so that no wish of a request is
        # overwritten by what was seen before it; nothing in here takes long.
        with self._register.transaction():
            record = self._register.find_job(name)
            if record is None:
                return
            process, pid = self._find_process(record)
            action = decide(process, record)
            if action is Action.ADOPT:
                log.info("job %s: adopting process %d", name, pid)
                born = job_process.read_birth(pid)
                self._register.change_job(
                    name, pid=pid, pid_born=born, began_at=now_ms(), retry_at=None
                )
                action = decide(Process.OURS, record)
            if process in (Process.OURS, Process.OUTSIDE):
                self._seen.add(name)
            else:
                self._terminated.pop(name, None)
            if process is Process.ENDED:
                self._register.change_job(name, pid=None, pid_born=None)
            self._take(action, record, pid)
            if process is Process.ENDED:
                self._children.pop(name, None)
        job_log.rotate(self._paths.job(name).log)

    def _find_process(self, record: JobRecord) -> tuple[Process, int]:
        """Return what there is of a job's process: ours, the recorded one, or the lock's holder."""
        child = self._children.get(record.name)
        if child is not None and child.code is None:
            pid = child.process.pid
            return Process.OURS if record.pid == pid else Process.OUTSIDE, pid
        if record.pid is not None:
            alive = child is None and job_process.is_alive(record.pid, record.pid_born)
            return Process.OURS if alive else Process.ENDED, record.pid
        holder = job_process.find_writer(self._paths.job(record.name).lock)
        if holder is not None and job_process.is_job(holder):
            return Process.OUTSIDE, holder
        return Process.NONE, 0

    def _take(
        self, action: Action, record: JobRecord, pid: int = 0, reason: str | None = None
    ) -> None:
        name, report = record.name, self._register.report
        match action:
            case Action.START:
                report(name, Actual.STARTING)
            case Action.SPAWN:
                self._start_process(record)
            case Action.RETRY if is_retry_due(record, now_ms()):
                report(name, Actual.STARTING, record.reason)
            case Action.FAIL:
                self._handle_failure(record)
            case Action.SHOW_OUTSIDE:
                report(name, Actual.RUNNING, _OUTSIDE.format(pid))
            case Action.AWAIT if self._is_ready(record, pid):
                report(name, Actual.RUNNING)
            case Action.AWAIT if record.actual != Actual.STARTING:
                report(name, Actual.STARTING)
            case Action.WATCH:
                self._watch(record, pid)
            case Action.STOP:
                report(name, Actual.STOPPING, reason if record.held_by is None else _HELD)
            case Action.END:
                self._terminate(name, pid)
            case Action.REST:
                report(name, Actual(record.desired))
            case Action.HOLD:
                report(name, Actual.STOPPED, _HELD)

    def _watch(self, record: JobRecord, pid: int) -> None:
        """Report what a running job waits for; after a while forgive its failures."""
        waiting = read_document(self._paths.job(record.name).waiting, Waiting)
        reason = waiting.reason if waiting is not None and waiting.pid == pid else None
        if record.reason != reason:
            self._register.report(record.name, Actual.RUNNING, reason)
        ran = now_ms() - (record.began_at or 0)
        if record.failures and ran > limits.RESTART_FORGIVEN_SECONDS * 1_000:
            self._register.change_job(record.name, failures=0)

    def _is_ready(self, record: JobRecord, pid: int) -> bool:
        """Return whether a job can commit an epoch: its table and its sources are open."""
        paths = self._paths.job(record.name)
        if job_process.find_writer(paths.lock) != pid:
            return False
        start = read_document(paths.start, StartProgress)
        return start is not None and start.pid == pid and start.ready

    def _terminate(self, name: str, pid: int) -> None:
        """Terminate a process once, wait, and kill it if it does not end."""
        now = time.monotonic()
        if name not in self._terminated:
            self._terminated[name] = now
            job_process.terminate(pid)
        elif now - self._terminated[name] > limits.JOB_STOP_SECONDS_MAX:
            log.warning("job %s does not end; killing process %d", name, pid)
            job_process.kill(pid)

    def _start_process(self, record: JobRecord) -> None:
        paths = self._paths.job(record.name)
        began = now_ms()
        job_log.write_mark(paths.log, f"revision {record.revision} starts")
        paths.start.unlink(missing_ok=True)  # pids are reused
        arguments = ["run", str(paths.run_spec), "--data", str(self._paths.data)]
        kills = job_process.count_memory_kills()
        process = job_process.start([*arguments, *self._run_arguments], paths.log)
        self._children[record.name] = _Child(process, kills)
        self._register.change_job(
            record.name,
            pid=process.pid,
            pid_born=job_process.read_birth(process.pid),
            began_at=began,
            retry_at=None,
            run_revision=record.revision,
        )
        log.info("job %s: started process %d", record.name, process.pid)

    def _handle_failure(self, record: JobRecord) -> None:
        """Find out why a process ended, and plan the next start."""
        name = record.name
        child = self._children.get(name)
        code = None if child is None else child.code
        paths = self._paths.job(name)
        if code == OWNED_ELSEWHERE and job_process.find_writer(paths.lock) is not None:
            return  # the next tick adopts that process
        kind, reason = self._find_reason(paths, record.pid, code)
        if child is not None and kind in _BY_MEMORY and child.was_short_of_memory:
            kind, reason = "out-of-memory", f"{_OUT_OF_MEMORY}: {reason}"
        if kind == "died" and name not in self._seen:
            # It ended with the last service, as in a container that was stopped: no failure.
            self._register.report(name, Actual.STARTING, _ENDED_WITH_SERVICE)
            return
        reason = hide_paths(reason, self._paths.data)
        pause = None
        if is_retryable(kind):  # otherwise another start would fail the same way
            pause = min(
                limits.RESTART_PAUSE_SECONDS_MIN * 2 ** min(record.failures, 16),
                limits.RESTART_PAUSE_SECONDS_MAX,
            )
        again = "" if pause is None else f"; it starts again in {pause:.0f} s"
        log.warning("job %s failed%s: %s", name, again, reason)
        retry_at = None if pause is None else now_ms() + int(pause * 1_000)
        failures = record.failures + 1
        self._register.report(
            name, Actual.FAILED, reason, failure=kind, failures=failures, retry_at=retry_at
        )
        self._register.add_failure(
            FailureRecord(
                job=name,
                failed_at=now_ms(),
                began_at=record.began_at,
                attempt=failures,
                code=kind,
                reason=reason,
                stack=hide_paths(self._find_stack(paths, record.pid), self._paths.data),
                retry_at=retry_at,
            )
        )

    @staticmethod
    def _find_stack(paths: JobPaths, pid: int | None) -> str:
        failure = read_document(paths.failure, Failure)
        if failure is not None and failure.pid == pid and failure.stack:
            return failure.stack
        return job_log.read_last_run(paths.log, _LOG_LINES)[-limits.STACK_CHARACTERS_MAX :]

    @staticmethod
    def _find_reason(paths: JobPaths, pid: int | None, code: int | None) -> tuple[str, str]:
        failure = read_document(paths.failure, Failure)
        printed = job_log.read_reason(paths.log)
        if failure is not None and failure.pid == pid:
            return failure.code, printed or failure.reason
        if code == BAD_SPEC:
            printed = job_log.read_problem(paths.log, paths.run_spec) or printed
            return "spec-refused", printed or _describe_exit(code)
        return "died", printed or _describe_exit(code)


def is_retry_due(record: JobRecord, now: int) -> bool:
    """Return whether a failed job starts again, also if the clock went back meanwhile."""
    if record.retry_at is None:
        return False
    return not 0 < record.retry_at - now <= limits.RESTART_PAUSE_SECONDS_MAX * 1_000


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "its process ended without an exit code that this service could read"
    if code < 0:
        return f"its process was ended by signal {-code}"
    if code == 0:
        return "its process ended with exit code 0, but the service had not stopped it"
    return f"its process ended with exit code {code}; see its log"
