"""The demo, in order: start, show, and settle the account.

1  broker, topic, service
2  two jobs through the service, the shop's changes    every job has an epoch in .. s
3  show, until Ctrl-C, --seconds, or a failure
4  changes stop; the jobs take in the rest, are told to end, and publish all they committed
5  the topic, folded from its beginning, is compared with the shop's own table; the second job's
   results with what they must be for it
6  everything that was started is ended, and the data is deleted unless --data named its place
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
    ages_of,
    ages_told,
    items_told,
)
from jobs.demo.tour import tour
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker, BrokerFailed
from jobs.edge.process.jars import JarsMissing
from jobs.edge.process.java import JavaMissing
from schemas.table.object_path import TABLES_VARIABLE

RATE_DEFAULT = 400
FIRST_EPOCH_SECONDS_MAX = 180  # some twenty on an idle machine
CATCH_UP_SECONDS_MAX = 60

_LOOK_SECONDS = 0.2
_SETTLE_SECONDS = 0.05
_CHECK_SECONDS = 1.0
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
    except (
        DemoFailed, ServiceFailed, BrokerFailed, JarsMissing, JavaMissing, BrokenChangelog,
    ) as problem:  # fmt: skip
        print(f"demo: {problem}", file=sys.stderr)
        return 1


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="retally demo", description="A broker, a living source, the service, and two jobs."
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
        os.environ.pop(TABLES_VARIABLE, None)  # what it shows and removes lies on this disk
        with ExitStack() as running:
            try:
                return self._run(running)
            finally:
                for number in _ENDING:  # what was started is ended, however often one asks
                    signal.signal(number, signal.SIG_IGN)

    def _run(self, running: ExitStack) -> int:
        began = time.monotonic()
        guard = Guard(self.data)
        running.callback(guard.stop)
        broker = self._broker(running)
        service = Service(self.data, broker.address)
        running.callback(service.stop)
        self._say(f"service   {service.address}, its log in {self.data}/service.log")
        service.begin()
        for spec in SPECS:
            self._say(f"job       {spec['name']}: {spec['query']}")
        feed = Feed(broker.address, SOURCE_TOPIC, self.shop, self.wishes.rate)
        running.callback(feed.close)
        feed.start()
        self._say(
            f"source    {SOURCE_TOPIC}, {PARTITIONS} partitions, {self.wishes.rate} changes/s, "
            f"seed {self.wishes.seed}"
        )
        follower = self._first_epochs(running, broker.address, service, feed)
        self._say(f"          all green after {time.monotonic() - began:.1f} s")
        try:
            with self._display(service.address) as display:
                self._show(display, follower, feed, service)
        except KeyboardInterrupt:
            self._say("ending; Ctrl-C once more skips the comparison")
        exact = self._settled(broker.address, follower, feed, service)
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
            admin.ensure_topic(SINK_TOPIC, PARTITIONS, {})  # the second job starts beside the first
        seconds = time.monotonic() - began
        self._say(f"          ready in {seconds:.1f} s at {broker.address}")
        return broker

    def _first_epochs(
        self, running: ExitStack, brokers: str, service: Service, feed: Feed
    ) -> Follower:
        began = time.monotonic()
        while waiting := [name for name, epoch in service.epochs().items() if not epoch]:
            if time.monotonic() - began > FIRST_EPOCH_SECONDS_MAX:
                raise DemoFailed(
                    f"no epoch of {', '.join(waiting)} after {FIRST_EPOCH_SECONDS_MAX} s"
                )
            self._check(service, feed)
            time.sleep(_LOOK_SECONDS)
        topic = Topic(brokers, SINK_TOPIC, PARTITIONS)
        running.callback(topic.close)
        return Follower(topic, Epochs(self.data / "jobs" / "items" / "epochs"))

    def _display(self, address: str) -> Display:
        hints = [f"open {address}/ or try in another terminal:"]
        for number, stop in enumerate(tour(address), 1):
            hints += [f"{number}  {stop.title}", f"   {stop.line}"]
        if self.console.is_terminal:
            return Screen(self.console, hints)
        for hint in hints:
            self._say(hint)
        return Lines(self.console)

    # --- showing ------------------------------------------------------------------------------

    def _show(self, display: Display, follower: Follower, feed: Feed, service: Service) -> None:
        began = checked = time.monotonic()
        while self.wishes.seconds is None or time.monotonic() - began < self.wishes.seconds:
            follower.look(_LOOK_SECONDS)
            display.show(follower, follower.epochs.behind(SOURCE_TOPIC, feed.sent))
            if time.monotonic() - checked > _CHECK_SECONDS:
                self._check(service, feed)
                checked = time.monotonic()

    def _check(self, service: Service, feed: Feed) -> None:
        if feed.failure is not None:
            raise DemoFailed(f"the source could not go on: {feed.failure}")
        service.check()

    # --- settling -----------------------------------------------------------------------------

    def _settled(self, brokers: str, follower: Follower, feed: Feed, service: Service) -> bool:
        """Whether topic and results say what the shop's own table says, at the last change."""
        feed.stop()
        truth = self.shop.truth()
        deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
        while behind := follower.epochs.behind(SOURCE_TOPIC, feed.sent):
            if time.monotonic() > deadline:
                raise DemoFailed(f"the job is still {behind} messages behind")
            self._check(service, feed)
            time.sleep(_SETTLE_SECONDS)
            follower.epochs.look()
        ages = ages_of(truth)
        while ages_told(service.rows("ages")) != ages and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        chained = ages_told(service.rows("ages"))
        service.end_jobs()
        fold = _folded(brokers)
        told = items_told(list(fold.results.values()))
        self._say(_verdict("groups", "the source's own table", told, truth))
        self._say(_verdict("windows", "the same query over them", chained, ages))
        self._say(
            f"       {sum(feed.sent):,} messages, {follower.epochs.number} epochs, {fold.rows:,} "
            f"changelog rows, {follower.epochs.quarantined} messages in quarantine",
        )
        if self.wishes.data is not None:
            self._say(f"data   in {self.data}")
        return told == truth and chained == ages


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


def _verdict(kind: str, what: str, told: Mapping[str, Any], truth: Mapping[str, Any]) -> str:
    if told == truth:
        return f"exact: {len(truth)} {kind} equal {what}"
    names = sorted(set(told) | set(truth))
    wrong = [name for name in names if told.get(name) != truth.get(name)]
    first = wrong[0]
    return (
        f"WRONG: {len(wrong)} of {len(names)} {kind} differ from {what}; "
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


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
