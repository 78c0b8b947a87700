"""Run an embedded Kafka broker: a real KRaft node, for tests, the demo and first steps.

    Broker (tests, demo) ──starts──► main() ──starts──► java kafka.Kafka
        reads `ready HOST:PORT`  ◄──   │  watches its parent      ▲
                                       └── SIGTERM after a signal, or after its parent has ended

No process is left over: main() ends when its parent has ended, and on Linux the kernel kills the
JVM when main() is killed. All data is in one directory and survives restarts.
"""

from __future__ import annotations

import argparse
import base64
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
from typing import IO, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from jobs.edge.machine.jars import JarsMissing, broker_classpath
from jobs.edge.machine.java import JavaMissing, java
from jobs.edge.process.parent import end_with_parent
from schemas.limits import (
    BROKER_LOCK_SECONDS_MAX,
    BROKER_MESSAGE_BYTES_MAX,
    BROKER_START_SECONDS_MAX,
)
from schemas.limits import BROKER_STOP_SECONDS_MAX as STOP_SECONDS_MAX

# Below the ports of outgoing connections: otherwise a client that keeps trying to reach a stopped
# broker could get the broker's own port and connect to itself.
PORTS = range(20_000, 32_768)

# For a short life on few cores: over 3 M records this compiler and collector use 40 % less CPU than
# the defaults, and the start takes no longer. With this heap, 64 MB messages pass.
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
FORMAT_JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# Settings that the owner of the data directory adds, such as a listener with TLS. They override
# ours, because Kafka takes the later of two settings.
OWN_SETTINGS = "own.properties"

WATCH_SECONDS = 0.2

SERVER = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}/log
# One node: each internal topic has one replica, and few partitions to load at the start.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
# A misspelt topic name is an error; it does not create a topic.
auto.create.topics.enable=false
message.max.bytes={message_bytes_max}
# After a kill -9 the node can come back only after its old session: 9 s by default.
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
    """The broker did not start, or ended; the message has the reason."""


class Broker:
    """A broker process for a test or the demo, which can be stopped, killed and started again.

    >>> with Broker(Path("data")) as broker:
    ...     broker.address
    '127.0.0.1:24680'
    """

    def __init__(self, data: Path, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.data = data.absolute()
        self.host = host
        self.port = port  # after the start, the broker's port
        self._process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def java_pid(self) -> int:
        """The pid of the JVM, for tests that stop or kill it."""
        return int((self.data / "java.pid").read_text())

    def start(self) -> Self:
        """Start the broker and wait until it serves; a restart uses the same port and data."""
        arguments = [self.host, str(self.port), str(self.data), "--parent", str(os.getpid())]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "jobs.edge.process.broker", *arguments],
            cwd=Path(__file__).resolve().parents[3],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for the owner, which stops the broker last
        )
        line = _output(self._process).readline()  # main() prints `ready` in time, or ends
        if not line.startswith("ready "):
            rest = _output(self._process).read()
            self._process.wait()
            self._forget()
            raise BrokerFailed((line + rest).strip())
        self.port = int(line.rpartition(":")[2])
        return self

    def stop(self) -> None:
        """Stop the broker cleanly, if it is running."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._forget()

    def kill(self) -> None:
        """Kill the JVM with SIGKILL and wait until main() has ended."""
        if self._process is not None:
            os.kill(self.java_pid, signal.SIGKILL)
            self._process.wait()
            self._forget()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _forget(self) -> None:
        if self._process is not None:
            _output(self._process).close()
            self._process = None


def main(host: str, port: int, data: Path, parent: int | None = None) -> int:
    """Run the broker in the foreground until a signal comes or its parent has ended."""
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
    """Start the JVM, print `ready` when it serves, wait until `ended`, stop it cleanly."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / "lock").open("a") as lock:
        _acquire(data, lock)
        port = port or free_port(host)
        if not is_free(host, port):
            raise BrokerFailed(
                f"cannot listen on {host}:{port}: the port is taken, or {host} is not an address "
                "of this machine; choose another --port or --host"
            )
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
    """Return a port that is free now; another process may take it before its use."""
    for port in random.sample(PORTS, 100):
        if is_free(host, port):
            return port
    raise BrokerFailed(f"no free port on {host} between {PORTS.start} and {PORTS.stop}")


def is_free(host: str, port: int) -> bool:
    """Return whether a process may listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _acquire(data: Path, lock: IO[str]) -> None:
    """Lock the data directory; the JVM of a killed broker may hold the lock for a moment."""
    deadline = time.monotonic() + BROKER_LOCK_SECONDS_MAX
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise BrokerFailed(
                    f"another broker is running on {data}; stop it, or name another directory with "
                    "--data"
                ) from None
            time.sleep(WATCH_SECONDS)


def _configure(host: str, port: int, data: Path) -> None:
    """Write the settings; format the data directory if it is new."""
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
    properties.touch(mode=0o600)  # the owner's settings may have passwords
    properties.write_text(settings)
    (data / "log4j2.properties").write_text(LOG4J.format(data=data))
    if (data / "log" / "meta.properties").exists():
        return
    cluster = cluster_id(uuid.uuid4().bytes)
    arguments = ["format", "--ignore-formatted", "-t", cluster, "-c", str(properties)]
    done = subprocess.run(
        [*_java_command(data, FORMAT_JVM), "kafka.tools.StorageTool", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BrokerFailed(f"cannot format {data}: {done.stderr or done.stdout}".strip())


def cluster_id(random: bytes) -> str:
    """Return a UUID as Kafka writes it, but never with a leading dash.

    Kafka's tool takes an id with a leading dash for an option, so one start in 64 failed.
    """
    letter_first = bytes([random[0] & 0x7F]) + random[1:]
    return base64.urlsafe_b64encode(letter_first).decode().rstrip("=")


def _java_command(data: Path, options: tuple[str, ...]) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={data}/log4j2.properties"
    return [str(java()), *options, logging, "-cp", broker_classpath()]


def _start(data: Path, lock: IO[str]) -> subprocess.Popen[bytes]:
    """Start the JVM, which inherits the lock."""
    main_pid = os.getpid()
    with (data / "java.out").open("wb") as output:
        process = subprocess.Popen(
            [*_java_command(data, JVM), "kafka.Kafka", str(data / "server.properties")],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that only main() gets a Ctrl-C
            pass_fds=(lock.fileno(),),
            preexec_fn=lambda: end_with_parent(main_pid),  # noqa: PLW1509 - main() has no threads
        )
    (data / "java.pid").write_text(str(process.pid))
    return process


def _await_ready(
    process: subprocess.Popen[bytes], address: str, data: Path, ended: Callable[[], bool]
) -> None:
    """Wait until the broker serves, and print `ready HOST:PORT`."""
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
    """Return whether the broker answers clients; an open port is not enough."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
        client = AdminClient({"bootstrap.servers": address, "log_level": 0})
        return bool(client.list_topics(timeout=2).brokers)
    except (OSError, KafkaException):
        return False


def _reason(process: subprocess.Popen[bytes], data: Path) -> str:
    """Return why the JVM ended: its last error, and the file with more."""
    logs = [data / "java.out", data / "broker.log"]
    lines = [line for log in logs if log.exists() for line in log.read_text().splitlines()]
    errors = [line for line in lines if re.search(r"ERROR|FATAL|Exception|Error:", line)]
    ended = f"the JVM ended with {process.returncode}, see {data}/broker.log"
    return f"{ended}; its last error: {errors[-1].strip()}" if errors else ended


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _output(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None  # a pipe
    return process.stdout


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="jobs.edge.process.broker")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("data", type=Path)
    parser.add_argument("--parent", type=int)
    options = parser.parse_args()
    sys.exit(main(options.host, options.port, options.data, options.parent))
