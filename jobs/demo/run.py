"""The demo in order: start, show, compare, stop.

1  start the broker, create the topics, start the service
2  put and start two jobs, start the shop's changes; wait until every job has an epoch
3  show results, until Ctrl-C, --seconds, or a failure
4  stop the changes; wait until the jobs have read all, stop them; they publish what they committed
5  fold the topic from its beginning, and compare it with the shop's own table; compare the second
   job's results with the same query over that table
6  stop everything, and delete the data unless --data was given
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from jobs.demo.feed import Feed
from jobs.demo.follower import BrokenChangelog, Epochs, Fold, Follower, Topic
from jobs.demo.guard import Guard
from jobs.demo.screen import Display, Lines, Screen
from jobs.demo.serving import Service, ServiceFailed
from jobs.demo.shop import Shop
from jobs.demo.specs import (
    PARTITIONS,
    SINK_TOPIC,
    SOURCE_TOPIC,
    SPECS,
    compute_ages,
    read_ages,
    read_items,
)
from jobs.demo.tour import list_stops
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker, BrokerFailed
from jobs.edge.process.jars import JarsMissing
from jobs.edge.process.java import JavaMissing
from schemas.table.object_path import TABLES_VARIABLE

RATE_DEFAULT = 400
FIRST_EPOCH_SECONDS_MAX = 180  # it takes some 20 s on an idle machine
CATCH_UP_SECONDS_MAX = 60

_UPDATE_SECONDS = 0.2
_CATCH_UP_POLL_SECONDS = 0.05
_CHECK_SECONDS = 1.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoFailed(Exception):
    """The demo cannot continue; the message says why."""


def main(argv: Sequence[str]) -> int:
    """Run the demo; return the exit code."""
    options = build_parser().parse_args(argv)
    console = Console(highlight=False, markup=False)
    if options.data is not None and options.data.exists() and any(options.data.iterdir()):
        print(f"demo: {options.data} is not empty; choose an empty directory", file=sys.stderr)
        return 2
    for number in _ENDING:
        signal.signal(number, _interrupt)
    try:
        with _open_directory(options.data) as data:
            return _Demo(console, data.absolute(), options).run()
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (
        DemoFailed,
        ServiceFailed,
        BrokerFailed,
        JarsMissing,
        JavaMissing,
        BrokenChangelog,
    ) as problem:
        print(f"demo: {problem}", file=sys.stderr)
        return 1


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="retally demo",
        description="Runs a broker, a changing source, the service, and two jobs.",
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="keep all data there (default: a temporary directory, deleted at the end)",
    )
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the shop's changes (1)")
    parser.add_argument(
        "--rate", type=int, default=RATE_DEFAULT, help=f"changes a second ({RATE_DEFAULT})"
    )
    return parser


class _Demo:
    """One run of the demo in one data directory."""

    def __init__(self, console: Console, data: Path, options: argparse.Namespace) -> None:
        self.console = console
        self.data = data
        self.options = options
        self.shop = Shop(seed=options.seed, partitions=PARTITIONS)

    def run(self) -> int:
        os.environ.pop(TABLES_VARIABLE, None)  # the demo shows and deletes tables on this disk
        with ExitStack() as running:
            try:
                return self._run(running)
            finally:
                for number in _ENDING:  # another Ctrl-C must not leave processes behind
                    signal.signal(number, signal.SIG_IGN)

    def _run(self, running: ExitStack) -> int:
        began = time.monotonic()
        guard = Guard(self.data)
        running.callback(guard.stop)
        broker = self._start_broker(running)
        service = Service(self.data, broker.address)
        running.callback(service.stop)
        self._print(f"service   {service.address}, its log in {self.data}/service.log")
        service.start_jobs()
        for spec in SPECS:
            self._print(f"job       {spec['name']}: {spec['query']}")
        feed = Feed(broker.address, SOURCE_TOPIC, self.shop, self.options.rate)
        running.callback(feed.close)
        feed.start()
        self._print(
            f"source    {SOURCE_TOPIC}, {PARTITIONS} partitions, {self.options.rate} changes/s, "
            f"seed {self.options.seed}"
        )
        follower = self._await_first_epochs(running, broker.address, service, feed)
        self._print(f"          every job has an epoch after {time.monotonic() - began:.1f} s")
        try:
            with self._open_display(service.address) as display:
                self._show(display, follower, feed, service)
        except KeyboardInterrupt:
            self._print("stopping; Ctrl-C again skips the comparison")
        exact = self._compare(broker.address, follower, feed, service)
        return 0 if exact else 1

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    # --- starting -----------------------------------------------------------------------------

    def _start_broker(self, running: ExitStack) -> Broker:
        began = time.monotonic()
        self._print(f"broker    a real Kafka broker, data in {self.data}/broker")
        broker = Broker(self.data / "broker")
        running.callback(broker.stop)
        broker.start()
        with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
            admin.ensure_topic(SOURCE_TOPIC, PARTITIONS, {})
            admin.ensure_topic(SINK_TOPIC, PARTITIONS, {})  # the second job starts beside the first
        seconds = time.monotonic() - began
        self._print(f"          ready in {seconds:.1f} s at {broker.address}")
        return broker

    def _await_first_epochs(
        self, running: ExitStack, brokers: str, service: Service, feed: Feed
    ) -> Follower:
        began = time.monotonic()
        while waiting := [name for name, epoch in service.read_epochs().items() if not epoch]:
            if time.monotonic() - began > FIRST_EPOCH_SECONDS_MAX:
                raise DemoFailed(
                    f"no epoch of {', '.join(waiting)} after {FIRST_EPOCH_SECONDS_MAX} s"
                )
            self._check(service, feed)
            time.sleep(_UPDATE_SECONDS)
        topic = Topic(brokers, SINK_TOPIC, PARTITIONS)
        running.callback(topic.close)
        return Follower(topic, Epochs(self.data / "jobs" / "items" / "epochs"))

    def _open_display(self, address: str) -> Display:
        hints = [f"open {address}/ or try in another terminal:"]
        for number, stop in enumerate(list_stops(address), 1):
            hints += [f"{number}  {stop.title}", f"   {stop.line}"]
        if self.console.is_terminal:
            return Screen(self.console, hints)
        for hint in hints:
            self._print(hint)
        return Lines(self.console)

    # --- showing ------------------------------------------------------------------------------

    def _show(self, display: Display, follower: Follower, feed: Feed, service: Service) -> None:
        began = checked = time.monotonic()
        while self.options.seconds is None or time.monotonic() - began < self.options.seconds:
            follower.update(_UPDATE_SECONDS)
            display.show(follower, follower.epochs.count_unread(SOURCE_TOPIC, feed.sent))
            if time.monotonic() - checked > _CHECK_SECONDS:
                self._check(service, feed)
                checked = time.monotonic()

    def _check(self, service: Service, feed: Feed) -> None:
        if feed.failure is not None:
            raise DemoFailed(f"the source failed: {feed.failure}")
        service.check()

    # --- comparing ----------------------------------------------------------------------------

    def _compare(self, brokers: str, follower: Follower, feed: Feed, service: Service) -> bool:
        """Stop the changes; return whether topic and results equal the shop's own table."""
        feed.stop()
        truth = self.shop.compute_truth()
        deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
        while behind := follower.epochs.count_unread(SOURCE_TOPIC, feed.sent):
            if time.monotonic() > deadline:
                raise DemoFailed(f"the job is still {behind} messages behind")
            self._check(service, feed)
            time.sleep(_CATCH_UP_POLL_SECONDS)
            follower.epochs.update()
        ages = compute_ages(truth)
        while read_ages(service.read_rows("ages")) != ages and time.monotonic() < deadline:
            time.sleep(_UPDATE_SECONDS)
        chained = read_ages(service.read_rows("ages"))
        service.stop_jobs()
        fold = _fold_topic(brokers)
        items = read_items(list(fold.results.values()))
        self._print(_describe_verdict("groups", "the source's own table", items, truth))
        self._print(_describe_verdict("windows", "the same query over them", chained, ages))
        self._print(
            f"       {sum(feed.sent):,} messages, {follower.epochs.number} epochs, {fold.rows:,} "
            f"changelog rows, {follower.epochs.quarantined} messages in quarantine",
        )
        if self.options.data is not None:
            self._print(f"data   in {self.data}")
        return items == truth and chained == ages


def _fold_topic(brokers: str) -> Fold:
    """Fold the whole topic from its beginning, as a new consumer would."""
    topic, fold = Topic(brokers, SINK_TOPIC, PARTITIONS), Fold()
    try:
        while not topic.is_at_end():
            for key, record in topic.read_records(_UPDATE_SECONDS):
                fold.apply(key, record)
    finally:
        topic.close()
    return fold


def _describe_verdict(
    kind: str, what: str, found: Mapping[str, Any], truth: Mapping[str, Any]
) -> str:
    if found == truth:
        return f"exact: {len(truth)} {kind} equal {what}"
    names = sorted(set(found) | set(truth))
    wrong = [name for name in names if found.get(name) != truth.get(name)]
    first = wrong[0]
    return (
        f"WRONG: {len(wrong)} of {len(names)} {kind} differ from {what}; "
        f"{first} is {found.get(first)}, should be {truth.get(first)}"
    )


# --- the directory, and signals -----------------------------------------------------------------


@contextmanager
def _open_directory(wanted: Path | None) -> Iterator[Path]:
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted
        return
    data = Path(tempfile.mkdtemp(prefix="retally-demo-"))
    try:
        yield data
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
