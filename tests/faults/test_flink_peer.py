"""Flink as a peer: both process random histories, and their results must be equal.

    200 histories ──► one topic ─┬─► Flink, in three ways ────► changelogs ─┐
                                 ├─► retally, a job a query ──► changelogs ─┼─► equal, well formed
                                 └─► the live rows at the end, DuckDB ──────┘

Twelve queries run over all histories; each history has groups of its own. Every changelog is folded
as it is read: a retraction must equal the current row, to the last digit.

Some differences are on purpose (docs/flink.md, "Where we differ from Flink"). The test avoids them:

- A refused message ends Flink's job, so there are none. There are tombstones, DDL that Flink skips
  (CREATE), other tables and messages without rows.
- An UPDATE of several rows names the same columns in `old` for all of them, because Flink takes a
  column that changed in one row as changed in all.
- SUM of INT is cast to BIGINT, because Flink's wraps where ours is NULL. AVG(INT) is as it is: both
  truncate it.
- Sums of DOUBLE are of values whose sums are exact in any order.
- HAVING: a group comes with +U and goes with -U in Flink's changelog, where a filter looks at each
  change by itself. There only what is taken back and what is there is looked at.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.process.broker import Broker
from tests.support.faults import flink_side
from tests.support.faults.changelog_judge import Change, Folded, folded
from tests.support.faults.peer_histories import PEER_COLUMNS, CanalRow, PeerHistory, shuffled
from tests.support.faults.peer_queries import QUERIES, PeerQuery, Truth, Values
from tests.support.faults.tally import FaultTally
from tests.support.histories.products import DATABASE, PARTITIONS, TABLE
from tests.support.jobs.running_job import RunningJob, consumed, create_topic, produce

HISTORIES = 200
EPOCH_RECORDS = (400, 800, 1_600, 2_500)  # at most, of one query after the other


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_flink_and_retally_say_the_same(broker: Broker, tmp_path: Path) -> None:
    topic = f"peer-{uuid.uuid4().hex[:8]}"
    made = [PeerHistory(number) for number in range(HISTORIES)]
    records = list(shuffled(made))
    create_topic(broker.address, topic, PARTITIONS)
    produce(broker.address, topic, records)
    truth = Truth(row for each in made for row in each.rows())
    tally = FaultTally(f"Flink as a peer: {HISTORIES} histories", inputs=len(records))
    differences: list[str] = []
    for engine, query, outcome in answers(broker, topic, tmp_path):
        wanted = truth.table(query)
        tally.outputs += outcome.changes
        tally.lost += len(wanted - outcome.table)
        tally.duplicates += len(outcome.table - wanted)
        tally.out_of_order += len(outcome.wrong)
        differences += [f"{engine}, {query.name}: {each}" for each in outcome.against(wanted)]
        print(f"{engine}, {query.name}: {outcome.changes} changes, {len(outcome.table)} groups")
    print(*differences, sep="\n")
    tally.close()


def answers(broker: Broker, topic: str, home: Path) -> Iterator[tuple[str, PeerQuery, Folded]]:
    """Everybody's changelog of every query, folded."""
    for way in flink_side.WAYS:
        directory = home / way.replace(" ", "-").replace(",", "")
        said = flink_side.answers(way, broker.address, topic, directory)
        for query in QUERIES:
            changes = said[query.name]
            yield f"Flink {way}", query, folded(changes, query.keys, by_row=query.having)
    for number, query in enumerate(QUERIES):
        epoch_records = EPOCH_RECORDS[number % len(EPOCH_RECORDS)]
        yield "retally", query, retally_answer(broker, topic, home, query, epoch_records)


def retally_answer(
    broker: Broker, topic: str, home: Path, query: PeerQuery, epoch_records: int
) -> Folded:
    """Its changelog, as a consumer of the topic folds it; the table has to say the same."""
    name = query.name.replace("_", "-")
    spec = {
        "name": name,
        "source": {"topic": topic, "database": DATABASE, "table": TABLE},
        "columns": PEER_COLUMNS,
        "query": query.sql,
        "minibatch": {"size": 1, "max_rows": epoch_records},
        "sink": {"topic": f"{topic}-{name}", "partitions": 3},
        "state": {"buckets": 8},
    }
    job = RunningJob(spec, home / name, broker.address)
    job.must_run_by_itself()
    assert job.epochs()[-1].epoch > 5, "so few epochs try nothing"
    assert not job.part("quarantine")
    read = query.reader
    changes = [
        (record["value"]["op"], read(record["value"]["row"].values()))
        for record in consumed(broker.address, f"{topic}-{name}")
    ]
    outcome = folded(changes, query.keys)
    assert outcome.table == {read(row.values()) for row in job.ask("results", name)}
    return outcome


# --- whether the suite can fail -------------------------------------------------------------------


@cache
def well_formed() -> tuple[Change, ...]:
    """A changelog of counts, as a fold of the simplest kind gives it."""
    rng = random.Random("well formed")
    counts: dict[str, int] = {}
    changes: list[Change] = []
    for _ in range(200):
        name = rng.choice("abcde")
        before = counts.get(name, 0)
        after = counts[name] = rng.choice([number for number in range(4) if number != before])
        if before:
            changes.append(("-U" if after else "-D", (name, before)))
        if after:
            changes.append(("+U" if before else "+I", (name, after)))
    return tuple(changes)


def judged(changes: list[Change], *, by_row: bool = False) -> list[str]:
    truth = folded(well_formed(), 1).table
    return folded(changes, 1, by_row=by_row).against(truth)


def test_a_well_formed_changelog_has_nothing_wrong() -> None:
    assert {op for op, _ in well_formed()} == {"+I", "-U", "+U", "-D"}
    assert judged(list(well_formed())) == judged(list(well_formed()), by_row=True) == []


@pytest.mark.parametrize("by_row", [False, True])
def test_negative_control_any_change_that_is_another_is_noticed(by_row: bool) -> None:
    for at, (op, (name, number)) in enumerate(well_formed()):
        changes = list(well_formed())
        assert isinstance(number, int)
        changes[at] = (op, (name, number + 1))
        assert judged(changes, by_row=by_row), at


@pytest.mark.parametrize("by_row", [False, True])
def test_negative_control_any_change_that_is_lost_or_repeated_is_noticed(by_row: bool) -> None:
    for at, change in enumerate(well_formed()):
        changes = list(well_formed())
        assert judged(changes[:at] + changes[at + 1 :], by_row=by_row), at
        assert judged([*changes[:at], change, *changes[at:]], by_row=by_row), at


def test_negative_control_any_change_of_another_kind_is_noticed() -> None:
    other = {"+I": "+U", "+U": "+I", "-U": "-D", "-D": "-U"}
    for at, (op, row) in enumerate(well_formed()):
        changes = list(well_formed())
        changes[at] = (other[op], row)
        assert judged(changes), at


def test_negative_control_a_truth_with_another_row_is_noticed() -> None:
    outcome = folded(well_formed(), 1)
    other: set[Values] = {("z", 1)}
    assert outcome.against(outcome.table | other) == ["missing: ('z', 1)"]
    assert outcome.against(outcome.table - {min(outcome.table, key=str)})


def test_changes_are_read_from_what_flink_prints() -> None:
    found = flink_side.changes(
        [
            "two_columns:2> -U[7, , null, 3, 2, -1.5, é]",
            "sums> +I[1, null, 1, 0, 1.50, 0.500000, 2.0]",
        ]
    )
    assert found["two_columns"] == [("-U", (7, "", None, 3, 2, -1.5, "é"))]
    worth, mean_price = Decimal("1.5"), Decimal("0.5")
    assert found["sums"] == [("+I", (1, None, 1, 0, worth, mean_price, 2.0))]


# --- what the histories are like ------------------------------------------------------------------


class Reader:
    """What messages say, taken one after the other by one who knows nothing else."""

    def __init__(self) -> None:
        self.live: dict[tuple[int, str | None, str | None], CanalRow] = {}
        self.seen: Counter[str] = Counter()
        self._groups: dict[tuple[str | None, str | None], int] = {}  # rows of each that ever was
        self._ids: set[tuple[int, str | None, str | None]] = set()

    def take(self, partition: int, message: dict[str, Any]) -> None:
        rows, kind = message["data"], message["type"]
        olds = message["old"] or [{} for _ in rows]
        self.seen["several rows"] += len(rows) > 1
        for row, old in zip(rows, olds, strict=True):
            assert old.keys() == olds[0].keys()
            place = (partition, row["history"], row["id"])
            if kind != "INSERT":
                self._goes(place, row | old)
            if kind != "DELETE":
                self.seen["an id used again"] += kind == "INSERT" and place in self._ids
                self._comes(place, row)
            if kind == "UPDATE":
                before, after = (row | old)["name"], row["name"]
                self.seen["another group"] += before != after
                self.seen["to the group of NULL"] += before is not None and after is None
                self.seen["from the group of NULL"] += before is None and after is not None

    def _comes(self, place: tuple[int, str | None, str | None], row: CanalRow) -> None:
        assert place not in self.live
        self.live[place] = row
        self._ids.add(place)
        group = (row["history"], row["name"])
        self.seen["a group that comes back"] += self._groups.get(group) == 0
        self._groups[group] = self._groups.get(group, 0) + 1

    def _goes(self, place: tuple[int, str | None, str | None], row: CanalRow) -> None:
        assert self.live.pop(place) == row
        self._groups[row["history"], row["name"]] -= 1


def test_histories_are_well_formed_and_have_everything_that_they_are_there_for() -> None:
    made = [PeerHistory(number) for number in range(20)]
    reader = Reader()
    for partition, value in shuffled(made):
        message = json.loads(value) if value else {}
        if message.get("data") is None or message["table"] != TABLE:
            reader.seen["nothing for us"] += 1
        else:
            reader.take(partition, message)
    told = [row for each in made for row in each.rows()]
    assert sorted(reader.live.values(), key=str) == sorted(told, key=str)
    assert min(reader.seen.values()) > 20, reader.seen
    assert len(reader.seen) == 7
    assert PeerHistory(3).records == PeerHistory(3).records
    assert {each.number for each in made if not each.live}, "no history ends with an empty table"
