"""The service under load: lookups, followers, visibility of commits, and the cost for the job.

A job of the service processes 5,000 changes/s in 200,000 groups. Meanwhile two processes of clients
look up 500 groups per second, and have 200 followers (195 of one group each, 5 of all). Afterwards
the ids of each follower are compared with the table. Small statements are asked over REST and by
PostgreSQL's protocol: first while nothing else happens, then beside the lookups and followers. The
cost for the job is measured in pairs of runs with and without clients: at 5,000 changes/s, and with
backlogs at full speed.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

import retally
from bench.frame import Bench, Figure, Loaded
from bench.generator import Shape, group_name
from bench.outcome import BenchFailed
from bench.product import RetallyJob
from bench.topic import fill, producer, send_steadily
from bench.workloads.epoch import wait_until_processed
from retally import Change, Client, Progress

TITLE = "service"
GROUPS = 200_000
KEYED, FULL = 195, 5
RATE = 5_000
PAIRS = 5
BACKLOG_CHANGES = 60_000
PACED_SECONDS = 8
WARM_SECONDS = 30  # of small epochs, while the JVM compiles their code with a quarter of a core
LINGER_MS = 20
LOOKUP_MS_P99_MAX = 25.0
SEEN_MS_MAX = 200.0
COST_MAX = 0.15
START_SECONDS_MAX = 120.0
STATEMENT_SECONDS = 10.0  # over REST, and as long by PostgreSQL's protocol
STATEMENTS_PER_SECOND_MIN = 50.0
FIRST_ANSWER_MS_MAX = 50.0
JOB = "served"


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    changes = min(bench.options.changes, 1_000_000)
    loaded = bench.load(Shape(changes=changes, groups=GROUPS, live_rows=400_000, skew=None))
    job = RetallyJob(
        name=JOB,
        brokers=bench.brokers,
        topic=loaded.topic,
        directory=bench.directory / JOB,
        minibatch={"size": 5_000, "latency": "1s", "max_rows": 100_000},
    )
    with _service(job) as (client, postgres):
        client.put(name=JOB, spec=job.spec, create=True)
        client.start(JOB)
        client.until(JOB, "RUNNING", seconds=START_SECONDS_MAX)
        wait_until_processed(job.count_processed, loaded)
        groups = [group_name(number).decode() for number in range(GROUPS)]
        here = {row["name"] for row in client.results(JOB)}
        keys = [name for name in groups if name in here]
        with bench.measuring("the service: statements, and nothing else"):
            _add_statements(bench, _ask_statements(client, postgres), "idle", bounded=True)
        with bench.measuring("the service: 500 lookups/s, 200 followers, 5,000 changes/s"):
            measured = _steady(bench, loaded, job, client, keys)
        clients = _Clients.start(bench, client, keys)
        _add_statements(bench, _ask_statements(client, postgres), "busy", bounded=False)
        clients.end()
        _add_lookups(bench, measured)
        _add_followers(bench, job, client, measured)
        cost = _cost(bench, loaded, job, client, keys, _pace)
        bench.add(
            Figure(
                TITLE,
                "retally",
                f"share of the job's rate, median of {PAIRS} pairs",
                cost * 100,
                "%",
                f"< {COST_MAX:.0%}",
                cost < COST_MAX,
            )
        )
        cost = _cost(bench, loaded, job, client, keys, _backlog)
        bench.add(Figure(TITLE, "retally", "of its rate with a backlog", cost * 100, "%"))
        client.stop(JOB)
        client.until(JOB, "STOPPED", seconds=START_SECONDS_MAX)
    bench.check_retally(job, loaded)


# --- processes ----------------------------------------------------------------------------------


@contextmanager
def _service(job: RetallyJob) -> Iterator[tuple[Client, str]]:
    """The service of a job's directory: a client of it, and its address for PostgreSQL."""
    program = Path(sys.executable).with_name("retally")
    command = [str(program), "serve", "--data", str(job.directory), "--brokers", job.brokers]
    job.directory.mkdir(parents=True, exist_ok=True)
    with (
        (job.directory / "service.log").open("ab") as log,
        subprocess.Popen(
            [*command, "--port", "0", "--pg-port", "0"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready "):
            raise BenchFailed(f"the service did not start: see {job.directory / 'service.log'}")
        _, address, postgres = line.split()
        client = retally.connect(address)
        try:
            yield client, postgres
        finally:
            _stop_job(client)
            client.close()
            process.terminate()
            process.wait(60)


def _stop_job(client: Client) -> None:
    """Stop the job, because jobs outlive their service."""
    try:
        client.stop(JOB)
        client.until(JOB, "STOPPED", "FAILED", "CREATED", seconds=START_SECONDS_MAX)
    except Exception as error:
        raise BenchFailed(f"the job was not stopped: {error}") from error


class _Clients:
    """The processes of the clients, from `start` to `end`."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    @classmethod
    def start(cls, bench: Bench, client: Client, keys: list[str]) -> _Clients:
        """Start the processes; return when both are ready."""
        step = len(keys) // KEYED
        followed = [*(keys[number * step] for number in range(KEYED)), *([None] * FULL)]
        return cls(
            [  # followers first: their 200 starts are not measured
                cls._start(bench, client, "followers", {"keys": [], "followed": followed}),
                cls._start(bench, client, "lookups", {"keys": keys, "followed": []}),
            ]
        )

    def end(self) -> dict[str, Any]:
        followers, lookups = (
            json.loads(process.communicate("", timeout=120)[0]) for process in self._processes
        )
        measured: dict[str, Any] = lookups | {"followers": followers["followers"]}
        return measured

    @staticmethod
    def _start(
        bench: Bench, client: Client, name: str, request: dict[str, Any]
    ) -> subprocess.Popen[str]:
        file = bench.directory / f"{name}.json"
        file.write_text(json.dumps(request))
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.load.lookups", client.address, JOB, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise BenchFailed(f"the clients ({name}) did not start")
        return process


# --- measurements -------------------------------------------------------------------------------


def _steady(
    bench: Bench, loaded: Loaded, job: RetallyJob, client: Client, keys: list[str]
) -> dict[str, Any]:
    sending = producer(bench.brokers, LINGER_MS)
    _send(sending, loaded, seconds=WARM_SECONDS)
    clients = _Clients.start(bench, client, keys)
    _send(sending, loaded, seconds=bench.options.seconds)
    wait_until_processed(job.count_processed, loaded)
    return clients.end()


def _ask_statements(client: Client, postgres: str) -> dict[str, Any]:
    program = [sys.executable, "-m", "bench.load.statements"]
    asked = [*program, client.address, postgres, str(STATEMENT_SECONDS)]
    measured: dict[str, Any] = json.loads(subprocess.check_output(asked, text=True))
    return measured


def _add_statements(bench: Bench, measured: dict[str, Any], when: str, *, bounded: bool) -> None:
    """Add figures of small statements; their bounds are those of a machine without other work."""

    def add(what: str, value: float, unit: str, bound: str = "", holds: bool = True) -> None:
        kept = (bound, holds) if bounded and bound else ("", None)
        bench.add(Figure(TITLE, "retally", f"{what}, {when}", value, unit, *kept))

    first = measured["first_ms"]
    held = first < FIRST_ANSWER_MS_MAX
    add("first statement", first, "ms", f"< {FIRST_ANSWER_MS_MAX:.0f}", held)
    for way in ("REST", "PostgreSQL"):
        took = sorted(measured[way])
        rate = len(took) / STATEMENT_SECONDS
        held = rate >= STATEMENTS_PER_SECOND_MIN
        add(f"statements over {way}", rate, "/s", f">= {STATEMENTS_PER_SECOND_MIN:.0f}", held)
        add(f"statement over {way}, p50", statistics.median(took), "ms")


def _send(sending: Producer, loaded: Loaded, seconds: float) -> None:
    send_steadily(sending, loaded.topic, loaded.table, rate=RATE, seconds=seconds)


def _cost(
    bench: Bench,
    loaded: Loaded,
    job: RetallyJob,
    client: Client,
    keys: list[str],
    feed: Callable[[Bench, Loaded], None],
) -> float:
    """Return the share of the job's rate that the clients cost, the median of the pairs."""
    ratios = []
    for pair in range(PAIRS):
        rates = {}
        for busy in (False, True) if pair % 2 else (True, False):
            clients = _Clients.start(bench, client, keys) if busy else None
            word = "with clients" if busy else "without"
            with bench.measuring(f"the service: {feed.__name__[1:]} {word}"):
                rates[busy] = _rate(bench, loaded, job, feed)
            if clients is not None:
                clients.end()
        ratios.append(rates[True] / rates[False])
    return 1 - statistics.median(ratios)


def _pace(bench: Bench, loaded: Loaded) -> None:
    _send(producer(bench.brokers, LINGER_MS), loaded, seconds=PACED_SECONDS)


def _backlog(bench: Bench, loaded: Loaded) -> None:
    fill(bench.brokers, loaded.topic, enumerate(loaded.table.changes(BACKLOG_CHANGES)))


def _rate(
    bench: Bench, loaded: Loaded, job: RetallyJob, feed: Callable[[Bench, Loaded], None]
) -> float:
    """Return changes per second, from the first commit of the fed changes to the last one."""
    before, began = job.epochs()[-1].processed, time.monotonic()
    feed(bench, loaded)
    wait_until_processed(job.count_processed, loaded)
    spent = time.monotonic() - began
    epochs = [epoch for epoch in job.epochs() if epoch.processed > before]
    if len(epochs) < 2:
        return (loaded.table.sequence - before) / spent
    first, last = epochs[0], epochs[-1]
    return (last.processed - first.processed) / (last.committed_ms - first.committed_ms) * 1_000


def _add_lookups(bench: Bench, measured: dict[str, Any]) -> None:
    took = sorted(measured["lookups_ms"])
    if measured["failed"] or not took:
        raise BenchFailed(f"{measured['failed']} of {len(took)} lookups failed")
    p50, p99 = statistics.median(took), took[int(len(took) * 0.99)]
    bench.add(Figure(TITLE, "retally", "lookup, p50", p50, "ms"))
    bench.add(
        Figure(
            TITLE,
            "retally",
            "lookup, p99",
            p99,
            "ms",
            f"< {LOOKUP_MS_P99_MAX:.0f}",
            p99 < LOOKUP_MS_P99_MAX,
        )
    )


def _add_followers(bench: Bench, job: RetallyJob, client: Client, measured: dict[str, Any]) -> None:
    """Add figures: whether followers got exactly their rows, and the delay of their events."""
    wrong = _find_wrong(client, measured["followers"])
    bench.add(
        Figure(
            TITLE,
            "retally",
            f"followers not sent exactly their rows, of {KEYED + FULL}",
            len(wrong),
            "",
            "0",
            not wrong,
        )
    )
    for line in wrong[:5]:
        bench.say(f"[red]{line}[/red]")
    waits = [wait for each in measured["followers"] for wait in each["waits_ms"]]
    in_stream = statistics.median(waits)
    committed = {epoch.epoch: epoch.committed_ms for epoch in job.epochs()}
    by_lookup = [
        seen - committed[epoch]
        for epoch, seen in ((int(e), at) for e, at in measured["seen_at"].items())
        if epoch in committed
    ]
    for what, value in (
        ("commit to event, median", in_stream),
        ("commit to lookup, median", statistics.median(by_lookup[1:])),
    ):
        bench.add(
            Figure(TITLE, "retally", what, value, "ms", f"< {SEEN_MS_MAX:.0f}", value < SEEN_MS_MAX)
        )


def _find_wrong(client: Client, followers: list[dict[str, Any]]) -> list[str]:
    """Return a line for each follower whose ids differ from the table."""
    first = min(each["first_epoch"] or 0 for each in followers)
    last = max(each["last_epoch"] or 0 for each in followers)
    changes: list[tuple[int, int, str]] = []
    for each in client.follow(JOB, first - 1):
        if isinstance(each, Progress):
            if each.epoch >= last:
                break
        elif isinstance(each, Change):
            changes.append((each.epoch, each.seq, each.row["name"]))
    found = []
    for follower in followers:
        if follower["broken"] or follower["first_epoch"] is None:
            found.append(f"follower of {follower['key'] or 'all'}: {follower['broken']}")
            continue
        digest, count = hashlib.sha256(), 0
        for epoch, seq, name in changes:
            if follower["first_epoch"] <= epoch <= follower["last_epoch"] and (
                follower["key"] in (None, name)
            ):
                digest.update(b"%d:%d;" % (epoch, seq))
                count += 1
        if (count, digest.hexdigest()) != (follower["changes"], follower["digest"]):
            found.append(
                f"follower of {follower['key'] or 'all'}: {follower['changes']} changes, "
                f"not {count}"
            )
    return found
