"""The benchmark's stream has to be well-formed and its truth true, or its figures mean nothing."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.generator import (
    Batches,
    Shape,
    ShopTable,
    Truth,
    in_motion,
    one_row_each,
    pace,
    steady,
    stored_stream,
)

SMALL = Shape(changes=6_000, live_rows=1_000, groups=300)


def parsed(batches: Batches) -> list[list[dict[str, Any]]]:
    return [[json.loads(line) for line in lines] for lines in batches]


def replayed(partitions: list[list[dict[str, Any]]]) -> dict[str, dict[str, str]]:
    """Applies each partition on its own, holding every message against the row it changes."""
    table: dict[str, dict[str, str]] = {}
    for message in itertools.chain.from_iterable(partitions):
        (row,) = message["data"]
        match message["type"]:
            case "INSERT":
                assert row["id"] not in table
                table[row["id"]] = row
            case "UPDATE":
                (old,) = message["old"]
                assert old
                assert table[row["id"]] == row | old
                assert all(row[column] != before for column, before in old.items())
                table[row["id"]] = row
            case "DELETE":
                assert table.pop(row["id"]) == row
    return table


def aggregated(table: dict[str, dict[str, str]]) -> Truth:
    counts: dict[str, list[int]] = {}
    for row in table.values():
        counts.setdefault(row["name"], []).append(int(row["cnt"]))
    return {name: (sum(cnt), max(cnt), len(cnt)) for name, cnt in counts.items()}


def test_replaying_the_messages_gives_the_truth() -> None:
    table = ShopTable(SMALL)
    partitions = [
        first + second
        for first, second in zip(
            parsed(table.changes(4_000)), parsed(table.changes(2_000)), strict=True
        )
    ]
    rows = replayed(partitions)
    assert len(rows) == len(table.ids)
    assert aggregated(rows) == table.truth()


def test_all_messages_of_a_row_are_in_one_partition() -> None:
    homes: dict[str, set[int]] = {}
    for partition, messages in enumerate(parsed(ShopTable(SMALL).changes(SMALL.changes))):
        for message in messages:
            homes.setdefault(message["data"][0]["id"], set()).add(partition)
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert {partition for home in homes.values() for partition in home} == {0, 1, 2, 3}


def test_stored_stream_is_made_once_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    stream = stored_stream(SMALL, tmp_path)
    live = ShopTable(SMALL)
    assert [line for _, lines in stream.batches() for line in lines] != []
    assert [path.read_bytes().splitlines() for path in stream.files] == live.changes(6_000)
    made = [path.stat().st_mtime_ns for path in stream.files]
    again = stored_stream(SMALL, tmp_path)
    assert [path.stat().st_mtime_ns for path in again.files] == made
    assert again.table().truth() == live.truth()
    assert again.table().changes(100) == live.changes(100)


class Clock:
    """Time that passes only when slept, and now and then more than was asked for."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.sleeps = 0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        self.now += seconds + (0.3 if self.sleeps % 7 == 0 else 0.0)


def test_steady_stream_holds_its_rate_through_late_ticks() -> None:
    clock, table = Clock(), ShopTable(SMALL)
    begin, sent, probes = clock.now, 0, 0
    ticks = steady(table, rate=1_000, seconds=3, probe_rate=10)
    for tick in pace(ticks, clock, clock.sleep):
        assert clock.now - begin >= tick.at - 1e-6
        sent += sum(map(len, tick.batches)) - len(tick.probes)
        probes += len(tick.probes)
        due = 1_000 * (clock.now - begin)
        assert sent >= due - 10 - 300  # of a tick and one that slept too long
    assert (sent, probes) == (3_000, 30)


def test_steady_stream_is_stamped_evenly() -> None:
    stamps = [
        {message["es"] for part in parsed(tick.batches) for message in part}
        for tick in steady(ShopTable(SMALL), rate=1_000, seconds=1)
    ]
    assert all(len(each) == 1 for each in stamps)
    first, last = min(stamps[0]), max(stamps[-1])
    assert last - first == pytest.approx(990, abs=1)


def test_probe_is_alone_in_its_group_for_good() -> None:
    table = ShopTable(SMALL)
    table.changes(2_000)
    name, partition, message = table.probe(now_ms=7)
    row = json.loads(message)["data"][0]
    assert row["name"] == name
    assert partition == int(row["id"]) % SMALL.partitions
    table.changes(4_000)
    assert table.truth()[name] == (1, 1, 1)
    assert table.sequence == 6_001


def test_a_state_is_filled_with_one_row_a_group_and_then_any_of_them_change() -> None:
    table = ShopTable(one_row_each(500))
    first = parsed(table.changes(500))
    assert {name: n for name, (_, _, n) in table.truth().items()} == {
        f"product-{group:06d}": 1 for group in range(500)
    }
    table.shape = in_motion(500)
    second = parsed(table.changes(2_000))
    rows = replayed([one + two for one, two in zip(first, second, strict=True)])
    assert aggregated(rows) == table.truth()


def test_columns_that_no_query_reads_are_in_every_message_and_change_nothing_else() -> None:
    shape = replace(SMALL, extra_columns=35)
    wide, plain = parsed(ShopTable(shape).changes(500)), parsed(ShopTable(SMALL).changes(500))
    for with_extra, without in zip(itertools.chain(*wide), itertools.chain(*plain), strict=True):
        assert list(with_extra["data"][0]) == list(shape.columns) == list(with_extra["mysqlType"])
        kept = {name: with_extra["data"][0][name] for name in without["data"][0]}
        assert with_extra["type"] == without["type"] and [kept] == without["data"]
