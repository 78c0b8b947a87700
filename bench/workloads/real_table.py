"""Backfill of a table as a real one is: 32 columns of all types that MySQL has, as canal sent them.

The messages are those of a recording (2 to 5 kB each), again and again; the query uses unsigned
numbers, decimals, a time and an ENUM. All of them must go through the compiled scanner.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import msgspec
from deltalake import DeltaTable

from bench.frame import Bench, Figure
from bench.outcome import BenchFailed
from bench.product import RetallyJob
from bench.topic import fill
from bench.workloads.aggregates import audit

TITLE = "real table"
RECORDING = Path(__file__).resolve().parents[2] / "tests/recordings/mysql-kinds.json.gz"
CHANGES_MAX = 400_000
_ES, _ID = re.compile(rb'"es":\d+'), re.compile(rb'"id":\d+,"isDdl"')
QUERY = (
    "SELECT label, hour, COUNT(*) AS n, SUM(CAST(uwhole AS DECIMAL(38, 0))) AS whole, "
    "MAX(ubig) AS top, SUM(broad) AS broad, MIN(floating) AS low, MAX(moment6) AS newest "
    "FROM {} GROUP BY label, hour"
)


class Recording(msgspec.Struct, frozen=True):
    table: str
    columns: dict[str, str]
    partitions: list[list[str]]


def run(bench: Bench) -> None:
    if not bench.options.retally:
        return
    recording = msgspec.json.decode(gzip.decompress(RECORDING.read_bytes()), type=Recording)
    count = min(bench.options.changes, CHANGES_MAX)
    topic = bench.new_topic("real", len(recording.partitions))
    share = count // len(recording.partitions)
    for partition, messages in enumerate(recording.partitions):
        rows = [message.encode() for message in messages if '"isDdl":true' not in message]
        fill(bench.brokers, topic, [(partition, list(_repeated(rows, share)))])
    job = RetallyJob(
        name="real-table",
        brokers=bench.brokers,
        topic=topic,
        directory=bench.directory / topic,
        columns=recording.columns,
        minibatch={"size": 5_000, "latency": "1s", "max_rows": 50_000},
        overrides={
            "query": QUERY.format(recording.table),
            "source": {"topic": topic, "format": "canal-json", "start": "earliest"},
        },
        published_ms=None,
    )
    with bench.measuring("retally: a real table"):
        outcome = job.catch_up()
    audit(job)
    rate = outcome.rate_after(outcome.progress[0].changes)
    bench.add(Figure(TITLE, "retally", "rate when warm", rate, "messages/s"))
    spent = outcome.cpu_seconds / outcome.changes * 1_000_000
    bench.add(Figure(TITLE, "retally", "processor time", spent, "s per million"))
    scanned = _scanned(job)
    bench.add(
        Figure(
            TITLE,
            "retally",
            "of them scanned",
            scanned / outcome.changes,
            "",
            ">= 1",
            scanned >= outcome.changes,
        )
    )


def _repeated(messages: list[bytes], count: int) -> Iterator[bytes]:
    """Yield messages again and again, each a second and a batch later than the one before."""
    for number, message in enumerate(islice(cycle(messages), count)):
        later = _ES.sub(b'"es":%d' % (1_767_225_600_000 + 1_000 * number), message, count=1)
        yield _ID.sub(b'"id":%d,"isDdl"' % (number + 1), later, count=1)


def _scanned(job: RetallyJob) -> int:
    rows = DeltaTable(str(job.table)).to_pyarrow_table(
        filters=[("part", "=", "epochs")], columns=["counters"]
    )
    counters = rows["counters"].to_pylist()
    if not counters:
        raise BenchFailed("the job committed nothing")
    return sum(msgspec.json.decode(each).get("scanned", 0) for each in counters if each)
