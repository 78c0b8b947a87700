"""The tasks of an epoch without data, run as Spark runs them but without it.

FoldedTable: epochs of rows and of time ──► Delta ──► hot states in any condition ──► TimeTask
             MemoryState ──fold_time──► the changelog that must come out ──────────────┘
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from jobs.core.fold.rules import Rules
from jobs.core.fold.state import Clock
from jobs.core.sql.aggregate_calls import OperatorClass
from jobs.core.sql.select import parse_query
from jobs.edge.state.bucket_states import CommittedEpoch, CommittedState
from jobs.edge.table.compaction import BASE_TIER, Merge
from jobs.edge.table.file_writer import EpochAttempt
from jobs.edge.tasks.fold import FoldTask, TimeTask
from jobs.edge.tasks.fold_inputs import FoldReport
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, STATE, TIMERS
from schemas.table.epoch import EpochRow
from schemas.types.sql_types import BIGINT
from tests.support.jobs.operator_classes import ALLOWED, PREFIX
from tests.support.tables.folded_table import BUCKETS, COLUMNS, FoldedTable, delete, insert

TTL_MS = 1_000


def run_time(made: FoldedTable, line: list[EpochRow], cache: Path, release: bool) -> FoldReport:
    """The next epoch without data, in one task, as it would be before it is committed."""
    recent = tuple(map(CommittedEpoch.of, line))
    fold = FoldTask(
        made.plan,
        CommittedState(made.root, cache, recent[-1].stamp, made.table.version, recent),
        EpochAttempt(made.newest.epoch + 1, "next"),
        made.rules,
        made.now_ms,
    )
    (payload,) = TimeTask(fold, release)(range(BUCKETS))
    return msgspec.json.decode(payload, type=FoldReport)


def rows(made: FoldedTable, report: FoldReport, part: str) -> list[dict[str, Any]]:
    names = [file.path for file in (*report.files, *report.due) if file.part == part]
    return [row for name in names for row in pq.ParquetFile(made.root / name).read().to_pylist()]


@pytest.mark.parametrize("withhold", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_the_hot_state_has_seen_time_makes_the_same_due(
    seed: int, withhold: bool, tmp_path: Path
) -> None:
    chance = random.Random(f"time {seed}")
    made = FoldedTable(tmp_path / "epochs", rules=Rules(ttl_ms=TTL_MS, withhold=withhold))
    line, said = [made.newest], 0
    cache = tmp_path / "cache"
    live: Counter[str] = Counter()
    for number in range(8):
        changes = []
        for _ in range(chance.randint(0, 6)):
            name = chance.choice("abcdefgh")
            grown = live[name] == 0 or chance.random() < 0.6
            live[name] += 1 if grown else -1
            changes += insert(name, 7) if grown else delete(name, 7)
        line.append(made.epoch(changes, tasks=2))
        made.now_ms += chance.choice((0, 400, 1_000))
        what = chance.choice(("nothing", "forget", "leave behind", "merge"))
        if what == "forget":
            shutil.rmtree(cache, ignore_errors=True)
        elif what == "merge":
            for part in STATE:
                files = tuple(f for f in made.table.live_files() if f.part == part)
                if files:
                    made.merge(Merge(part, chance.choice((1, BASE_TIER)), files))
        if what == "leave behind":
            continue
        report = run_time(made, line, cache, release=withhold)
        before = len(made.changelog)
        line.append(made.time_epoch(release=withhold))
        wanted = [(seq, str(op), key[0]) for _, seq, (op, key, _) in made.changelog[before:]]
        found = [(row["seq"], row["op"], row["name"]) for row in rows(made, report, CHANGELOG)]
        assert found == wanted, f"seed {seed}, epoch {number}, {what}"
        first = first_timer(made)
        # Early costs a look in vain: it may be that of a group which has just ended.
        assert first is None or report.timers["processing"] <= first
        assert withhold or report.timers.get("processing") == first
        assert report.groups_delta == [op for _, op, _ in wanted].count("+I") - [
            op for _, op, _ in wanted
        ].count("-D")
        said += len(wanted)
    assert said > 0


def first_timer(made: FoldedTable) -> int | None:
    return made.state.next_timer(Clock.PROCESSING)


def test_an_epoch_in_which_nothing_is_due_writes_no_file(tmp_path: Path) -> None:
    made = FoldedTable(tmp_path / "epochs", rules=Rules(ttl_ms=TTL_MS))
    line = [made.newest, made.epoch(insert("a", 1) + insert("b", 2))]
    made.now_ms = TTL_MS - 1
    report = run_time(made, line, tmp_path / "cache", release=False)
    assert report.files == []
    assert report.timers == {"processing": TTL_MS}


def test_groups_that_expire_without_a_word_are_counted_and_leave_the_state(tmp_path: Path) -> None:
    rules = Rules(ttl_ms=TTL_MS, emit_expired=False)
    made = FoldedTable(tmp_path / "epochs", rules=rules)
    line = [made.newest, made.epoch(insert("a", 1) + insert("b", 2))]
    made.now_ms = TTL_MS
    report = run_time(made, line, tmp_path / "cache", release=False)
    assert rows(made, report, CHANGELOG) == []
    assert {row["name"]: row["tombstone"] for row in rows(made, report, ACCUMULATORS)} == {
        "a": True,
        "b": True,
    }
    assert all(row["tombstone"] for row in rows(made, report, TIMERS))
    assert (report.counters["expired_silently"], report.groups_delta) == (2, -2)
    assert report.timers == {}


@pytest.mark.parametrize(
    ("clock", "now_ms", "watermark"), [("event", 0, 30), ("processing", 30, 9)]
)
def test_a_task_fires_the_timers_of_a_class_from_the_table_alone(
    clock: str, now_ms: int, watermark: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETALLY_AGGREGATES", ALLOWED)
    timers = True if clock == "event" else clock
    burst = OperatorClass(f"{PREFIX}:Burst", BIGINT, timers)
    query = "SELECT name, BURST(v, 10) AS b FROM t GROUP BY name"
    plan = parse_query(query, COLUMNS, classes={"BURST": burst})
    made = FoldedTable(tmp_path / "epochs", plan)
    added = [(name, (at, 10)) for name, at in (("a", 0), ("a", 5), ("b", 50))]
    line = [made.newest, made.epoch([((name,), (row,), 1) for name, row in added])]
    recent = tuple(map(CommittedEpoch.of, line))
    state = CommittedState(
        made.root, tmp_path / "cache", recent[-1].stamp, made.table.version, recent
    )
    fold = FoldTask(plan, state, EpochAttempt(2, "next"), made.rules, now_ms, watermark)
    (payload,) = TimeTask(fold, release=False)(range(BUCKETS))
    report = msgspec.json.decode(payload, type=FoldReport)
    found = [(row["op"], row["name"], row["b"]) for row in rows(made, report, CHANGELOG)]
    assert found == [("-U", "a", None), ("+U", "a", 2)]
    assert report.timers == {clock: 60}, "that of b"
    gone = [(row["timer_ms"], row["tombstone"]) for row in rows(made, report, TIMERS)]
    assert gone == [(15, True)]
