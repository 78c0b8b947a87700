"""The demo in order: start, show, compare, stop.

1  broker, topics, service, two jobs, the shop's changes
2  results, until Ctrl-C, --seconds, or a failure
3  no more changes; the jobs, also those that a visitor paused, read the rest and stop
4  the topic, folded from its beginning, is compared with the shop's own table

Every wait lasts as long as something moves (`Patience`): a busy machine only takes longer.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from jobs.demo.guard import guard
from jobs.demo.screen import Fold, is_at_end, open_display, open_topic
from jobs.demo.serving import PORT, DemoFailed, Patience, Service, describe_states, find_free_port
from jobs.demo.shop import CHANGES, Shop, Truth
from jobs.demo.source import Feed, add_options, make_changes
from jobs.demo.specs import PARTITIONS, SINK_TOPIC, SOURCE_TOPIC, SPECS, STORAGE_TOPIC, TOUR
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from schemas.table.object_path import TABLES_VARIABLE

_UPDATE_SECONDS, _LINE_SECONDS = 0.2, 5.0
_RATE_UPDATES = 25
_STORAGE_RATE = 2  # a change moves some 60 products to another warehouse
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str]) -> int:
    """Run the demo; return the exit code."""
    options = build_parser().parse_args(argv)
    wanted: Path | None = options.data
    if wanted is not None and wanted.exists() and (wanted.is_file() or any(wanted.iterdir())):
        print(f"demo: {wanted} is not empty; choose an empty directory", file=sys.stderr)
        return 2
    for number in _ENDING:
        signal.signal(number, _interrupt)
    data = wanted or Path(tempfile.mkdtemp(prefix="retally-demo-"))
    data.mkdir(parents=True, exist_ok=True)
    try:
        code = 0 if _Demo(data.absolute(), options).run() else 1
        if code:
            print(f"demo: this is a bug; please report it, with {data}", file=sys.stderr)
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        code = 130
    except Exception as problem:
        own = type(problem).__module__.startswith("jobs.")
        print(f"demo: {'' if own else type(problem).__name__ + ': '}{problem}", file=sys.stderr)
        print(f"demo: its data and the logs of its processes are kept in {data}", file=sys.stderr)
        return 1
    if wanted is None and code != 1:
        shutil.rmtree(data, ignore_errors=True)
    return code


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="retally demo",
        description="Runs a broker, a changing source, the service, and two jobs.",
    )
    temporary = "a temporary directory, deleted at the end"
    parser.add_argument("--data", type=Path, help=f"keep all data there (default: {temporary})")
    port = f"the console's port, or the next free one ({PORT})"
    parser.add_argument("--port", type=int, default=PORT, metavar="P", help=port)
    parser.add_argument("--seconds", type=float, help="stop after so long")
    add_options(parser)
    return parser


class _Demo:
    """One run of the demo in one data directory."""

    def __init__(self, data: Path, options: argparse.Namespace) -> None:
        self.console = Console(highlight=False, markup=False)
        self.data = data
        self.options = options
        self.shop = Shop(seed=options.seed, partitions=PARTITIONS)
        self.counted: deque[tuple[float, dict[str, float]]] = deque(maxlen=_RATE_UPDATES)
        self.running = ExitStack()
        self.brokers: str
        self.service: Service
        self.feeds: tuple[Feed, ...]  # of the products, of the storage

    def run(self) -> bool:
        """Run the demo; return whether its results were exact."""
        os.environ.pop(TABLES_VARIABLE, None)  # the demo shows and deletes tables on this disk
        with self.running:
            try:
                self._start()
                self._wait("jobs", "starting Spark for each, some 20 s", self._find_starting)
                self._print("          every job has an epoch")
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

    def _wait(self, subject: str, text: str, describe_left: Callable[[], str]) -> None:
        """Wait while `describe_left` returns something, for as long as that changes."""
        self._print(f"{subject:9} {text}")
        patience, began = Patience(), time.monotonic()
        shown = began
        while left := describe_left():
            patience.require(left, f"{subject}: {left}")
            if time.monotonic() - shown >= _LINE_SECONDS:
                shown = time.monotonic()
                self._print(f"          {shown - began:.0f} s: {left}")
            time.sleep(_UPDATE_SECONDS)

    # --- starting -----------------------------------------------------------------------------

    def _start(self) -> None:
        self.running.enter_context(guard(self.data))
        self._print(f"broker    a real Kafka broker, data in {self.data}/broker")
        broker = Broker(self.data / "broker")
        self.running.callback(broker.stop)
        broker.start()
        with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
            for topic in (SOURCE_TOPIC, SINK_TOPIC):  # the jobs start at the same time
                admin.ensure_topic(topic, PARTITIONS, {})
            admin.ensure_topic(STORAGE_TOPIC, 1, {})
        self.brokers = broker.address
        self._print(f"service   starting, its log in {self.data}/service.log")
        port = find_free_port(self.options.port)
        self.service = Service.start(self.data, self.brokers, port)
        self.running.callback(self.service.stop)
        self.console.print(f"\nopen {self.service.address}/ now\n", style="bold", soft_wrap=True)
        self.service.start_jobs()
        for spec in SPECS:
            self._print(f"job       {spec['name']}: {spec['query']}")
        self.feeds = (
            Feed(self.brokers, SOURCE_TOPIC, make_changes(self.shop, {}), self.options.rate),
            Feed(self.brokers, STORAGE_TOPIC, self.shop.change_storage(), _STORAGE_RATE),
        )
        for feed in self.feeds:
            self.running.callback(feed.close)
            feed.start()
        self._print(
            f"source    {SOURCE_TOPIC}, {PARTITIONS} partitions, {self.options.rate} changes/s, "
            f"seed {self.options.seed}\n          {CHANGES['bad']} messages in 1,000 are bad "
            "on purpose: they go to quarantine, not into results"
        )

    def _find_starting(self) -> str:
        """Return the states of the jobs while one has no epoch."""
        jobs = self._keep_running()
        return "" if all(job.epoch for job in jobs) else describe_states(jobs)

    def _keep_running(self) -> list[Any]:
        """Resume what a visitor has paused, and return the jobs."""
        for name in self.service.resume_jobs():
            self._print(f"          {name} was paused: it resumes, to be compared")
        return self.service.list_jobs()

    # --- showing ------------------------------------------------------------------------------

    def _show(self) -> None:
        address, fold = self.service.address, Fold()
        hints = [
            f"open {address}/jobs/items/results/bolt, which says why a MAX fell,",
            "or try in another terminal; Ctrl-C compares and ends:",
        ]
        for number, (title, line) in enumerate(TOUR.items(), 1):
            hints += [f"{number}  {title}", f"   {line.format(jobs=f'{address}/v1/jobs')}"]
        ends = math.inf if self.options.seconds is None else time.monotonic() + self.options.seconds
        with (
            closing(open_topic(self.brokers, SINK_TOPIC)) as topic,
            open_display(self.console, hints) as show,
        ):
            while time.monotonic() < ends:
                fold.read(topic, _UPDATE_SECONDS)
                show(fold, self._describe_figures(fold))
                self.service.list_jobs()  # or one has failed

    def _describe_figures(self, fold: Fold) -> str:
        self.counted.append((time.monotonic(), self.service.read_metrics()))
        (then, before), (now, counted) = self.counted[0], self.counted[-1]
        rows = counted.get("rows", 0) - before.get("rows", 0)  # an UPDATE is two
        return (
            f"epoch {fold.epoch} · {rows / max(now - then, 1.0):,.0f} rows/s · "
            f"lag {self._count_unread(counted):,} · {len(fold.results)} groups · "
            f"{counted.get('quarantined', 0):.0f} in quarantine"
        )

    def _count_unread(self, counted: Mapping[str, float]) -> int:
        """Return how many sent messages are in no epoch of the first job."""
        for feed in self.feeds:
            if feed.failure is not None:
                raise DemoFailed(f"the source of {feed.topic} failed: {feed.failure}")
        return max(0, self.feeds[0].sent - int(counted.get("read", 0)))

    # --- comparing ----------------------------------------------------------------------------

    def _compare(self) -> bool:
        """Stop the changes; return whether topic and results equal the shop's own tables."""
        for feed in self.feeds:
            feed.stop()
        truth, joined = self.shop.compute_truth(), self.shop.compute_truth("warehouse")
        sent = sum(feed.sent for feed in self.feeds)
        with KafkaAdmin({"bootstrap_servers": [self.brokers]}) as admin:
            ends = [sum(admin.end_offsets(feed.topic).values()) for feed in self.feeds]
        if foreign := sum(ends) - sent:
            self._stop_jobs()
            self._print(
                f"not compared: the topics have records that the demo's source did not send "
                f"({foreign:,}), for example resent messages"
            )
            return True
        self._wait("lag", "reading the rest", lambda: self._find_unread(joined))
        counted = self.service.read_metrics()
        self._stop_jobs()
        fold = Fold()  # of the whole topic from its beginning, as a new consumer would
        with closing(open_topic(self.brokers, SINK_TOPIC)) as topic:
            while not is_at_end(topic):
                fold.read(topic, _UPDATE_SECONDS)
        found = {str(row["name"]): row for row in fold.results.values()}
        wrong = [name for name in found.keys() | truth if found.get(name) != truth.get(name)]
        verdict = f"exact: {len(truth)} groups equal the source's own table"
        for name in wrong:
            verdict = f"WRONG: {name} is {found.get(name)}, should be {truth.get(name)}"
        self._print(f"{verdict}\nexact: {len(joined)} warehouses equal the source's own join")
        self._print(
            f"       {sent:,} messages, {fold.epoch} epochs, {fold.rows:,} changelog rows, "
            f"{counted.get('quarantined', 0):.0f} messages in quarantine"
        )
        return not wrong

    def _stop_jobs(self) -> None:
        def describe_running() -> str:
            return describe_states([j for j in self.service.list_jobs() if j.actual != "STOPPED"])

        self.service.stop_jobs()
        self._wait("stopping", "the jobs publish what they committed", describe_running)

    def _find_unread(self, joined: Truth) -> str:
        """Return what is left: messages of the first job, or the results of the second differ."""
        states = describe_states(jobs := self._keep_running())
        behind = self._count_unread(self.service.read_metrics())
        rows = self.service.request(self.service.client.results(jobs[-1].name).rows)
        right = {row["warehouse"]: row for row in rows} == joined
        return "" if right and not behind else f"{behind:,} messages to go, {states}"


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
