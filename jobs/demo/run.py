"""The demo in order: start, show, compare, stop.

1  start the broker, create the topics, start the service
2  put and start two jobs, start the shop's changes; wait until every job has an epoch
3  show results, until Ctrl-C, --seconds, or a failure
4  stop the changes; resume what a visitor paused; wait until the jobs have read all; stop them, and
   they publish what they committed
5  fold the topic from its beginning, and compare it with the shop's own table; compare the second
   job's results with the same query over that table
6  stop everything, and delete the data unless --data was given; after a failure its logs are kept

Every wait lasts as long as something moves (jobs.demo.patience): a busy machine only takes longer.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from jobs.demo.feed import Feed
from jobs.demo.follower import Epochs, Fold, Follower, Topic
from jobs.demo.guard import Guard, measure_cpu_seconds
from jobs.demo.logs import keep_logs
from jobs.demo.narrator import Narrator
from jobs.demo.patience import DemoFailed, Patience
from jobs.demo.screen import Display, Lines, Screen
from jobs.demo.serving import PORT, Service, describe_states, find_free_port
from jobs.demo.shop import BAD_IN_A_THOUSAND, Shop
from jobs.demo.specs import (
    PARTITIONS,
    SINK_TOPIC,
    SOURCE_TOPIC,
    SPECS,
    Ages,
    compute_ages,
    read_ages,
    read_items,
)
from jobs.demo.tour import list_stops
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from schemas.table.object_path import TABLES_VARIABLE

RATE_DEFAULT = 400
_UPDATE_SECONDS = 0.2
_CATCH_UP_POLL_SECONDS = 0.05
_CHECK_SECONDS = 1.0
_WORK_SECONDS = 30  # of the processor: an idle job takes a fifth of it while patience lasts
# The second job's results still differ from the truth, it has read all, and nothing moves: WRONG.
_SETTLED_SECONDS = 60.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str]) -> int:
    """Run the demo; return the exit code."""
    options = build_parser().parse_args(argv)
    console = Console(highlight=False, markup=False)
    wanted: Path | None = options.data
    if wanted is not None and wanted.exists() and not (wanted.is_dir() and _is_empty(wanted)):
        print(f"demo: {wanted} is not empty; choose an empty directory", file=sys.stderr)
        return 2
    for number in _ENDING:
        signal.signal(number, _interrupt)
    data = wanted or Path(tempfile.mkdtemp(prefix="retally-demo-"))
    data.mkdir(parents=True, exist_ok=True)
    try:
        exact = _Demo(console, data.absolute(), options).run()
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        exact = True
    except KeyboardInterrupt:
        _discard(data, wanted)
        return 130
    except Exception as problem:
        own = type(problem).__module__.startswith("jobs.")
        print(f"demo: {'' if own else type(problem).__name__ + ': '}{problem}", file=sys.stderr)
        kept = data if wanted is not None else keep_logs(data)
        print(f"demo: the logs of its processes are kept in {kept}", file=sys.stderr)
        return 1
    if exact:
        _discard(data, wanted)
        return 0
    print(f"demo: this is a bug; please report it, with {data}", file=sys.stderr)
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
    parser.add_argument(
        "--port",
        type=int,
        default=PORT,
        metavar="P",
        help=f"the console's port, or the next free one ({PORT})",
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
        self.narrator = Narrator(console)
        self.data = data
        self.options = options
        self.shop = Shop(seed=options.seed, partitions=PARTITIONS)

    def run(self) -> bool:
        """Run the demo; return whether its results were exact."""
        os.environ.pop(TABLES_VARIABLE, None)  # the demo shows and deletes tables on this disk
        with ExitStack() as running:
            try:
                return self._run(running)
            finally:
                for number in _ENDING:  # another Ctrl-C must not leave processes behind
                    signal.signal(number, signal.SIG_IGN)

    def _run(self, running: ExitStack) -> bool:
        began = time.monotonic()
        guard = Guard.start(self.data)
        running.callback(guard.stop)
        broker = self._start_broker(running)
        service = self._start_service(running, broker.address)
        feed = self._start_jobs(running, broker.address, service)
        follower = self._await_first_epochs(running, broker.address, service, feed)
        self._print(f"          every job has an epoch after {time.monotonic() - began:.1f} s")
        try:
            with self._open_display(service.address) as display:
                self._show(display, follower, feed, service)
        except KeyboardInterrupt:
            self._print("stopping; Ctrl-C again skips the comparison")
        return self._compare(broker.address, follower, feed, service)

    def _print(self, text: str) -> None:
        self.narrator.emit(text)

    # --- starting -----------------------------------------------------------------------------

    def _start_broker(self, running: ExitStack) -> Broker:
        began = time.monotonic()
        with self.narrator.phase("broker", f"a real Kafka broker, data in {self.data}/broker"):
            broker = Broker(self.data / "broker")
            running.callback(broker.stop)
            broker.start()
            with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
                admin.ensure_topic(SOURCE_TOPIC, PARTITIONS, {})
                # The second job starts beside the first.
                admin.ensure_topic(SINK_TOPIC, PARTITIONS, {})
        seconds = time.monotonic() - began
        self._print(f"          broker ready in {seconds:.1f} s at {broker.address}")
        return broker

    def _start_service(self, running: ExitStack, brokers: str) -> Service:
        began, port = time.monotonic(), find_free_port(self.options.port)
        if port != self.options.port:
            self._print(f"          port {self.options.port} is taken; {port} is free")
        with self.narrator.phase("service", f"starting, its log in {self.data}/service.log"):
            service = Service.start(self.data, brokers, port)
            running.callback(service.stop)
        self._print(f"          service ready in {time.monotonic() - began:.1f} s")
        self.narrator.invite(service.address)
        return service

    def _start_jobs(self, running: ExitStack, brokers: str, service: Service) -> Feed:
        service.start_jobs()
        for spec in SPECS:
            self._print(f"job       {spec['name']}: {spec['query']}")
        feed = Feed(brokers, SOURCE_TOPIC, self.shop, self.options.rate)
        running.callback(feed.close)
        feed.start()
        self._print(
            f"source    {SOURCE_TOPIC}, {PARTITIONS} partitions, {self.options.rate} changes/s, "
            f"seed {self.options.seed}"
        )
        self._print(
            f"          {BAD_IN_A_THOUSAND} messages in 1,000 are bad on purpose: they go to "
            "quarantine, not into results"
        )
        return feed

    def _await_first_epochs(
        self, running: ExitStack, brokers: str, service: Service, feed: Feed
    ) -> Follower:
        patience = Patience()
        with self.narrator.phase("jobs", "starting Spark for each, some 20 s") as report:
            while not all(job.epoch for job in service.list_jobs()):
                states = describe_states(service.list_jobs())
                report(states)
                sign = states, self._measure_work()
                patience.require(sign, f"not every job has an epoch: {states}")
                self._check(service, feed)
                service.resume_jobs()
                time.sleep(_UPDATE_SECONDS)
        topic = Topic(brokers, SINK_TOPIC, PARTITIONS)
        running.callback(topic.close)
        return Follower(topic, Epochs(self.data / "jobs" / "items" / "epochs"))

    def _open_display(self, address: str) -> Display:
        hints = [f"open {address}/ or try in another terminal; Ctrl-C compares and ends:"]
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

    def _measure_work(self) -> int:
        """Return a number that grows while processes work, and stays while they only wait."""
        return int(measure_cpu_seconds(str(self.data)) // _WORK_SECONDS)

    def _check(self, service: Service, feed: Feed) -> None:
        if feed.failure is not None:
            raise DemoFailed(f"the source failed: {feed.failure}")
        service.check()

    # --- comparing ----------------------------------------------------------------------------

    def _compare(self, brokers: str, follower: Follower, feed: Feed, service: Service) -> bool:
        """Stop the changes; return whether topic and results equal the shop's own table."""
        feed.stop()
        truth = self.shop.compute_truth()
        self._await_lag(follower, feed, service)
        if foreign := _count_records(brokers, SOURCE_TOPIC) - sum(feed.sent):
            self._stop_jobs(service)
            self._print(
                f"not compared: {SOURCE_TOPIC} has records that the demo's source did not send "
                f"({foreign:,}), for example resent messages"
            )
            return True
        ages = compute_ages(truth)
        chained = self._await_ages(service, feed, ages)
        self._stop_jobs(service)
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

    def _stop_jobs(self, service: Service) -> None:
        with self.narrator.phase("stopping", "the jobs publish what they committed") as report:
            service.stop_jobs(report)

    def _await_lag(self, follower: Follower, feed: Feed, service: Service) -> None:
        """Wait until the first job has read all messages, for as long as its lag falls."""
        patience = Patience()
        with self.narrator.phase("lag", "reading the rest") as report:
            while behind := follower.epochs.count_unread(SOURCE_TOPIC, feed.sent):
                self._check(service, feed)
                for name in service.resume_jobs():
                    self._print(f"          {name} was paused: it resumes, to be compared")
                states = describe_states(service.list_jobs())
                report(f"{behind:,} messages to go, {states}")
                sign = behind, states, self._measure_work()
                patience.require(sign, f"items is still {behind:,} messages behind")
                time.sleep(_UPDATE_SECONDS)
                follower.epochs.update()

    def _await_ages(self, service: Service, feed: Feed, ages: Ages) -> Ages:
        """Wait until the second job has the truth; return its results, also if it settles wrong."""
        patience = Patience()
        with self.narrator.phase("lag", "the second job reads the first one's changes") as report:
            while (found := read_ages(service.read_rows("ages"))) != ages:
                self._check(service, feed)
                service.resume_jobs()
                job = service.list_jobs()[-1]
                left = None if job.lag is None else job.lag.records
                sign = describe_states([job]), left
                report(f"{'?' if left is None else f'{left:,}'} messages to go, {sign[0]}")
                patience.require(sign, "the job ages does not catch up")
                if left == 0 and patience.observe(sign) > _SETTLED_SECONDS:
                    break
                time.sleep(_UPDATE_SECONDS)
        return found


def _count_records(brokers: str, name: str) -> int:
    topic = Topic(brokers, name, PARTITIONS)
    try:
        return topic.count_records()
    finally:
        topic.close()


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


def _is_empty(directory: Path) -> bool:
    return not any(directory.iterdir())


def _discard(data: Path, wanted: Path | None) -> None:
    """Delete the data of a demo that has ended, unless the user named its directory."""
    if wanted is None:
        shutil.rmtree(data, ignore_errors=True)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
