"""The demo, in order: start, show, and settle the account.

1  broker                     ready in .. s
2  topic, job as a process
3  the shop's changes begin   first epoch in .. s
4  show, until Ctrl-C, --seconds, or a failure
5  changes stop; the job takes in the rest, is told to end, and publishes all it committed
6  the topic, folded from its beginning, is compared with the shop's own table
7  everything that was started is ended, and the data is deleted unless --data named its place
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

import yaml
from rich.console import Console

from jobs.demo.feed import Feed
from jobs.demo.follower import BrokenChangelog, Epochs, Fold, Follower, Topic
from jobs.demo.screen import Display, Lines, Screen
from jobs.demo.shop import TABLE_COLUMNS, Shop, Truth
from jobs.edge.broker import Broker, BrokerFailed
from jobs.edge.jars import JarsMissing
from jobs.edge.java import JavaMissing
from jobs.edge.kafka_admin import KafkaAdmin

SOURCE_TOPIC, SINK_TOPIC, PARTITIONS = "shop.product", "items-changes", 4
SPEC = {
    "name": "items",
    "source": {"topic": SOURCE_TOPIC, "database": "shop", "table": "product"},
    "columns": TABLE_COLUMNS,
    "query": "SELECT name, SUM(cnt), MAX(cnt) AS top, COUNT(*) AS n FROM product GROUP BY name",
    "minibatch": {"size": 5000, "latency": "1s"},
    "sink": {"topic": SINK_TOPIC, "partitions": PARTITIONS},
}
RATE_DEFAULT = 400
FIRST_EPOCH_SECONDS_MAX = 180  # some ten on an idle machine
CATCH_UP_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60
END_SECONDS_MAX = 20  # of a job whose results nobody waits for
LOG_LINES_SHOWN = 15

_LOOK_SECONDS = 0.2
_SETTLE_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoFailed(Exception):
    """Something that the demo needs did not work; the message says what."""


def main(argv: Sequence[str]) -> int:
    wishes = arguments().parse_args(argv)
    console = Console(highlight=False, markup=False)
    if wishes.data is not None and wishes.data.exists() and any(wishes.data.iterdir()):
        print(f"demo: {wishes.data} is not empty; name a directory of its own", file=sys.stderr)
        return 2
    for number in _ENDING:
        signal.signal(number, _interrupt)
    try:
        with _directory(wishes.data) as data:
            return _Demo(console, data.absolute(), wishes).run()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (DemoFailed, BrokerFailed, JarsMissing, JavaMissing, BrokenChangelog) as problem:
        print(f"demo: {problem}", file=sys.stderr)
        return 1


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="retally demo", description="A broker, a living source, a job, and what it gives."
    )
    parser.add_argument("--data", type=Path, help="keep everything there (default: a temporary "
                        "directory, deleted at the end)")  # fmt: skip
    parser.add_argument("--seconds", type=float, help="end by itself after so long")
    parser.add_argument("--seed", type=int, default=1, help="which changes the shop makes")
    parser.add_argument(
        "--rate", type=int, default=RATE_DEFAULT, help=f"changes a second ({RATE_DEFAULT})"
    )
    return parser


class _Demo:
    """One run of the demo in one data directory."""

    def __init__(self, console: Console, data: Path, wishes: argparse.Namespace) -> None:
        self.console = console
        self.data = data
        self.wishes = wishes
        self.shop = Shop(seed=wishes.seed, partitions=PARTITIONS)

    def run(self) -> int:
        with ExitStack() as running:
            try:
                return self._run(running)
            finally:
                for number in _ENDING:  # what was started is ended, however often one asks
                    signal.signal(number, signal.SIG_IGN)

    def _run(self, running: ExitStack) -> int:
        broker = self._broker(running)
        job = self._job(running, broker.address)
        feed = Feed(broker.address, SOURCE_TOPIC, self.shop, self.wishes.rate)
        running.callback(feed.close)
        feed.start()
        follower = self._first_epoch(running, broker.address, job, feed)
        try:
            with self._display(broker.address) as display:
                self._show(display, follower, feed, job)
        except KeyboardInterrupt:
            self._say("ending; Ctrl-C once more skips the comparison")
        exact = self._settled(broker.address, follower, feed, job)
        return 0 if exact else 1

    def _say(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    # --- starting -----------------------------------------------------------------------------

    def _broker(self, running: ExitStack) -> Broker:
        began = time.monotonic()
        self._say(f"broker    a real Kafka broker, data in {self.data}/broker")
        broker = Broker(self.data / "broker")
        running.callback(broker.stop)
        broker.start()
        with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
            admin.ensure_topic(SOURCE_TOPIC, PARTITIONS, {})
        seconds = time.monotonic() - began
        self._say(f"          ready in {seconds:.1f} s at {broker.address}")
        return broker

    def _job(self, running: ExitStack, brokers: str) -> subprocess.Popen[bytes]:
        """Before any thread exists here, so that the child may be tied to this process."""
        spec = self.data / "items.yaml"
        spec.write_text(yaml.safe_dump(SPEC, sort_keys=False))
        self._say(f"job       items: {SPEC['query']}")
        with self._log.open("wb") as log:
            job = subprocess.Popen(
                job_command(spec, self.data, brokers),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours; the job is told when all is read
                preexec_fn=_tie_to(os.getpid()),  # noqa: PLW1509
            )
        running.callback(_end, job)
        return job

    def _first_epoch(
        self, running: ExitStack, brokers: str, job: subprocess.Popen[bytes], feed: Feed
    ) -> Follower:
        self._say(
            f"source    {SOURCE_TOPIC}, {PARTITIONS} partitions, {self.wishes.rate} changes/s, "
            f"seed {self.wishes.seed}"
        )
        began = time.monotonic()
        epochs = Epochs(self.data / "jobs" / "items" / "epochs")
        while epochs.number == 0:
            if time.monotonic() - began > FIRST_EPOCH_SECONDS_MAX:
                raise DemoFailed(f"no epoch after {FIRST_EPOCH_SECONDS_MAX} s\n{self._last_words}")
            self._check(job, feed)
            time.sleep(_LOOK_SECONDS)
            epochs.look()
        self._say(f"          first epoch in {time.monotonic() - began:.1f} s")
        # The publisher has made its topic before the first epoch is committed.
        topic = Topic(brokers, SINK_TOPIC, PARTITIONS)
        running.callback(topic.close)
        return Follower(topic, epochs)

    def _display(self, brokers: str) -> Display:
        hints = _hints(self.data, brokers)
        if self.console.is_terminal:
            return Screen(self.console, hints)
        for hint in hints:
            self._say(hint)
        return Lines(self.console)

    # --- showing ------------------------------------------------------------------------------

    def _show(
        self, display: Display, follower: Follower, feed: Feed, job: subprocess.Popen[bytes]
    ) -> None:
        began = time.monotonic()
        while self.wishes.seconds is None or time.monotonic() - began < self.wishes.seconds:
            follower.look(_LOOK_SECONDS)
            display.show(follower, follower.epochs.behind(SOURCE_TOPIC, feed.sent))
            self._check(job, feed)

    def _check(self, job: subprocess.Popen[bytes], feed: Feed) -> None:
        if feed.failure is not None:
            raise DemoFailed(f"the source could not go on: {feed.failure}")
        status = job.poll()
        if status is not None:
            raise DemoFailed(f"the job ended with status {status}\n{self._last_words}")

    @property
    def _log(self) -> Path:
        return self.data / "job.log"

    @property
    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(["the end of its log:", *lines[-LOG_LINES_SHOWN:]])

    # --- settling -----------------------------------------------------------------------------

    def _settled(
        self, brokers: str, follower: Follower, feed: Feed, job: subprocess.Popen[bytes]
    ) -> bool:
        """Whether the topic and the shop's own table say the same, at the last change."""
        feed.stop()
        deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
        while behind := follower.epochs.behind(SOURCE_TOPIC, feed.sent):
            if time.monotonic() > deadline:
                raise DemoFailed(f"the job is still {behind} messages behind\n{self._last_words}")
            self._check(job, feed)
            time.sleep(_SETTLE_SECONDS)
            follower.epochs.look()
        job.terminate()  # it publishes what it has committed before it ends
        if job.wait(STOP_SECONDS_MAX) != 0:
            self._check(job, feed)
        fold = _folded(brokers)
        told = {row["name"]: (row["sum_cnt"], row["top"], row["n"])
                for row in fold.results.values()}  # fmt: skip
        self._say(_verdict(told, self.shop.truth()))
        self._say(
            f"       {sum(feed.sent):,} messages, {follower.epochs.number} epochs, {fold.rows:,} "
            f"changelog rows, {follower.epochs.quarantined} messages in quarantine",
        )
        if self.wishes.data is not None:
            self._say(f"data   in {self.data}")
        return told == self.shop.truth()


def job_command(spec: Path, data: Path, brokers: str) -> list[str]:
    run = ["run", str(spec), "--data", str(data), "--brokers", brokers]
    return [sys.executable, "-m", "jobs.command", *run]


def _hints(data: Path, brokers: str) -> list[str]:
    command = Path(sys.executable).with_name("retally")
    with suppress(ValueError):
        command = command.relative_to(Path.cwd())
    return [
        f"try in another terminal (brokers: {brokers}):",
        f"  {command} results items --data {data}",
        f"  {command} changes items --data {data} --follow",
        f"  {command} explain items '\"bolt\"' --data {data}",
    ]


def _folded(brokers: str) -> Fold:
    """The whole topic, read once more from its beginning, as a new consumer would."""
    topic, fold = Topic(brokers, SINK_TOPIC, PARTITIONS), Fold()
    try:
        while not topic.at_end():
            for key, record in topic.records(_LOOK_SECONDS):
                fold.apply(key, record)
    finally:
        topic.close()
    return fold


def _verdict(told: Truth, truth: Truth) -> str:
    if told == truth:
        return f"exact: {len(truth)} groups equal the source's own table"
    names = sorted(set(told) | set(truth))
    wrong = [name for name in names if told.get(name) != truth.get(name)]
    first = wrong[0]
    return (
        f"WRONG: {len(wrong)} of {len(names)} groups differ from the source's own table; "
        f"{first} is {told.get(first)}, should be {truth.get(first)}"
    )


# --- what is started is ended -------------------------------------------------------------------


@contextmanager
def _directory(wanted: Path | None) -> Iterator[Path]:
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted
        return
    data = Path(tempfile.mkdtemp(prefix="retally-demo-"))
    try:
        yield data
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _end(job: subprocess.Popen[bytes]) -> None:
    """A job that still runs is asked first, so that it takes its scratch files away."""
    if job.poll() is not None:
        return
    job.terminate()
    try:
        job.wait(END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)  # its JVM too; the publisher sees it and ends
        job.wait()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tie_to(parent: int) -> Callable[[], None] | None:
    """On Linux: have the kernel kill the job when the demo ends, by kill -9 too."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return tie


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
