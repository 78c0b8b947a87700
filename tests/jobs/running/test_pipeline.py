"""The pipeline's behaviour, epoch by epoch, on a real broker, Spark and Delta.

what a message may be ─► folded, skipped, filtered, quarantined, or the job stops: never lost
what may happen between two epochs ─► the same changelog as if nothing had happened
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from jobs.edge.process import failpoints
from jobs.edge.process.broker import Broker
from jobs.edge.process.failpoints import FailpointError
from jobs.edge.state.catch_up import ZombieTask
from jobs.edge.table.delta_epochs import Fenced
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, MULTISETS, QUARANTINE
from jobs.running.outcome import InputRefused
from schemas.limits import BAD_FRACTION_MESSAGES_MIN, QUARANTINE_BYTES_MAX
from schemas.table.parquet_file import TableFileGone
from tests.support.histories.products import COLUMNS, DATABASE, TABLE, Message, history
from tests.support.jobs.canal_messages import delete, insert, message, row
from tests.support.jobs.epochs_by_hand import EpochsByHand, spec_of
from tests.support.jobs.running_job import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OpenJob = Callable[..., EpochsByHand]


@pytest.fixture
def open_job(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> OpenJob:
    """Makes a job over the test's topic; keys of the spec may be given, also those of `source`."""

    def make(
        query: str = "SELECT k, SUM(v) AS s, MAX(v) AS top FROM t GROUP BY k",
        *,
        columns: dict[str, str] | None = None,
        partitions: int = 2,
        home: str = "data",
        topics: list[str] | None = None,
        **keys: Any,
    ) -> EpochsByHand:
        named = topics or [topic]
        for name in named:
            create_topic(broker.address, name, partitions)
        source = {"topics": named, **keys.pop("source", {})}
        document = {
            "source": source,
            "columns": columns or {"k": "STRING", "v": "INT"},
            "query": query,
            **keys,
        }
        return EpochsByHand(spark, broker.address, tmp_path / home, spec_of(document))

    return make


def nothing_of(job: EpochsByHand, epoch: int) -> None:
    """The table stands where it stood: nothing of a later epoch is in it."""
    assert job.epochs()[-1].epoch == epoch
    assert job.pipeline.newest.epoch == epoch
    assert all(row["epoch"] <= epoch for row in job.quarantine())
    job.results()


# --- epochs without data ----------------------------------------------------------------------


def test_an_epoch_without_data_keeps_offsets_and_the_state_goes_on_over_it(
    open_job: OpenJob,
) -> None:
    job = open_job()
    first = job.epoch_of([(0, insert(row("a", 1), row("b", 2)))])
    timed = job.time_epoch()
    assert (timed.kind, timed.epoch) == ("time", 2)
    assert timed.offsets == first.offsets
    assert timed.counters["groups"] == 2
    assert timed.files == {}
    job.epoch_of([(0, insert(row("a", 5)))])
    assert job.lines(3) == ["-U a 1 1", "+U a 6 5"]
    job.time_epoch()
    job.restart()
    job.time_epoch()
    job.epoch_of([(0, delete(row("a", 5)))])
    assert job.lines(6) == ["-U a 6 5", "+U a 1 1"]
    shutil.rmtree(job.cache)
    job.time_epoch()
    job.epoch_of([(1, insert(row("a", 3)))])
    assert job.lines(8) == ["-U a 1 1", "+U a 4 3"]
    assert job.results() == {("a",): (4, 3), ("b",): (2, 2)}
    kinds = ["start", "data", "time", "data", "time", "time", "data", "time", "data"]
    assert [each.kind for each in job.epochs()] == kinds


# --- expressions that fail --------------------------------------------------------------------

CAST = "SELECT k, SUM(CAST(v AS INT)) AS s FROM t GROUP BY k"
TEXTS = {"k": "STRING", "v": "STRING"}
DIVISION = "SELECT k, SUM(12 / d) AS s FROM t WHERE 12 / d < 100 GROUP BY k"


@pytest.mark.parametrize(
    ("query", "columns", "good", "bad", "reason"),
    [
        (
            CAST,
            {"k": "STRING", "v": "STRING"},
            {"v": "3"},
            {"v": "three"},
            r"CAST\(v AS INT\).*v = 'three'",
        ),
        (DIVISION, {"k": "STRING", "d": "INT"}, {"d": "4"}, {"d": "0"}, r"12 / d.*d = 0"),
    ],
    ids=["cast", "division"],
)
def test_a_row_whose_expression_fails_sends_its_whole_message_to_quarantine(
    query: str,
    columns: dict[str, str],
    good: dict[str, str],
    bad: dict[str, str],
    reason: str,
    open_job: OpenJob,
) -> None:
    job = open_job(query, columns=columns)
    rows = {name: {"k": name, **good} for name in "abcd"}
    spoilt = {"k": "a", **bad}
    mixed = insert(rows["a"], spoilt, rows["b"])  # the rows around the bad one must not count
    again = message("UPDATE", [{"k": "a", **bad}, rows["c"]], [good, good])
    messages = [
        (0, insert(rows["a"], rows["d"], es=7_000)),
        (0, mixed),
        (0, insert(rows["b"], es=None)),
        (1, again),
        (1, insert(rows["c"], rows["c"])),
        (1, b"no JSON at all"),
    ]
    first = job.epoch_of(messages)
    assert sorted(job.lines(1)) == ["+I a 3", "+I b 3", "+I c 6", "+I d 3"]
    kept = job.quarantine()
    assert [(each["partition"], each["offset"], each["raw"]) for each in kept] == [
        (0, 1, mixed),
        (1, 0, again),
        (1, 2, b"no JSON at all"),
    ]
    for each in kept[:2]:
        assert re.search(reason, each["reason"]), each["reason"]
    names = ("read", "decoded", "quarantined", "rows", "event_times_missing")
    assert [first.counters[name] for name in names] == [6, 3, 3, 5, 1]
    assert first.watermarks["event_time_max"] == {
        f"{job.spec.source.topics[0]}/0": 7_000,
        f"{job.spec.source.topics[0]}/1": 1_000,
    }
    # What follows is folded over a state that knows nothing of them: the delete fails again.
    job.epoch_of([(0, delete(spoilt)), (0, delete(rows["a"]))])
    assert job.lines(2) == ["-D a 3"]
    assert [each["epoch"] for each in job.quarantine()].count(2) == 1
    job.results()


def test_a_bad_row_that_comes_and_goes_in_one_epoch_is_quarantined_both_times(
    open_job: OpenJob,
) -> None:
    job = open_job(CAST, columns=TEXTS)
    came, went = insert(row("a", "x"), row("b", "1")), delete(row("a", "x"))
    job.epoch_of([(0, came), (0, went), (0, insert(row("b", "2")))])
    assert [each["raw"] for each in job.quarantine()] == [came, went]
    assert job.lines() == ["+I b 2"]
    job.results()


@pytest.mark.parametrize(
    "watermark",
    [{"time": {"column": "at"}}, {"generator": "punctuated", "marker": "at IS NOT NULL"}],
)
def test_failing_rows_that_differ_in_time_or_mark_alone_are_all_refused(
    watermark: dict[str, Any], open_job: OpenJob
) -> None:
    query = "SELECT COUNT(*) AS n, SUM(CAST(name AS INT)) AS s FROM t"
    columns = {"name": "STRING", "at": "TIMESTAMP(3)"}
    job = open_job(query, columns=columns, watermark=watermark)
    times = [f"2026-01-01 00:00:0{second}.000" for second in range(4)]
    messages = [
        insert({"name": name, "at": at})
        for name, at in zip(["1", "x", "x", "5"], times, strict=True)
    ]
    job.epoch_of([(0, each) for each in messages])
    assert job.lines() == ["+I 2 6"]
    assert [each["raw"] for each in job.quarantine()] == messages[1:3]
    job.results()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, MAX(v) AS top FROM t GROUP BY k",
        "SELECT k, MAX(UPPER(v)) AS top FROM t GROUP BY k",
    ],
)
@pytest.mark.parametrize("partitions", [2, 8])  # a task reads several, and their sum counts
def test_rows_of_more_bytes_than_a_task_may_hold_are_folded_in_several_epochs(
    query: str, partitions: int, open_job: OpenJob
) -> None:
    job = open_job(query, columns={"k": "STRING", "v": "STRING"}, partitions=partitions)
    job.pipeline.task_bytes_max = 300_000
    texts = [f"{number:02}".upper() * 20_000 for number in range(40)]
    messages = [
        (number % partitions, insert({"k": "ab"[number // 2 % 2], "v": text}))
        for number, text in enumerate(texts)
    ]
    job.epoch_of(messages)
    read = [epoch.counters["read"] for epoch in job.epochs() if epoch.kind == "data"]
    assert sum(read) == 40 and max(read) * 40_000 <= 2 * 300_000
    assert job.results() == {("a",): (texts[37],), ("b",): (texts[39],)}
    with pytest.raises(InputRefused, match=r"one message have more bytes"):
        job.epoch_of([(0, insert({"k": "a", "v": "x" * 300_001}))])


def test_a_message_that_loses_its_rows_to_quarantine_leaves_others_as_heads(
    open_job: OpenJob,
) -> None:
    """The accumulate of b goes with its message; the retraction behind it is then a head."""
    job = open_job(CAST, columns=TEXTS, early_retractions="drop")
    done = job.epoch_of(
        [
            (0, insert(row("b", "1"), row("b", "x"))),
            (0, delete(row("b", "1"))),
            (0, insert(row("b", "5"))),
        ]
    )
    assert job.lines() == ["+I b 5"]
    assert done.counters["dropped_retractions"] == 1
    job.results()


def test_the_branch_that_is_not_taken_does_not_fail(open_job: OpenJob) -> None:
    query = (
        "SELECT k, SUM(CASE WHEN d <> 0 THEN 12 / d ELSE 0 END) AS s FROM t "
        "WHERE k <> 'c' AND CAST(k AS INT) < 5 GROUP BY k"
    )
    job = open_job(query, columns={"k": "STRING", "d": "INT"})
    rows = [{"k": k, "d": d} for k, d in (("1", "0"), ("1", "4"), ("c", "0"), ("7", "0"))]
    done = job.epoch_of([(0, insert(*rows))])
    assert job.lines() == ["+I 1 3"]
    assert not job.quarantine()
    assert done.counters["where_filtered"] == 2


# --- messages that are not taken --------------------------------------------------------------


def test_bad_messages_are_kept_once_with_their_bytes_and_the_good_ones_are_folded(
    open_job: OpenJob, broker: Broker, topic: str
) -> None:
    source = {"database": "^shop$", "table": "product"}
    job = open_job(source=source, on_truncate="quarantine")
    good = insert(row("a", "1"), row("b", "2"))
    giant = b'{"data": "' + b"x" * (QUARANTINE_BYTES_MAX + 10)
    bad: list[tuple[bytes, str, str]] = [  # bytes, a word of the reason, the path
        (good[:-3], "JSON", "$"),
        (b"\xff" + good, "UTF-8", "$"),
        (b"[1]", "object", "$"),
        (message("TRUNCATE", []), "TRUNCATE", "$.type"),
        (message("UPSERT", [row("a", "1")]), "UPSERT", "$.type"),
        (good.replace(b'"data"', b'"dada"'), "data is missing", "$.data"),
        (insert(row("a", "1"), row("a", "3.9")), "3.9", "$.data[1].v"),
        (insert(row("a", "2147483648")), "2147483648", "$.data[0].v"),
        (message("UPDATE", [row("a", "1")]), "old", "$.old"),
        (giant, "JSON", "$"),
    ]
    others = [
        (0, None),
        (0, message("ALTER", [], isDdl=True, sql="ALTER TABLE product ADD w INT")),
        (1, good.replace(b'"product"', b'"customer"')),
        (1, good),
    ]
    produce(broker.address, topic, [(0, value) for value, _, _ in bad[:-1]])
    large = Producer({"bootstrap.servers": broker.address, "message.max.bytes": 4_000_000})
    large.produce(topic, giant, partition=0)
    assert large.flush(30) == 0
    done = job.epoch_of(others)
    assert sorted(job.lines()) == ["+I a 1 1", "+I b 2 2"]
    kept = job.quarantine()
    assert [each["offset"] for each in kept] == list(range(len(bad)))
    for each, (value, word, path) in zip(kept, bad, strict=True):
        assert each["raw"] == value[:QUARANTINE_BYTES_MAX]
        assert each["raw_bytes"] == len(value)
        assert word in each["reason"]
        assert each["path"] == path
        assert (each["topic"], each["partition"], each["epoch"]) == (topic, 0, 1)
        assert abs(each["time"].timestamp() - time.time()) < 600
    names = ("read", "decoded", "skipped", "filtered", "quarantined", "rows")
    counted = [done.counters[name] for name in names]
    assert counted == [len(bad) + 4, 1, 2, 1, len(bad), 2]
    job.epoch_of([(1, good)])
    assert len(job.quarantine()) == len(bad)
    assert job.results() == {("a",): (2, 1), ("b",): (4, 2)}


def test_a_column_that_is_gone_stops_the_job_by_name_and_commits_nothing(open_job: OpenJob) -> None:
    job = open_job()
    job.epoch_of([(0, insert(row("a", 1)))])
    table = job.pipeline.table.version
    with pytest.raises(InputRefused, match=r"column v\b.*offset 1\b.*on_schema_change"):
        job.epoch_of([(0, insert({"k": "a"})), (1, insert(row("a", 2))), (1, b"bad")])
    nothing_of(job, 1)
    assert job.pipeline.table.version == table
    dropped = message("ALTER", [], isDdl=True, sql="ALTER TABLE product DROP COLUMN v")
    with pytest.raises(InputRefused, match=r"column v\b"):
        job.epoch_of([(1, dropped)])
    nothing_of(job, 1)
    # Nothing was skipped either: a job that may go on begins at the same offsets.
    going_on = job.spec.model_copy(update={"on_schema_change": "continue"})
    job = EpochsByHand(job.spark, job.brokers, job.home, going_on)
    done = job.epoch()
    assert job.results() == {("a",): (3, 2)}
    assert done.counters["rows"] == 2
    assert done.counters["quarantined"] == 1
    job.epoch_of([(0, insert({"k": "b"}))])
    assert job.results()[("b",)] == (None, None)


def test_on_error_fail_stops_at_the_first_bad_message_and_commits_nothing(
    open_job: OpenJob,
) -> None:
    job = open_job(CAST, columns=TEXTS, on_error="fail")
    job.epoch_of([(0, insert(row("a", "1")))])
    with pytest.raises(InputRefused, match=r"/1 offset 0: not JSON.*on_error: fail"):
        job.epoch_of([(0, insert(row("a", "2"))), (1, b"{")])
    nothing_of(job, 1)
    ends = job.ends()
    ends[job.spec.source.topics[0]]["1"] = 0
    job.epoch(ends)
    # A row whose expression fails is a bad message like any other.
    produce(job.brokers, job.spec.source.topics[0], [(0, insert(row("a", "x")))])
    ends[job.spec.source.topics[0]]["0"] += 1
    with pytest.raises(InputRefused, match=r"CAST\(v AS INT\)"):
        job.epoch(ends)
    nothing_of(job, 2)
    assert job.results() == {("a",): (3,)}


def test_too_many_bad_messages_stop_the_job_before_they_are_committed(open_job: OpenJob) -> None:
    job = open_job(max_bad_fraction=0.1)
    good, bad = insert(row("a", 1)), b"bad"
    few = BAD_FRACTION_MESSAGES_MIN // 2
    job.epoch_of([(0, bad)] * few)  # too few messages to judge by
    job.epoch_of([(0, good)] * (10 * few))
    assert len(job.quarantine()) == few
    share = BAD_FRACTION_MESSAGES_MIN // 10
    job.epoch_of([(1, bad)] * share + [(1, good)] * (BAD_FRACTION_MESSAGES_MIN - share))
    messages = [(1, bad)] * (share + 1) + [(1, good)] * (BAD_FRACTION_MESSAGES_MIN - share - 1)
    with pytest.raises(InputRefused, match=r"\d+ of the last \d+ messages are bad.*0\.1.*/1 off"):
        job.epoch_of(messages)
    nothing_of(job, 3)


# --- rows and offsets -------------------------------------------------------------------------


def test_where_decides_before_groups_and_what_it_removes_is_counted(open_job: OpenJob) -> None:
    job = open_job("SELECT k, COUNT(*) AS n, MIN(v) AS low FROM t WHERE v > 2 GROUP BY k")
    first = job.epoch_of(
        [(0, insert(row("a", 1), row("a", 3))), (1, insert(row("b", 2), row("c", None)))]
    )
    assert job.lines(1) == ["+I a 1 3"]
    assert first.counters["where_filtered"] == 3
    assert first.counters["shipped"] == 4
    changed = message("UPDATE", [row("a", 9), row("b", 4)], [{"v": 1}, {"v": 2}])
    second = job.epoch_of([(0, changed), (1, delete(row("a", 3)))])
    assert sorted(job.lines(2)) == ["+I b 1 4", "+U a 1 9", "-U a 1 3"]
    assert second.counters["rows"] == 5
    assert second.counters["where_filtered"] == 2
    assert second.counts.dropped_retractions == 0
    job.results()


@pytest.mark.slow
def test_two_topics_are_one_source(open_job: OpenJob, broker: Broker, topic: str) -> None:
    first, second = f"{topic}-a", f"{topic}-b"
    job = open_job(topics=[first, second])
    produce(broker.address, second, [(0, insert(row("a", 4))), (1, insert(row("b", 1)))])
    job.epoch_of([(0, insert(row("a", 1)))])
    produce(broker.address, second, [(0, delete(row("a", 4)))])
    job.epoch()
    assert job.results() == {("a",): (1, 1), ("b",): (1, 1)}
    assert job.pipeline.newest.offsets == {first: {"0": 1, "1": 0}, second: {"0": 2, "1": 1}}
    # A retraction in the first topic comes before its row, which the second topic has.
    done = job.epoch_of([(0, delete(row("c", 1)))])
    assert (job.lines(3), done.counts.groups_below_zero) == ([], 1)
    produce(broker.address, second, [(0, insert(row("c", 1), row("c", 2)))])
    done = job.epoch()
    assert (job.lines(4), done.counts.groups_below_zero) == (["+I c 2 2"], 0)
    produce(broker.address, second, [(0, b"bad")])
    job.epoch()
    assert [each["topic"] for each in job.quarantine()] == [second]


# --- what may happen between epochs -----------------------------------------------------------

EXTREMES = (
    "SELECT name, COUNT(*) AS n, SUM(cnt) AS s, MIN(cnt) AS low, MAX(note) AS last_note, "
    "AVG(weight) AS w FROM product GROUP BY name"
)


def test_whatever_happens_to_the_hot_state_the_changelog_is_the_same(
    open_job: OpenJob, tmp_path: Path, broker: Broker, topic: str
) -> None:
    keys: dict[str, Any] = {
        "columns": dict(COLUMNS),
        "partitions": 4,
        "source": {"database": DATABASE, "table": TABLE},
    }
    calm, shaken = (open_job(EXTREMES, home=home, **keys) for home in ("calm", "shaken"))
    away = tmp_path / "away"

    def bring_back() -> None:
        shutil.rmtree(shaken.cache)
        away.rename(shaken.cache)

    def forget_redo() -> None:
        redo = list(shaken.cache.glob("bucket-*/redo"))
        assert redo
        for path in redo:
            path.unlink()

    def forget_line() -> None:
        """As if it had been away for longer than anyone remembers."""
        pipeline = shaken.restart()
        pipeline.views[0].recent_epochs.clear()

    happens: dict[int, list[Callable[[], object]]] = {
        2: [lambda: shutil.rmtree(shaken.cache)],
        4: [lambda: shaken.cache.rename(away)],
        7: [bring_back],
        8: [shaken.restart],
        9: [lambda: spoil(shaken, lambda data: data[: len(data) // 2])],
        10: [lambda: spoil(shaken, lambda data: bytes(reversed(data)))],
        11: [forget_redo],
        12: [forget_line],
        13: [shaken.restart, forget_redo, lambda: spoil(shaken, lambda _: b"")],
    }
    for number, messages in enumerate(parts_of(history(5, messages=420).messages, 14), start=1):
        for happen in happens.get(number, []):
            happen()
        produce(broker.address, topic, [(each.partition, each.value) for each in messages])
        ends = calm.ends()
        left, right = calm.epoch(ends), shaken.epoch(ends)
        assert shaken.changelog(number) == calm.changelog(number), f"epoch {number}"
        assert calm.changelog(number), "nothing changed, so nothing was compared"
        # Times, and how many records came together: in a small piece one odd message is many.
        timed = dict.fromkeys(
            (
                "scanned",
                "compute_seconds",
                "decode_seconds",
                "fold_seconds",
                "rows_caught_up",
                "event_lag_ms",
                "phases_ms",
            ),
            0,
        )
        assert right.counters | timed == left.counters | timed
    assert repr(shaken.results()) == repr(calm.results())


def spoil(job: EpochsByHand, change: Callable[[bytes], bytes]) -> None:
    """Damage every bucket's file. Beside it and then in its place, as a bad copy would come."""
    files = list(job.cache.glob("bucket-*/data.mdb"))
    assert files
    for path in files:
        fresh = path.with_suffix(".bad")
        fresh.write_bytes(change(path.read_bytes()))
        fresh.replace(path)


def parts_of(messages: list[Message], count: int) -> Iterator[list[Message]]:
    size = len(messages) // count
    for number in range(count):
        yield messages[number * size : (number + 1) * size]


STATE_PARTS = (CHANGELOG, ACCUMULATORS, MULTISETS, QUARANTINE)


def test_a_zombie_behind_the_committed_line_writes_nothing(open_job: OpenJob) -> None:
    job = open_job()
    job.epoch_of([(0, insert(row("a", 1)))])
    zombie = job.pipeline
    job.restart()
    job.epoch_of([(0, insert(row("a", 2)))])
    job.epoch_of([(0, insert(row("a", 4)))])
    before = {part: job.files(part) for part in STATE_PARTS}
    with pytest.raises(ZombieTask, match="a newer writer is at work"):
        job.epoch(pipeline=zombie)
    assert {part: job.files(part) for part in STATE_PARTS} == before
    job.epoch_of([(0, insert(row("a", 8)))])
    assert job.lines(4) == ["-U a 7 4", "+U a 15 8"]
    job.results()


def test_a_zombie_that_meets_no_newer_state_is_stopped_by_the_commit(open_job: OpenJob) -> None:
    """Its group is in a bucket that its successor did not touch; only the table can tell."""
    job = open_job("SELECT SUM(v) AS s FROM t")
    job.epoch_of([(0, insert(row("a", 1)))])
    zombie = job.pipeline
    job.restart()
    job.time_epoch()
    produce(job.brokers, job.spec.source.topics[0], [(0, insert(row("a", 2)))])
    with pytest.raises(Fenced, match="another writer"):
        job.epoch(pipeline=zombie)
    job.epoch()
    assert job.lines(3) == ["-U 1", "+U 3"]
    job.results()


@pytest.mark.parametrize("anew", [False, True], ids=["same process", "new process"])
def test_an_epoch_that_was_computed_but_not_committed_leaves_no_trace(
    anew: bool, open_job: OpenJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = open_job()
    job.epoch_of([(0, insert(row("a", 1), row("b", 1)))])
    produce(job.brokers, job.spec.source.topics[0], [(0, insert(row("a", 2))), (1, b"bad")])
    written = job.files(CHANGELOG)
    for place in ("after_tasks", "before_commit"):
        with monkeypatch.context() as patch:
            patch.setitem(failpoints._POINTS, place, ("raise", 0))
            with pytest.raises(FailpointError):
                job.epoch()
    assert len(job.files(CHANGELOG)) > len(written), "the tasks did not run"
    nothing_of(job, 1)
    if anew:
        job.restart()
    done = job.epoch_of([(0, delete(row("a", 1)))])  # the same offsets, and one more
    assert done.epoch == 2
    assert job.lines(2) == ["-U a 1 1", "+U a 2 2"]
    job.epoch_of([(0, insert(row("a", 1)))])
    assert job.results() == {("a",): (3, 2), ("b",): (1, 1)}
    assert len(job.quarantine()) == 1


def test_a_file_removed_under_a_job_is_named_once_it_is_needed(open_job: OpenJob) -> None:
    job = open_job()
    job.epoch_of([(0, insert(row("a", 1), row("b", 2)))])
    (name,) = job.pipeline.newest.files[ACCUMULATORS]
    kept = (job.root / name).read_bytes()
    (job.root / name).unlink()
    job.epoch_of([(0, insert(row("a", 3)))])  # the hot state has what was in it
    assert job.lines(2) == ["-U a 1 1", "+U a 4 3"]
    with pytest.raises(TableFileGone, match=re.escape(name)):
        job.results()  # as any reader of the state
    shutil.rmtree(job.cache)
    job.restart()
    with pytest.raises(TableFileGone, match=re.escape(name)):
        job.epoch_of([(0, insert(row("b", 5)))])
    assert job.pipeline.newest.epoch == 2
    (job.root / name).write_bytes(kept)
    job.epoch()
    assert job.results() == {("a",): (4, 3), ("b",): (7, 5)}
