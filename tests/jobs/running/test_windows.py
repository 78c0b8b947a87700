"""Windows through Kafka, Spark and Delta say what the replay of the same messages says."""

from __future__ import annotations

import json
import shutil
from datetime import UTC
from itertools import product
from random import Random
from typing import Any

import pytest

from jobs.core.time.bundle_clocks import WATERMARK_MAX
from jobs.core.values.change import Op
from jobs.offline.replay import replay
from tests.support.histories.change_scripts import per_key, shown
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.sampling import quick

Message = tuple[int, bytes]  # its partition and value
TUMBLE = "TUMBLE(t, INTERVAL '10' SECOND)"
HOP = "HOP(t, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
SESSION = "SESSION(t, INTERVAL '1.5' SECOND)"
CUMULATE = "CUMULATE(t, INTERVAL '5' SECOND, INTERVAL '10' SECOND)"
WINDOWS = {"tumble": TUMBLE, "hop": HOP, "session": SESSION, "cumulate": CUMULATE}


def steps_of(epochs: list[list[Message]]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for epoch in epochs:
        steps += [{"message": value.decode(), "partition": number} for number, value in epoch]
        steps.append({"flush": True})
    return steps


def is_last(window: str, row: dict[str, Any]) -> bool:
    """Return whether a late row's window is the last one that the row is in."""
    if window == "hop":
        start = row["window_start"].replace(tzinfo=UTC).timestamp() * 1_000
        return bool(row["late_time_ms"] // 5_000 * 5_000 == start)
    return window != "cumulate" or (row["window_end"] - row["window_start"]).seconds == 10


# --- windows that close -----------------------------------------------------------------------


def moving_messages(random: Random, live: list[dict[str, str]], second: int) -> list[Message]:
    """Changes of rows around a second; some are much too old, an update may change the window."""
    made: list[Message] = []
    for _ in range(25):
        at = max(0, second + random.choice([0, 1, 2, 3, -4, -4, -12]))
        row = {
            "k": random.choice("ab"),
            "v": str(random.randint(1, 9)),
            "t": f"1970-01-01 00:{at // 60:02}:{at % 60:02}.{random.randint(0, 999):03}",
        }
        turn = random.random()
        document: dict[str, Any]
        if turn < 0.5 or not live:
            document = {"type": "INSERT", "data": [row]}
            live.append(row)
        elif turn < 0.8:
            place = random.randrange(len(live))
            old = {name: value for name, value in live[place].items() if value != row[name]}
            if not old:
                continue
            document = {"type": "UPDATE", "data": [row], "old": [old]}
            live[place] = row
        else:
            document = {"type": "DELETE", "data": [live.pop(random.randrange(len(live)))]}
        made.append((random.randint(0, 1), json.dumps(document).encode()))
    return made


@pytest.mark.parametrize(
    ("window", "emit"),
    quick(product(WINDOWS, ("final", "changes")), [("cumulate", "final"), ("session", "changes")]),
)
def test_windows_close_as_in_the_replay(window: str, emit: str, by_hand: ByHand) -> None:
    document = {
        "source": {"topic": by_hand.topic},
        "columns": {"k": "STRING", "v": "INT", "t": "TIMESTAMP(3)"},
        "query": "SELECT k, window_start, window_end, SUM(v) AS s, MAX(v) AS top FROM t "
        f"WHERE v > 1 GROUP BY k, {WINDOWS[window]}",
        "watermark": {"time": {"column": "t"}, "delay": "2s"},
        "minibatch": {"size": 100_000, "latency": "1h"},
        "emit": emit,
        "allowed_lateness": "3s",
    }
    random, live = Random(f"{window}{emit}"), list[dict[str, str]]()
    job = by_hand.job(document, partitions=2)
    steps: list[dict[str, Any]] = []
    for epoch, second in enumerate(range(10, 60, 8)):
        changes = moving_messages(random, live, second)
        job.epoch_of(changes)
        steps += steps_of([changes])
        watermark = job.pipeline.newest.watermarks["combined"]
        steps.append({"watermark": watermark})
        if epoch == 2:
            shutil.rmtree(job.cache)
        job.restart()
    output: list[str] = []
    late: list[tuple[int, int, dict[str, Any], int]] = []
    for each in replay({"name": "by-hand", **document}, steps):
        if each == {"watermark": WATERMARK_MAX}:
            break
        if "op" in each:
            output.append(shown(each["op"], each["row"].values()))
        elif "late" in each:
            row = each["late"]
            late.append((row["partition"], row["offset"], row["row"], row["weight"]))
        if each == {"watermark": watermark}:  # at the end of the input all others are told
            break
    assert per_key(job.lines(), 3) == per_key(output, 3)
    assert job.results()
    for row in job.epochs():
        if row.kind == "time":  # earlier windows first, whatever the buckets
            keys: list[Any] = [
                key for op, key, _ in job.changelog(row.epoch) if op is not Op.UPDATE_BEFORE
            ]
            assert keys == sorted(keys, key=lambda key: (key[2], key))
    found = [
        (row["partition"], row["offset"], json.loads(row["late_row"]), row["late_weight"])
        for row in job.late()
        if is_last(window, row)
    ]
    assert late
    assert sum(row.counters.get("late", 0) for row in job.epochs()) == len(late)
    assert sorted(map(str, late)) == sorted(map(str, found))


IN_ORDER: dict[str, dict[str, Any]] = {
    "bounded": {"delay": "2s", "within_epoch": True},
    "marks": {"generator": "punctuated", "marker": {"when": "v = 5", "time": "t"}},
}


@pytest.mark.parametrize(
    ("window", "section"),
    quick(product(("tumble", "hop"), IN_ORDER), [("hop", "bounded"), ("tumble", "marks")]),
)
def test_rows_are_late_by_the_rows_before_them_as_in_the_replay(
    window: str, section: str, by_hand: ByHand
) -> None:
    document = {
        "source": {"topic": by_hand.topic},
        "columns": {"k": "STRING", "v": "INT", "t": "TIMESTAMP(3)"},
        "query": f"SELECT k, window_start, SUM(v) AS s FROM t GROUP BY k, {WINDOWS[window]}",
        "watermark": {"time": {"column": "t"}, **IN_ORDER[section]},
        "minibatch": {"size": 100_000, "latency": "1h"},
        "emit": "final",
    }
    random, live = Random(f"{window}{section}"), list[dict[str, str]]()
    job = by_hand.job(document, partitions=2)
    steps: list[dict[str, Any]] = []
    for second in range(10, 60, 8):
        changes = moving_messages(random, live, second)
        job.epoch_of(changes)
        steps += steps_of([changes])
        job.restart()
    output: list[str] = []
    late: list[tuple[int, int, dict[str, Any], int]] = []
    told: list[int] = []
    waiting: list[str] = []  # what the end of the input emits belongs to no epoch
    for each in replay({"name": "by-hand", **document}, steps):
        if "op" in each:
            waiting.append(shown(each["op"], each["row"].values()))
        elif "late" in each:
            row = each["late"]
            late.append((row["partition"], row["offset"], row["row"], row["weight"]))
        elif each != {"watermark": WATERMARK_MAX}:
            output, waiting = output + waiting, []
            told += [each["watermark"]] if "watermark" in each else []
    assert told
    assert told[-1] == job.pipeline.newest.watermarks["combined"]
    assert per_key(job.lines(), 2) == per_key(output, 2)
    found = [
        (row["partition"], row["offset"], json.loads(row["late_row"]), row["late_weight"])
        for row in job.late()
    ]
    assert late
    assert {str(each) for each in late} <= {str(each) for each in found}
    if window == "tumble":
        assert sorted(map(str, late)) == sorted(map(str, found))


def test_a_retraction_of_no_row_is_dropped_though_it_is_late_for_one_of_its_windows(
    by_hand: ByHand,
) -> None:
    document = {
        "source": {"topic": by_hand.topic},
        "columns": {"k": "STRING", "v": "INT", "t": "TIMESTAMP(3)"},
        "query": "SELECT k, window_start, SUM(v) AS s FROM t "
        "GROUP BY k, HOP(t, INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
        "watermark": {"time": {"column": "t"}, **IN_ORDER["bounded"]},
        "emit": "final",
        "early_retractions": "drop",
    }

    def change(kind: str, k: str, v: int, second: int) -> Message:
        row = {"k": k, "v": str(v), "t": f"1970-01-01 00:00:{second:02}.000"}
        return 0, json.dumps({"type": kind, "data": [row]}).encode()

    job = by_hand.job(document)
    first = job.epoch_of([change("INSERT", "a", 1, 20), change("DELETE", "b", 7, 13)])
    assert first.counters["dropped_retractions"] == 1
    job.epoch_of([change("INSERT", "a", 1, 59)])
    assert {key[0] for key in job.results()} == {"a"}
