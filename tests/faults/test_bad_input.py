"""Bad messages of two hundred kinds between good ones, through the decode task and the judge.

    good, bad, good ... ──► DecodeTask (real: decoder, rules, quarantine files, report)
                                 ├─► rows: every good message counts, no part of a bad one does
                                 ├─► quarantine: every bad one once, with its bytes and a reason
                                 └─► report ──► the pipeline's judge
Only Kafka's consumer is not there: records come from a list. The long form sends ten thousand
through a real broker, Spark and Delta.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from jobs.core.homes import ONE_TASK
from jobs.core.job.job_plan import plan_of
from jobs.core.values import json_text
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.records import Records
from jobs.edge.rows.weighted_rows import WEIGHT, parcelling_of, unpack_parcels
from jobs.edge.table.file_writer import EpochAttempt
from jobs.edge.tasks import decode as decode_task
from jobs.edge.tasks.decode import DecodeTask
from jobs.edge.tasks.decode_inputs import SourceRules, ViewInputs
from jobs.edge.tasks.range_report import RangeReport
from jobs.running.outcome import InputLimits, InputRefused, Outcome
from schemas.limits import MESSAGE_BYTES_MAX, QUARANTINE_BYTES_MAX, REASON_CHARACTERS_MAX
from schemas.spec.file import load_spec
from tests.support.faults.bad_messages import COLUMNS, good_message, kinds
from tests.support.faults.tally import FaultTally
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.jobs.parcels import sort_parcels

SPEC = {
    "name": "items",
    "source": {"topic": "items", "database": "shop", "table": "items"},
    "columns": COLUMNS,
    "query": "SELECT name, COUNT(*) AS n, SUM(cnt) AS s FROM items GROUP BY name",
    "max_bad_fraction": 1.0,
    "watermark": {"future_skew": "5 min"},
}
PLAN = plan_of(load_spec(SPEC))
ROWS = 2  # of a good message
AT_ONCE = 500
NOW_MS = 1_700_000_000_000 + 1_000_000
GROWTH_BYTES_MAX = 24 * 1024 * 1024


def record(at: int, content: bytes) -> Message:
    """A message as the consumer gives it."""
    stamp = (TIMESTAMP_CREATE_TIME, NOW_MS)
    return Message(topic="items", partition=0, offset=at, value=content, timestamp=stamp)


@dataclass(slots=True)
class Told:
    """What a task has made of its records."""

    report: RangeReport
    groups: dict[str, tuple[int, int]]  # name -> rows, sum of cnt
    rejects: list[dict[str, Any]]


def decoded(
    monkeypatch: pytest.MonkeyPatch, root: Path, records: Iterable[list[Message]], count: int
) -> Told:
    """The real task over these records."""
    monkeypatch.setattr(
        decode_task,
        "read_ranges",
        lambda _, planned: ((planned[0], Records.of(each)) for each in records),
    )
    columns = tuple(range(len(PLAN.used)))
    parcelling = parcelling_of(PLAN, 1, ONE_TASK)
    view = ViewInputs(0, "", PLAN, root, columns, deadline=None, parcelling=parcelling)
    task = DecodeTask(
        PLAN,
        SourceRules.of(load_spec(SPEC), PLAN),
        {},
        (OffsetRange("items", 0, 0, count),),
        root,
        EpochAttempt(1, "uuid"),
        horizons={"items": NOW_MS + 300_000},
        views=(view,),
    )
    groups: dict[str, tuple[int, int]] = {}
    report: RangeReport | None = None
    sent = sort_parcels(task.decode_ranges([0]))
    for parcel in sent[None]:
        report = msgspec.json.decode(parcel.content, type=RangeReport)
    for row in unpack_parcels(sent.get(0, ())).to_pylist():
        rows, total = groups.get(row["g0"], (0, 0))
        weight = row[WEIGHT]
        groups[row["g0"]] = (rows + weight, total + weight * row["a0"])
    assert report is not None
    names = [file.path for file in report.quarantine]
    rejects = [row for name in names for row in pq.ParquetFile(root / name).read().to_pylist()]
    return Told(report, groups, rejects)


def wanted(numbers: Iterable[int]) -> dict[str, tuple[int, int]]:
    """What good messages add up to."""
    groups: dict[str, tuple[int, int]] = {}
    for number in numbers:
        name = f"group {number % 17}"
        rows, total = groups.get(name, (0, 0))
        groups[name] = (rows + ROWS, total + ROWS * (number % 1_000))
    return groups


def mixture(count: int, seed: int) -> Iterator[tuple[bytes, str | None]]:
    """As many bad messages as said, all kinds in turn, and about as many good ones between them;
    with the name of the kind where one is bad."""
    rng, known, bad, number = random.Random(f"input {seed}"), list(kinds()), 0, 0
    while bad < count:
        number += 1
        good = good_message(number)
        if rng.random() < 0.5:
            yield good, None
        else:
            name, spoil = known[bad % len(known)]
            bad += 1
            yield spoil(good), name


def test_there_are_two_hundred_kinds_and_each_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = list(kinds())
    assert len({name for name, _ in named}) == len(named) >= 200
    records = [record(at, spoil(good_message(at))) for at, (_, spoil) in enumerate(named)]
    told = decoded(monkeypatch, tmp_path, [records], len(records))
    refused = {reject["offset"] for reject in told.rejects}
    assert [name for at, (name, _) in enumerate(named) if at not in refused] == []
    assert told.groups == {}


def check_mixture(
    count: int, tally: FaultTally, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pass warms up; those that follow must leave memory as it is."""
    messages = list(mixture(count, seed=1))
    good = [at for at, (_, name) in enumerate(messages, 1) if name is None]
    process, sizes = psutil.Process(), []
    for turn in range(2 if count < 5_000 else 4):
        records = [record(at, content) for at, (content, _) in enumerate(messages)]
        pieces = [records[at : at + AT_ONCE] for at in range(0, len(records), AT_ONCE)]
        told = decoded(monkeypatch, root / str(turn), pieces, len(records))
        _check(messages, told, tally if turn == 0 else FaultTally("again"))
        assert told.groups == wanted(good)
        del records, pieces, told
        gc.collect()
        sizes.append(process.memory_info().rss)
    assert max(sizes[1:]) - sizes[0] < GROWTH_BYTES_MAX, sizes


def _check(messages: Sequence[tuple[bytes, str | None]], told: Told, tally: FaultTally) -> None:
    bad = {at: name for at, (_, name) in enumerate(messages) if name is not None}
    for name in bad.values():
        tally.plan(name)
    found = Counter(reject["offset"] for reject in told.rejects)
    tally.inputs, tally.outputs = len(messages), told.report.decoded + sum(found.values())
    tally.lost = len(bad.keys() - found.keys())
    tally.duplicates = sum(times - 1 for times in found.values())
    places = [reject["offset"] for reject in told.rejects]
    tally.out_of_order = sum(a >= b for a, b in pairwise(places))
    assert set(found) == set(bad)
    for reject in told.rejects:
        at = reject["offset"]
        tally.fire(bad[at])
        content = messages[at][0]
        assert reject["raw"] == content[:QUARANTINE_BYTES_MAX]
        assert reject["raw_bytes"] == len(content)
        assert 0 < len(reject["reason"]) <= REASON_CHARACTERS_MAX
    report = told.report
    assert (report.read, report.quarantined) == (len(messages), len(bad))
    assert report.decoded == len(messages) - len(bad)
    assert report.rows == ROWS * report.decoded


def test_two_thousand_bad_messages_between_good_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = FaultTally("input, short")
    check_mixture(2_000, tally, tmp_path, monkeypatch)
    tally.close()


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_ten_thousand_bad_messages_between_good_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = FaultTally("input")
    check_mixture(10_000, tally, tmp_path, monkeypatch)
    tally.close()


def test_giants_are_refused_by_their_size_and_their_neighbours_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten messages of 50 MB: none is parsed, none is kept whole."""
    whole = good_message(1)
    giant = whole[:-1] + b', "more": "' + b"x" * (50 * 1024 * 1024) + b'"}'
    contents = [giant if at % 2 else good_message(at) for at in range(20)]
    before = psutil.Process().memory_info().rss
    told = decoded(
        monkeypatch, tmp_path, ([record(at, each)] for at, each in enumerate(contents)), 20
    )
    assert told.groups == wanted(range(0, 20, 2))
    assert [reject["offset"] for reject in told.rejects] == list(range(1, 20, 2))
    assert all(str(MESSAGE_BYTES_MAX) in reject["reason"] for reject in told.rejects)
    assert {reject["raw_bytes"] for reject in told.rejects} == {len(giant)}
    assert psutil.Process().memory_info().rss - before < 300 * 1024 * 1024


@pytest.mark.parametrize("opened, closed", [(b"[", b"]"), (b'{"a":', b"}")])
def test_no_depth_breaks_the_reader(
    opened: bytes, closed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths = [1_001, 20_000, 100_000, 500_000]  # short messages may nest as they can
    contents = [opened * depth + b"1" + closed * depth for depth in depths]
    contents += [good_message(1)[:-1] + b', "more": ' + content + b"}" for content in contents]
    contents.append(good_message(9))
    told = decoded(
        monkeypatch, tmp_path, [[record(at, each) for at, each in enumerate(contents)]], 9
    )
    assert len(told.rejects) == 8 and told.groups == wanted([9])


def test_eight_megabytes_of_brackets_cost_no_more_than_a_moment() -> None:
    """They are refused by their depth, which is seen without taking them apart level by level:
    that took seven seconds a message, and a topic can hold many."""
    content = b"[" * 4_000_000 + b"1" + b"]" * 4_000_000
    began = time.process_time()
    told = json_text.is_too_deep(content)
    assert told and time.process_time() - began < 1.5


def test_a_clock_a_year_ahead_is_refused_and_the_rows_behind_it_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    year_ms = 365 * 24 * 3_600 * 1_000
    ahead = good_message(2).replace(str(1_700_000_000_002).encode(), str(NOW_MS + year_ms).encode())
    contents = [good_message(1), ahead, good_message(3)]
    told = decoded(
        monkeypatch, tmp_path, [[record(at, each) for at, each in enumerate(contents)]], 3
    )
    assert told.groups == wanted([1, 3])
    assert told.rejects[0]["quarantine_code"] == "future"
    assert told.report.event_time_max == 1_700_000_000_003  # and nothing is late because of it


def test_nothing_but_bad_input_stops_the_job_by_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [spoil for _, spoil in kinds()]
    records = [record(at, named[at % len(named)](good_message(at))) for at in range(1_000)]
    told = decoded(monkeypatch, tmp_path, [records], len(records))
    Outcome(ranges=[told.report]).check_reports([OffsetRange("items", 0, 0, 1_000)])
    limits = InputLimits(load_spec({**SPEC, "max_bad_fraction": 0.9}))
    with pytest.raises(
        InputRefused, match=r"1000 of the last 1000 messages are bad.*max_bad_fraction"
    ):
        limits.check([told.report])


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_ten_thousand_bad_messages_through_kafka_spark_and_delta(by_hand: ByHand) -> None:
    messages = list(mixture(10_000, seed=2))
    tally = FaultTally("input, through Kafka, Spark and Delta")
    source = {**SPEC["source"], "topic": by_hand.topic}  # type: ignore[dict-item]
    job = by_hand.job({**SPEC, "source": source})
    for start in range(0, len(messages), 4_000):
        job.epoch_of([(0, content) for content, _ in messages[start : start + 4_000]])
    good = [at + 1 for at, (_, name) in enumerate(messages) if name is None]
    assert {key[0]: row for key, row in job.results().items()} == wanted(good)
    found = Counter(reject["offset"] for reject in job.quarantine())
    bad = {at: name for at, (_, name) in enumerate(messages) if name is not None}
    for at, name in bad.items():
        tally.plan(name)
        if at in found:
            tally.fire(name)
    tally.inputs, tally.outputs = len(messages), len(good) + sum(found.values())
    tally.lost = len(bad.keys() - found.keys())
    tally.duplicates = sum(times - 1 for times in found.values())
    assert set(found) == set(bad)
    tally.close()
