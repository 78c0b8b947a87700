"""Flink's results: all queries in one job over one topic, from the output of its print sinks.

topic ──► canal-json ──► each query ──► print ──► "sums:2> -U[1, ant, 3]" ──► changes
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from bench.flink.peer import OPTIONS, source_table, with_options
from bench.flink.process import FlinkProcess
from tests.support.faults.changelog_judge import Change
from tests.support.faults.peer_histories import PEER_COLUMNS
from tests.support.faults.peer_queries import QUERIES, PeerQuery
from tests.support.histories.products import DATABASE, TABLE

CHECKOUT = Path(__file__).resolve().parents[3]
OUT = CHECKOUT / "bench" / "out"  # where the benchmarks keep Flink's jars too

# The ways in which Flink can aggregate.
WAYS = {
    "row by row": {"table.exec.mini-batch.enabled": "false"},
    "bundles, two phases": {"table.exec.mini-batch.size": "50"},
    "bundles, one phase": {
        "table.exec.mini-batch.size": "200",
        "table.optimizer.agg-phase-strategy": "ONE_PHASE",
    },
}
_COMMON = OPTIONS | {
    "execution.checkpointing.storage": "jobmanager",
    "taskmanager.memory.managed.size": "64m",
    "table.exec.mini-batch.allow-latency": "100 ms",
}
_JVM = ("-Xms256m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_CHANGE = re.compile(r"(\w+)(?::\d+)?> ([+-][IUD])\[(.*)\]")


def answers(way: str, brokers: str, topic: str, directory: Path) -> dict[str, list[Change]]:
    """Return the changes of each query, over the topic up to its current end."""
    run = FlinkProcess(script(brokers, topic), _COMMON | WAYS[way], _JVM, OUT, directory)
    with run.start() as process:
        run.follow(process)
    assert run.event("finished").records, "Flink has read nothing"
    return changes(run.printed)


def script(brokers: str, topic: str) -> str:
    only = {"canal-json.database.include": DATABASE, "canal-json.table.include": TABLE}
    source = source_table(PEER_COLUMNS, brokers, topic, bounded=True, options=only)
    inserts = " ".join(f"INSERT INTO {query.name} {query.sql};" for query in QUERIES)
    sinks = "".join(map(_sink, QUERIES))
    return f"{source}{sinks}EXECUTE STATEMENT SET BEGIN {inserts} END;\n"


def changes(printed: Iterable[str]) -> dict[str, list[Change]]:
    """Parse printed changes by query; no text of the histories has a comma or is `null`."""
    read = {query.name: query.reader for query in QUERIES}
    found: dict[str, list[Change]] = {query.name: [] for query in QUERIES}
    for line in printed:
        matched = _CHANGE.fullmatch(line)
        assert matched is not None, line
        name, op, row = matched.groups()
        values = [None if value == "null" else value for value in row.split(", ")]
        found[name].append((op, read[name](values)))
    return found


def _sink(query: PeerQuery) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in query.results.items())
    options = {"connector": "print", "print-identifier": query.name}
    return f"CREATE TABLE {query.name} ({columns}) WITH ({with_options(options)});\n"
