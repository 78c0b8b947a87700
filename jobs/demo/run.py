"""The demo in order: start, show, compare, stop.

1  start the broker, create the topics, start the service
2  put and start two jobs, start the shop's changes; wait until every job has an epoch
3  show results, until Ctrl-C, --seconds, or a failure
4  stop the changes; resume what a visitor paused; wait until the jobs have read all; stop them, and
   they publish what they committed
5  fold the topic from its beginning, and compare it with the shop's own table; compare the second
   job's results with the same query over that table
6  stop everything, and delete the data unless --data was given; after a failure its logs are kept

Every wait lasts as long as something moves (`Patience`): a busy machine only takes longer.
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

from jobs.demo.follower import Epochs, Fold, Topic
from jobs.demo.guard import Guard
from jobs.demo.screen import open_display
from jobs.demo.serving import PORT, Service, describe_states, find_free_port
from jobs.demo.shop import BAD_IN_A_THOUSAND, Shop
from jobs.demo.source import RATE_DEFAULT, Feed, make_changes
from jobs.demo.specs import (
    PARTITIONS,
    SINK_TOPIC,
    SOURCE_TOPIC,
    SPECS,
    TOUR,
    Ages,
    compute_ages,
    read_ages,
    read_items,
)
from jobs.demo.waiting import DemoFailed, Patience, keep_logs, phase
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from schemas.table.object_path import TABLES_VARIABLE

_UPDATE_SECONDS = 0.2
# The second job's results still differ from the truth, it has read all, and nothing moves: WRONG.
_SETTLED_SECONDS = 60.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str]) -> int:
    """Run the demo; return the exit code."""
    options = build_parser().parse_args(argv)
    wanted: Path | None = options.data
    if wanted is not None and wanted.exists() and not (wanted.is_dir() and _is_empty(wanted)):
        print(f"demo: {wanted} is not empty; choose an empty directory", file=sys.stderr)
        return 2
    for number in _ENDING:
        signal.signal(number, _interrupt)
    data = wanted or Path(tempfile.mkdtemp(prefix="retally-demo-"))
    data.mkdir(parents=True, exist_ok=True)
    try:
        exact = _Demo(data.absolute(), options).run()
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

    def __init__(self, data: Path, options: argparse.Namespace) -> None:
        self.console = Console(highlight=False, markup=False)
        self.data = data
        self.options = options
        self.shop = Shop(seed=options.seed, partitions=PARTITIONS)
        self.epochs = Epochs(data / "jobs" / "items" / "epochs")
        self.running = ExitStack()
        self.brokers: str
        self.service: Service
        self.feed: Feed

    def run(self) -> bool:
        """Run the demo; return whether its results were exact."""
        os.environ.pop(TABLES_VARIABLE, None)  # the demo shows and deletes tables on this disk
        with self.running:
            try:
                began = time.monotonic()
                self._start()
                self._await_first_epochs()
                self._print(f"          every job has an epoch after {_since(began)}")
                try:
                    self._show()
                except KeyboardInterrupt:
                    self._print("stopping; Ctrl-C again skips the comparison")
                return self._compare()
            finally:
                for number in _ENDING:  # another Ctrl-C must not leave processes behind
                    signal.signal(number, signal.SIG_IGN)

    def _print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    # --- starting -----------------------------------------------------------------------------

    def _start(self) -> None:
        self.running.callback(Guard.start(self.data).stop)
        began = time.monotonic()
        with phase(self.console, "broker", f"a real Kafka broker, data in {self.data}/broker"):
            broker = Broker(self.data / "broker")
            self.running.callback(broker.stop)
            broker.start()
            with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
                for topic in (SOURCE_TOPIC, SINK_TOPIC):  # the jobs start at the same time
                    admin.ensure_topic(topic, PARTITIONS, {})
        self.brokers = broker.address
        self._print(f"          broker ready in {_since(began)} at {broker.address}")
        began, port = time.monotonic(), find_free_port(self.options.port)
        if port != self.options.port:
            self._print(f"          port {self.options.port} is taken; {port} is free")
        with phase(self.console, "service", f"starting, its log in {self.data}/service.log"):
            self.service = Service.start(self.data, self.brokers, port)
            self.running.callback(self.service.stop)
        self._print(f"          service ready in {_since(began)}")
        self.console.print(f"\nopen {self.service.address}/ now\n", style="bold", soft_wrap=True)
        self.service.start_jobs()
        for spec in SPECS:
            self._print(f"job       {spec['name']}: {spec['query']}")
        self.feed = Feed(self.brokers, make_changes(self.shop, {}), self.options.rate)
        self.running.callback(self.feed.close)
        self.feed.start()
        self._print(
            f"source    {SOURCE_TOPIC}, {PARTITIONS} partitions, {self.options.rate} changes/s, "
            f"seed {self.options.seed}\n          {BAD_IN_A_THOUSAND} messages in 1,000 are bad "
            "on purpose: they go to quarantine, not into results"
        )

    def _await_first_epochs(self) -> None:
        patience = Patience()
        with phase(self.console, "jobs", "starting Spark for each, some 20 s") as report:
            while not all(job.epoch for job in self.service.list_jobs()):
                states = describe_states(self.service.list_jobs())
                report(states)
                patience.require(states, f"not every job has an epoch: {states}")
                self._check()
                self.service.resume_jobs()
                time.sleep(_UPDATE_SECONDS)

    # --- showing ------------------------------------------------------------------------------

    def _show(self) -> None:
        address, fold = self.service.address, Fold()
        hints = [f"open {address}/ or try in another terminal; Ctrl-C compares and ends:"]
        for number, (title, line) in enumerate(TOUR.items(), 1):
            hints += [f"{number}  {title}", f"   {line.format(jobs=f'{address}/v1/jobs')}"]
        began, seconds = time.monotonic(), self.options.seconds
        with (
            Topic(self.brokers, SINK_TOPIC, PARTITIONS) as topic,
            open_display(self.console, hints) as show,
        ):
            while seconds is None or time.monotonic() - began < seconds:
                fold.read(topic, _UPDATE_SECONDS)
                self.epochs.update()
                show(fold, self.epochs.describe(SOURCE_TOPIC, self.feed.sent))
                self._check()

    def _check(self) -> None:
        if self.feed.failure is not None:
            raise DemoFailed(f"the source failed: {self.feed.failure}")
        self.service.check()

    # --- comparing ----------------------------------------------------------------------------

    def _compare(self) -> bool:
        """Stop the changes; return whether topic and results equal the shop's own table."""
        self.feed.stop()
        truth, sent = self.shop.compute_truth(), sum(self.feed.sent)
        self._await_lag()
        with Topic(self.brokers, SOURCE_TOPIC, PARTITIONS) as source:
            foreign = source.count_records() - sent
        if foreign:
            self._stop_jobs()
            self._print(
                f"not compared: {SOURCE_TOPIC} has records that the demo's source did not send "
                f"({foreign:,}), for example resent messages"
            )
            return True
        ages = compute_ages(truth)
        chained = self._await_ages(ages)
        self._stop_jobs()
        fold = Fold()  # of the whole topic from its beginning, as a new consumer would
        with Topic(self.brokers, SINK_TOPIC, PARTITIONS) as topic:
            while not topic.is_at_end():
                fold.read(topic, _UPDATE_SECONDS)
        items = read_items(list(fold.results.values()))
        self._print(_describe_verdict("groups", "the source's own table", items, truth))
        self._print(_describe_verdict("windows", "the same query over them", chained, ages))
        self._print(
            f"       {sent:,} messages, {self.epochs.number} epochs, {fold.rows:,} "
            f"changelog rows, {self.epochs.quarantined} messages in quarantine"
        )
        if self.options.data is not None:
            self._print(f"data   in {self.data}")
        return items == truth and chained == ages

    def _stop_jobs(self) -> None:
        text = "the jobs publish what they committed"
        with phase(self.console, "stopping", text) as report:
            self.service.stop_jobs(report)

    def _await_lag(self) -> None:
        """Wait until the first job has read all messages, for as long as its lag falls."""
        patience = Patience()
        with phase(self.console, "lag", "reading the rest") as report:
            while behind := self.epochs.count_unread(SOURCE_TOPIC, self.feed.sent):
                self._check()
                for name in self.service.resume_jobs():
                    self._print(f"          {name} was paused: it resumes, to be compared")
                states = describe_states(self.service.list_jobs())
                report(f"{behind:,} messages to go, {states}")
                patience.require((behind, states), f"items is still {behind:,} messages behind")
                time.sleep(_UPDATE_SECONDS)
                self.epochs.update()

    def _await_ages(self, ages: Ages) -> Ages:
        """Wait until the second job has the truth; return its results, also if it settles wrong."""
        patience, text = Patience(), "the second job reads the first one's changes"
        with phase(self.console, "lag", text) as report:
            while (found := read_ages(self.service.read_rows("ages"))) != ages:
                self._check()
                self.service.resume_jobs()
                job = self.service.list_jobs()[-1]
                left = None if job.lag is None else job.lag.records
                sign = describe_states([job]), left
                report(f"{'?' if left is None else f'{left:,}'} messages to go, {sign[0]}")
                patience.require(sign, "the job ages does not catch up")
                if left == 0 and patience.observe(sign) > _SETTLED_SECONDS:
                    break
                time.sleep(_UPDATE_SECONDS)
        return found


def _since(started: float) -> str:
    return f"{time.monotonic() - started:.1f} s"


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
