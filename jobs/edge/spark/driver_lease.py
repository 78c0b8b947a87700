"""Join the Spark JVM that several jobs share; jobs.edge.spark.shared_driver owns it.

    DIR/drivers/<kind>-0.sock ──full──► <kind>-1.sock ──none──► start an owner ──► a session

A job takes the first driver with room. `kind` is a hash of all that the jobs of one JVM must have
in common: the settings of the JVM, and the code that its Python workers have loaded.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from jobs.edge.spark.session import JAVA_OPTIONS
from jobs.edge.spark.shared_driver import FULL, SESSION, short_address
from schemas.limits import DRIVER_START_SECONDS_MAX

_OWNER = "jobs.edge.spark.shared_driver"
_RETRY_SECONDS = 0.1
_LOST_SECONDS = 1.0  # in which an owner notices the end of its JVM
_REASON_BYTES = 256
_CODE = Path(__file__).resolve().parents[3]
_PACKAGES = ("jobs", "schemas")


class DriverLost(Exception):
    """The shared JVM has ended or does not start; another start of the job gets another one."""


@contextmanager
def lease_session(data: Path, master: str, jobs_max: int) -> Iterator[SparkSession]:
    """Yield a session of a JVM that at most `jobs_max` jobs of the data directory share.

    Raise DriverLost if the body fails after the JVM has ended. Call it in the main thread.
    """
    lease = _Drivers(data / "drivers", master, jobs_max).take()
    try:
        yield _open_session(lease)
    except Exception as error:
        reason = lease.read_loss()
        if reason is None:
            raise
        raise DriverLost(
            f"the Spark JVM that this job shares with others {reason}; see {lease.log}"
        ) from error
    finally:
        lease.connection.close()


@dataclass(frozen=True, slots=True)
class _Lease:
    connection: socket.socket
    port: int
    secret: str
    log: Path

    def read_loss(self) -> str | None:
        """Return why the JVM is gone, None if it is not: its owner sends a reason, or ends."""
        self.connection.settimeout(_LOST_SECONDS)
        try:
            return self.connection.recv(_REASON_BYTES).decode().strip() or "has ended"
        except TimeoutError:
            return None
        except OSError:
            return "has ended"


@dataclass(slots=True)
class _Drivers:
    """The drivers of one kind."""

    directory: Path
    master: str
    jobs_max: int
    _started: dict[Path, subprocess.Popen[bytes]] = field(default_factory=dict)

    def take(self) -> _Lease:
        """Return a lease of the first driver with room; start one if all are full."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        kind = self._name_kind()
        deadline = time.monotonic() + DRIVER_START_SECONDS_MAX
        while time.monotonic() < deadline:
            for number in count():
                path = self.directory / f"{kind}-{number}.sock"
                found = _request_lease(path)
                if isinstance(found, _Lease):
                    return found
                if found != FULL:
                    self._start(path)
                    break
            time.sleep(_RETRY_SECONDS)
        raise DriverLost(
            f"no shared Spark JVM within {DRIVER_START_SECONDS_MAX:.0f} s; see {self.directory}"
        )

    def _name_kind(self) -> str:
        settings = (sys.executable, self.master, self.jobs_max, os.environ.get(JAVA_OPTIONS))
        code = [
            (str(file), file.stat().st_mtime_ns)
            for package in _PACKAGES
            for file in sorted((_CODE / package).rglob("*.py"))
        ]
        return sha256(repr((settings, code)).encode()).hexdigest()[:12]

    def _start(self, path: Path) -> None:
        """Start an owner, unless the one that this process has started is still starting."""
        before = self._started.get(path)
        if before is not None:
            code = before.poll()
            if code is None:
                return
            if code != 0:  # 0: another owner was faster, or is ending
                raise DriverLost(f"the Spark JVM does not start; see {_log(path)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        output = os.open(_log(path), flags, 0o600)
        try:
            self._started[path] = subprocess.Popen(
                [sys.executable, "-m", _OWNER, str(path), self.master, str(self.jobs_max)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # it outlives this job, and a kill of its process group
            )
        finally:
            os.close(output)


def _log(path: Path) -> Path:
    return path.with_suffix(".log")


def _request_lease(path: Path) -> _Lease | bytes | None:
    """Return a lease, FULL, or None if no owner answers; wait while its JVM starts."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(DRIVER_START_SECONDS_MAX)
    try:
        with short_address(path) as address:
            connection.connect(address)
        with connection.makefile("rb") as answers:
            answer = answers.readline()
    except OSError:
        answer = b""
    if not answer.endswith(b"}\n"):
        connection.close()
        return answer or None
    given = json.loads(answer)
    return _Lease(connection, given["port"], given["secret"], _log(path))


def _open_session(lease: _Lease) -> SparkSession:
    """Return the session that the owner has made for this process."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    given = {"PYSPARK_GATEWAY_PORT": str(lease.port), "PYSPARK_GATEWAY_SECRET": lease.secret}
    os.environ.update(given)
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in given:  # a secret is not for the processes that the job starts
            del os.environ[name]
    session = gateway.entry_point.get(SESSION)
    context = gateway.jvm.JavaSparkContext(session.sparkContext())
    interrupt = signal.getsignal(signal.SIGINT)
    spark = SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)  # pyspark's cancels the work of all jobs
    return SparkSession(spark, jsparkSession=session)
