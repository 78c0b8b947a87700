"""The embedded Kafka broker: the real one, one KRaft node, for tests, the demo and first steps.

    Broker (tests, demo) ──starts──► main() ──starts──► java kafka.Kafka
        reads `ready HOST:PORT`  ◄──   │  watches its parent      ▲
                                       └── SIGTERM when told to stop, or when the parent is gone

Nobody is left behind: main() ends when its parent ends, however that ended, and on Linux the
kernel ends the JVM when main() is killed. All data is in one directory and survives restarts.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import fcntl
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from jobs.edge.process.jars import JarsMissing, broker_classpath
from jobs.edge.process.java import JavaMissing, java
from schemas.limits import BROKER_MESSAGE_BYTES_MAX, BROKER_START_SECONDS_MAX
from schemas.limits import BROKER_STOP_SECONDS_MAX as STOP_SECONDS_MAX

# Below the ports that systems give to outgoing connections: a client that keeps trying to reach a
# stopped broker there could be given the broker's own port and end up connected to itself.
PORTS = range(20_000, 32_768)

# A short life on few cores: the light compiler and collector cost 40 % less CPU over 3 M records
# than the defaults and start no slower; 64 MB messages pass with this heap.
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
FORMAT_JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# Settings that the owner of the data directory adds, such as a listener with TLS; of two settings
# of one name Kafka takes the later.
OWN_SETTINGS = "own.properties"

WATCH_SECONDS = 0.2
LOCK_SECONDS_MAX = 3
PR_SET_PDEATHSIG = 1

SERVER = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}/log
# One node: every topic of Kafka's own has one replica, and few partitions to load at start.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
# A misspelt topic is an error, not a new topic.
auto.create.topics.enable=false
message.max.bytes={message_bytes_max}
# After a kill -9 the node may come back only when its old session is over: 9 s by default.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
# Kafka's 128 MB would be a third of the heap.
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=4
"""

LOG4J = """\
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={data}/broker.log
appender.file.filePattern={data}/broker.log.1
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=1
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d{{ISO8601}} %p %c{{1}}: %m%n%throwable
rootLogger.level=warn
rootLogger.appenderRef.file.ref=file
"""


class BrokerFailed(RuntimeError):
    """The broker did not start or did not stay; the message says why."""


class Broker:
    """A broker process for a test or the demo; may be stopped, killed and started again.

    >>> with Broker(Path("data")) as broker:
    ...     broker.address
    '127.0.0.1:24680'
    """

    def __init__(self, data: Path, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.data = data.absolute()
        self.host = host
        self.port = port  # the one it got, once it has started
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def java_pid(self) -> int:
        """For faults: the JVM, to be stopped or killed from outside."""
        return int((self.data / "java.pid").read_text())

    def start(self) -> Self:
        """Start and wait until it serves; a second start takes the same port and data."""
        arguments = [self.host, str(self.port), str(self.data), "--parent", str(os.getpid())]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jobs.edge.process.broker", *arguments],
            cwd=Path(__file__).resolve().parents[3],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for the owner, who stops the broker last
        )
        line = _output(self._process).readline()  # it either says ready in time or ends
        if not line.startswith("ready "):
            rest = _output(self._process).read()
            self._process.wait()
            self._forget()
            raise BrokerFailed((line + rest).strip())
        self.port = int(line.rpartition(":")[2])
        return self

    def stop(self) -> None:
        """Let it finish cleanly; nothing happens when it is not running."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._forget()

    def kill(self) -> None:
        """kill -9 of the JVM; returns when it is gone."""
        if self._process is not None:
            os.kill(self.java_pid, signal.SIGKILL)
            self._process.wait()
            self._forget()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _forget(self) -> None:
        if self._process is not None:
            _output(self._process).close()
            self._process = None


def main(host: str, port: int, data: Path, parent: int | None = None) -> int:
    """Run the broker in the foreground until it is told to stop or its parent is gone."""
    parent = os.getppid() if parent is None else parent
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        serve(host, port, data.absolute(), lambda: stopping.is_set() or os.getppid() != parent)
    except (BrokerFailed, JarsMissing, JavaMissing) as problem:
        print(f"broker: {problem}", file=sys.stderr)
        return 1
    return 0


def serve(host: str, port: int, data: Path, ended: Callable[[], bool]) -> None:
    """Start the JVM, say `ready` when it serves, stay until `ended`, stop it cleanly."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "lock").open("a") as lock:
        _own(data, lock)
        port = port or free_port(host)
        if not _free(host, port):
            raise BrokerFailed(f"{host}:{port} is taken or no address of this machine")
        _configure(host, port, data)
        process = _start(data, lock)
        try:
            _await_ready(process, f"{host}:{port}", data, ended)
            while not ended():
                if process.poll() is not None:
                    raise BrokerFailed(_reason(process, data))
                time.sleep(WATCH_SECONDS)
        finally:
            _stop(process)


def free_port(host: str) -> int:
    """A port nobody listens on; the next start has it for certain only if it is quick."""
    for port in random.sample(PORTS, 100):
        if _free(host, port):
            return port
    raise BrokerFailed(f"no free port on {host} between {PORTS.start} and {PORTS.stop}")


def _free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _own(data: Path, lock: IO[str]) -> None:
    """Take the directory; the JVM holds the lock too, so that none of a killed broker is left."""
    deadline = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BrokerFailed(f"another broker is running on {data}") from None
            time.sleep(WATCH_SECONDS)


def _configure(host: str, port: int, data: Path) -> None:
    """Write the settings, and format the data directory if it is new."""
    controller = port
    while controller == port:
        controller = free_port("127.0.0.1")
    settings = SERVER.format(
        host=host,
        port=port,
        controller=controller,
        data=data,
        message_bytes_max=BROKER_MESSAGE_BYTES_MAX,
    )
    own = data / OWN_SETTINGS
    if own.exists():
        settings += own.read_text()
    properties = data / "server.properties"
    properties.touch(mode=0o600)  # settings of one's own may hold passwords
    properties.write_text(settings)
    (data / "log4j2.properties").write_text(LOG4J.format(data=data))
    if (data / "log" / "meta.properties").exists():
        return
    cluster = cluster_id(uuid.uuid4().bytes)
    wish = ["format", "--ignore-formatted", "-t", cluster, "-c", str(properties)]
    done = subprocess.run(
        [*_java(data, FORMAT_JVM), "kafka.tools.StorageTool", *wish],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BrokerFailed(f"{data} could not be formatted: {done.stderr or done.stdout}".strip())


def cluster_id(random: bytes) -> str:
    """Kafka's spelling of a UUID. It never begins with a dash, which its tool takes for an option:
    one start in 64 failed."""
    letter_first = bytes([random[0] & 0x7F]) + random[1:]
    return base64.urlsafe_b64encode(letter_first).decode().rstrip("=")


def _java(data: Path, options: tuple[str, ...]) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={data}/log4j2.properties"
    return [str(java()), *options, logging, "-cp", broker_classpath()]


def _start(data: Path, lock: IO[str]) -> subprocess.Popen[bytes]:
    with (data / "java.out").open("wb") as output:
        process = subprocess.Popen(
            [*_java(data, JVM), "kafka.Kafka", str(data / "server.properties")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C reaches it through main(), once
            pass_fds=(lock.fileno(),),
            preexec_fn=_tie_to(os.getpid()),  # noqa: PLW1509 - main() has no threads yet
        )
    (data / "java.pid").write_text(str(process.pid))
    return process


def _tie_to(parent: int) -> Callable[[], None] | None:
    """On Linux: have the kernel kill the child when this process ends, by kill -9 too."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)

    return tie


def _await_ready(
    process: subprocess.Popen[bytes], address: str, data: Path, ended: Callable[[], bool]
) -> None:
    deadline = time.monotonic() + BROKER_START_SECONDS_MAX
    while not ended():
        if process.poll() is not None:
            raise BrokerFailed(_reason(process, data))
        if _serves(address):
            print(f"ready {address}", flush=True)
            return
        if time.monotonic() > deadline:
            raise BrokerFailed(
                f"not ready after {BROKER_START_SECONDS_MAX} s, see {data}/broker.log"
            )
        time.sleep(WATCH_SECONDS / 4)


def _serves(address: str) -> bool:
    """Whether clients get an answer that names the broker, not just a connection."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        client = AdminClient({"bootstrap.servers": address, "log_level": 0})
        return bool(client.list_topics(timeout=2).brokers)
    except (OSError, KafkaException):
        return False


def _reason(process: subprocess.Popen[bytes], data: Path) -> str:
    """Why the JVM ended: the last thing it complained about, and where to read more."""
    logs = [data / "java.out", data / "broker.log"]
    lines = [line for log in logs if log.exists() for line in log.read_text().splitlines()]
    complaints = [line for line in lines if re.search(r"ERROR|FATAL|Exception|Error:", line)]
    ended = f"the JVM ended with {process.returncode}, see {data}/broker.log"
    return f"{ended}; its last complaint: {complaints[-1].strip()}" if complaints else ended


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None  # both kinds of Popen here have a pipe
    return process.stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="jobs.edge.process.broker")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("data", type=Path)
    parser.add_argument("--parent", type=int)
    wishes = parser.parse_args()
    sys.exit(main(wishes.host, wishes.port, wishes.data, wishes.parent))
