"""Own a Spark JVM that several small jobs share (`retally serve --jobs-per-driver N`).

    a job's process ──connects──► owner ──► a session, a scheduler pool, a job tag and a gateway
                    ◄─port, secret─┘        server for this job only, in the one JVM
                    └──────── its Spark calls ─────► its gateway server
    the connection ends ──► cancel the job's tasks, close its gateway server, stop its queries,
                            remove from Spark's memory the rows that the job still keeps there

The connection is the lease: the kernel closes it, however the job's process ends. So a killed job
leaves nothing running, and the other jobs go on. The owner ends with its JVM, or when no job has
used it for a while. The JVM ends with the owner: its standard input closes. A JVM that hangs is
killed, so that all its jobs fail and start again in another one.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemas import limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

FULL = b"full\n"
SESSION = "session"  # what a job gets
_TICK_SECONDS = 0.1
_BEAT_SECONDS = 1.0
_LOCAL_MASTER = re.compile(r"local(?:\[(\d+|\*)])?", re.ASCII)
_HEAP_MIB, _HEAP_MIB_PER_JOB = 1_024, 32  # the heap's limit, not what it takes
# A new JVM helps all jobs, and one that is short of memory helps none. A young generation of fixed
# size keeps the heap small.
_JVM = "-XX:+ExitOnOutOfMemoryError -Xmn128m"


class DriverUnfit(Exception):
    """The JVM cannot take a job; its owner ends, so that the next start gets another JVM."""


def count_cores(master: str) -> int | None:
    """Return the cores of a local master; None for another master, which no jobs can share."""
    found = _LOCAL_MASTER.fullmatch(master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


@contextmanager
def short_address(path: Path) -> Iterator[str]:
    """Yield an address of a Unix socket that has no more than the 107 bytes of such addresses."""
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        short = Path(f"/proc/self/fd/{directory}")
        yield str((short if short.is_dir() else path.parent) / path.name)
    finally:
        os.close(directory)


class Heartbeat:
    """Calls the JVM once a second in a thread, to notice that it does not answer."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._beats = self._seen = 0
        self._silent = 0.0
        self._checked = time.monotonic()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def start(self) -> Heartbeat:
        self._thread.start()
        return self

    def measure_silence(self) -> float:
        """Return for how many seconds the JVM has not answered; call it in each tick.

        A tick counts as little more than it should take: if the whole machine was suspended, the
        JVM could not answer.
        """
        now = time.monotonic()
        passed, self._checked = now - self._checked, now
        beats = self._beats
        if beats != self._seen:
            self._seen, self._silent = beats, 0.0
        else:
            self._silent += min(passed, 2 * _TICK_SECONDS)
        return self._silent

    def _beat(self) -> None:
        while True:
            try:
                self._jvm.java.lang.System.nanoTime()
            except Exception:
                log.warning("the JVM does not answer any more", exc_info=True)
                return
            self._beats += 1
            time.sleep(_BEAT_SECONDS)


@dataclass(slots=True)
class SharedDriver:
    """The owner: lends sessions of its JVM to as many jobs as `jobs_max`."""

    listener: socket.socket
    spark: SparkSession
    jobs_max: int
    _jobs: int = 0
    _connections: set[socket.socket] = field(default_factory=set)  # of the jobs
    _idle_since: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _unfit: threading.Event = field(default_factory=threading.Event)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def serve(self) -> None:
        """Serve jobs until the JVM has ended or is unfit, or no job is connected for a while."""
        jvm, heartbeat = self._gateway.proc, Heartbeat(self._gateway.jvm).start()
        self.listener.settimeout(_TICK_SECONDS)
        while jvm.poll() is None and not self._unfit.is_set() and not self._is_idle():
            _bound_log()
            if heartbeat.measure_silence() > limits.DRIVER_SILENT_SECONDS_MAX:
                self._report_to_jobs(f"did not answer for {limits.DRIVER_SILENT_SECONDS_MAX:.0f} s")
                jvm.kill()
                return
            try:
                connection, _ = self.listener.accept()
            except TimeoutError:
                continue
            if self._jobs == self.jobs_max:  # only this thread adds one
                with connection, suppress(OSError):
                    connection.sendall(FULL)
                continue
            with self._lock:
                self._jobs += 1
            threading.Thread(target=self._serve_job, args=(connection,), daemon=True).start()

    def _report_to_jobs(self, reason: str) -> None:
        """Send the reason for which the JVM is about to be killed to all jobs."""
        log.error("the JVM %s; killing it, its jobs start again", reason)
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.sendall(reason.encode() + b"\n")

    @property
    def _gateway(self) -> Any:
        return self.spark.sparkContext._gateway

    def _is_idle(self) -> bool:
        with self._lock:
            waited = time.monotonic() - self._idle_since
            return not self._jobs and waited > limits.DRIVER_IDLE_SECONDS_MAX

    def _serve_job(self, connection: socket.socket) -> None:
        """Lend a session until the connection ends; in a thread for each job."""
        with self._lock:
            self._connections.add(connection)
        try:
            self._lend(connection, f"job-{next(self._numbers)}")
        except Exception:
            log.exception("the JVM cannot serve its jobs any longer")
            self._unfit.set()
        finally:
            with self._lock:
                self._connections.remove(connection)
                connection.close()
                self._jobs -= 1
                self._idle_since = time.monotonic()

    def _lend(self, connection: socket.socket, tag: str) -> None:
        context = self.spark._jsc.sc()
        if context.isStopped():
            raise DriverUnfit("Spark has stopped")
        # This thread's JVM thread starts the gateway server, whose threads start the queries: each
        # thread of the JVM inherits these properties from the one that started it.
        context.setLocalProperty("spark.scheduler.pool", tag)
        context.addJobTag(tag)
        context.setInterruptOnCancel(True)
        session = self.spark._jsparkSession.newSession()
        self.spark._get_j_spark_session_class(self._gateway.jvm).setActiveSession(session)
        secret = secrets.token_hex(32)
        server = self._start_gateway({SESSION: session}, secret)
        try:
            answer = {"port": server.getJavaServer().getListeningPort(), "secret": secret}
            _await_end(connection, json.dumps(answer).encode() + b"\n")
        finally:
            context.cancelJobsWithTag(tag)
            server.shutdown()
            for query in session.streams().active():
                with suppress(Exception):  # its client is gone, which may be what it reports
                    query.stop()

    def _start_gateway(self, lent: Mapping[str, object], secret: str) -> Any:
        """Start what a Python process calls the JVM through; its entry point is a map of `lent`."""
        jvm = self._gateway.jvm
        entry = jvm.java.util.HashMap()
        for name, value in lent.items():
            entry.put(name, value)
        builder = jvm.py4j.ClientServer.ClientServerBuilder(entry)
        builder.authToken(secret).javaPort(0)
        builder.javaAddress(jvm.java.net.InetAddress.getLoopbackAddress())
        server = builder.build()
        server.startServer()
        return server


def _await_end(connection: socket.socket, answer: bytes) -> None:
    """Send the answer, and wait until the job's process closes the connection or ends."""
    with suppress(OSError):
        connection.sendall(answer)
        while connection.recv(64):
            pass


def _bound_log() -> None:
    """Truncate the driver's log, which is the standard error of owner and JVM, if it is large."""
    if os.fstat(2).st_size > limits.DRIVER_LOG_BYTES_MAX:
        os.ftruncate(2, 0)


def _own(path: Path) -> socket.socket | None:
    """Return the socket that jobs connect to; None if another owner has it.

    The lock is on the log, and the JVM inherits it: so no JVM is left of an owner before.
    """
    try:
        fcntl.flock(2, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    os.ftruncate(2, 0)
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with short_address(path) as address:
        listener.bind(address)
    listener.listen(2 * limits.JOBS_PER_DRIVER_MAX)
    return listener


def main(path: Path, master: str, jobs_max: int) -> int:
    """Own one JVM from start to end; its log is standard error."""
    listener = _own(path)
    if listener is None:
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with suppress(OSError):  # as a supervised job: responses of the service come first
        Path("/proc/self/autogroup").write_text(str(limits.JOB_NICENESS))
    from jobs.edge.spark.session import JAVA_OPTIONS, session

    os.environ[JAVA_OPTIONS] = f"{os.environ.get(JAVA_OPTIONS, '')} {_JVM}".strip()
    cores = count_cores(master) or 1
    spark = session(
        "shared",
        # A task that hangs takes a thread: those of the other jobs leave each job its cores.
        f"local[{cores + jobs_max - 1}]",
        f"{_HEAP_MIB + _HEAP_MIB_PER_JOB * (jobs_max - 1)}m",
        delta=True,
        settings={
            "spark.scheduler.mode": "FAIR",
            "spark.default.parallelism": str(cores),
            "spark.python.factory.idleWorkerMaxPoolSize": str(cores),
        },
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    SharedDriver(listener, spark, jobs_max).serve()
    path.unlink(missing_ok=True)
    listener.close()
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    logging.shutdown()
    os._exit(code)  # and the JVM with it
