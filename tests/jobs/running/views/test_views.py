"""A job with several views: one decoding and one commit, and each view as in a job of its own.

random histories ─► a job with views ─► each view ─┬─ DuckDB over the live rows, each epoch
               └──► jobs with one query ───────────┴─ the same changelog, each epoch
"""

from __future__ import annotations

import shutil
from random import Random
from typing import Any

import duckdb
import pytest

from jobs.core.values.change import Row
from jobs.edge.process import failpoints
from jobs.edge.process.failpoints import FailpointError
from jobs.edge.table.reading import TableReader
from jobs.edge.tasks.range_report import RangeReport
from jobs.edge.tasks.reject_writer import ViewRejects
from jobs.reading.parts import CHANGELOG, QUARANTINE
from jobs.running.outcome import InputLimits, InputRefused
from schemas.limits import BAD_FRACTION_MESSAGES_MIN
from tests.support.histories.judge import QUERIES, Judge
from tests.support.histories.products import COLUMNS, history, live_rows
from tests.support.jobs.canal_messages import insert, row, timed_messages
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand, spec_of
from tests.support.sampling import quick

PLAIN = {f"plain-{number}": QUERIES[number][0] for number in range(3)}
EVALUATED = {
    "cheap": "SELECT UPPER(name) AS name, COUNT(*) AS n, MAX(price * 2) AS p FROM product "
    "WHERE cnt < 2 GROUP BY UPPER(name)",
    "sets": "SELECT region, name, COUNT(*) AS n FROM product "
    "GROUP BY GROUPING SETS ((region), (name), ())",
}
VIEW_A = {"a": {"query": "SELECT COUNT(*) AS n FROM t"}}
BATCH = 40


@pytest.mark.parametrize(
    "kind", quick(["plain", "mixed", "with a query"], ["mixed", "with a query"])
)
@pytest.mark.parametrize("seed", quick(range(3), [0]))
def test_each_view_is_at_each_epoch_what_duckdb_computes_and_what_its_own_job_emits(
    seed: int, kind: str, by_hand: ByHand
) -> None:
    views = dict(PLAIN) if kind == "plain" else {**PLAIN, **EVALUATED}
    if kind == "with a query":
        views = {"": PLAIN["plain-0"], "plain-1": PLAIN["plain-1"], "cheap": EVALUATED["cheap"]}
    keys = {
        "columns": COLUMNS,
        "source": {"topic": by_hand.topic, "database": "shop", "table": "product"},
    }
    job = by_hand.views(views, **keys, at="all", partitions=4)
    alone = {
        name: by_hand.job({**keys, "query": query}, at=f"own-{name}", partitions=4)
        for name, query in views.items()
    }
    judges = {name: Judge(int(name[-1])) for name in views if name.startswith("plain-")}
    runs = {name: judge.begin(f"history {seed}") for name, judge in judges.items()}
    made, live, dice = history(seed, 4 * BATCH), dict[int, Row](), Random(seed)
    for number in range(4):
        sent = made.messages[number * BATCH : (number + 1) * BATCH]
        job.epoch_of([(each.partition, each.value) for each in sent])
        live_rows(live, sent)
        for name, own in alone.items():
            seen = job.at_view(name)
            own.epoch()
            assert sorted(seen.lines(number + 1)) == sorted(own.lines(number + 1)), name
            results = seen.results()
            assert results == own.results(), name
            if name in judges:
                judges[name].claim(runs[name], number, results, list(live.values()))
        if dice.random() < 0.5:
            job.restart()
        if dice.random() < 0.3:
            shutil.rmtree(job.at_view(next(iter(views))).cache, ignore_errors=True)
    for judge in judges.values():
        assert judge.decide(duckdb.connect()) == 4


def test_nothing_of_any_view_is_left_of_an_epoch_that_was_not_committed(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = {
        "sums": "SELECT k, SUM(v) AS s FROM t GROUP BY k",
        "tops": "SELECT MAX(v) AS top FROM t",
        "counts": "SELECT COUNT(*) AS n FROM t WHERE v > 1",
    }
    columns = {"k": "STRING", "v": "INT"}
    job = by_hand.views(views, columns=columns, partitions=2)
    job.epoch_of([(0, insert(row("a", 1), row("b", 2)))])
    for place in ("after_tasks", "before_commit"):
        with monkeypatch.context() as patch:
            patch.setitem(failpoints._POINTS, place, ("raise", 0))
            with pytest.raises(FailpointError):
                job.epoch_of([(1, insert(row("a", 5)))])
        for name in views:
            reader = TableReader.open(job.at_view(name).place)
            assert reader.newest.epoch == 1
            job.at_view(name).results()
    job.restart()
    job.epoch()
    found = {name: job.at_view(name).results() for name in views}
    assert found == {
        "sums": {("a",): (11,), ("b",): (2,)},
        "tops": {(): (5,)},
        "counts": {(): (3,)},
    }
    (whole,) = (row.views for row in [job.pipeline.newest])
    assert whole == ("sums", "tops", "counts")


def test_a_message_on_which_one_view_fails_is_in_the_quarantine_of_that_view_only(
    by_hand: ByHand,
) -> None:
    views = {
        "numbers": "SELECT k, SUM(CAST(v AS INT)) AS s FROM t GROUP BY k",
        "all": "SELECT COUNT(*) AS n FROM t",
    }
    columns = {"k": "STRING", "v": "STRING"}
    job = by_hand.views(views, columns=columns, max_bad_fraction=1.0, partitions=2)
    bad = insert(row("a", "1"), row("a", "three"))
    job.epoch_of([(0, insert(row("a", "2"))), (0, bad), (1, insert(row("b", "4"))), (1, b"no")])
    numbers, whole = job.at_view("numbers"), job.at_view("all")
    assert numbers.results() == {("a",): (2,), ("b",): (4,)}
    assert whole.results() == {(): (4,)}
    assert [each["raw"] for each in whole.quarantine()] == [b"no"]
    refused = {each["raw"]: each["reason"] for each in numbers.quarantine()}
    assert set(refused) == {bad, b"no"}
    assert refused[bad].startswith("view numbers: ") and "v = 'three'" in refused[bad]
    assert numbers.epochs()[-1].counts.quarantined == 2
    assert whole.epochs()[-1].counts.quarantined == 1
    job.restart()
    job.epoch_of([(0, insert(row("a", "5")))])
    assert numbers.results() == {("a",): (7,), ("b",): (4,)}


def test_what_the_own_query_refuses_is_beside_what_all_refuse_and_unseen_by_the_views(
    by_hand: ByHand,
) -> None:
    views = {
        "": "SELECT k, SUM(CAST(v AS INT)) AS s FROM t GROUP BY k",
        "all": "SELECT COUNT(*) AS n FROM t",
    }
    columns = {"k": "STRING", "v": "STRING"}
    job = by_hand.views(views, columns=columns, max_bad_fraction=1.0)
    bad = insert(row("a", "three"))
    job.epoch_of([(0, b"no"), (0, insert(row("a", "2"))), (0, bad)])
    whole = job.at_view("all")
    assert (job.results(), whole.results()) == ({("a",): (2,)}, {(): (2,)})
    assert {each["raw"] for each in job.quarantine()} == {bad, b"no"}
    seen = {
        view: {each["raw"] for each in TableReader.open(job.at_view(view).place).part(QUARANTINE)}
        for view in views
    }
    assert seen == {"": {bad, b"no"}, "all": {b"no"}}
    assert job.epochs()[-1].counts.quarantined == 2
    assert whole.epochs()[-1].counts.quarantined == 1


@pytest.mark.parametrize("view", ["", "numbers"])
def test_with_on_error_fail_an_expression_of_any_view_stops_the_job(
    view: str, by_hand: ByHand
) -> None:
    views = {
        view: "SELECT k, SUM(CAST(v AS INT)) AS s FROM t GROUP BY k",
        "all": "SELECT COUNT(*) AS n FROM t",
    }
    columns = {"k": "STRING", "v": "STRING"}
    job = by_hand.views(views, columns=columns, on_error="fail")
    with pytest.raises(InputRefused, match=r"CAST\(v AS INT\).*on_error: fail"):
        job.epoch_of([(0, insert(row("a", "2"))), (0, insert(row("a", "three")))])
    assert job.at_view("all").results() == {}


def test_bad_messages_of_the_view_that_refuses_the_most_count_for_max_bad_fraction() -> None:
    keys = {"source": {"topic": "t"}, "columns": {"k": "STRING"}, "max_bad_fraction": 0.5}
    limits = InputLimits(spec_of({**keys, "views": VIEW_A}, buckets=None))
    read = BAD_FRACTION_MESSAGES_MIN
    refused = [ViewRejects(view, read // 2, [], f"view {view}") for view in range(2)]
    limits.check([RangeReport(number=0, read=read, refused=refused)])
    refused[1].count += 1
    with pytest.raises(InputRefused, match=f"{read // 2 + 1} of the last {read} messages are bad"):
        limits.check([RangeReport(number=0, read=read, refused=refused)])


def test_views_with_windows_that_close_and_groups_that_expire_have_their_own_time(
    by_hand: ByHand,
) -> None:
    windows = (
        "SELECT k, window_start, SUM(v) AS s FROM t GROUP BY k, TUMBLE(t, INTERVAL '2' SECOND)"
    )
    views: dict[str, Any] = {
        "final": {"query": windows, "emit": "final"},
        "sums": "SELECT k, SUM(v) AS s FROM t GROUP BY k",
        "short": {
            "query": "SELECT k, COUNT(*) AS n FROM t GROUP BY k",
            "state": {"buckets": 4, "ttl": "1m"},
        },
    }
    keys = {
        "columns": {"k": "STRING", "v": "INT", "t": "TIMESTAMP(3)"},
        "watermark": {"time": {"column": "t"}, "idle_after": "1h"},
        "max_bad_fraction": 1.0,
    }
    job = by_hand.views(views, **keys, at="all", partitions=2)
    alone: dict[str, EpochsByHand] = {}
    for name, view in views.items():
        section: dict[str, Any] = view if isinstance(view, dict) else {"query": view}
        document = {**keys, **section}
        alone[name] = by_hand.job(document, at=f"own-{name}", partitions=2)
    jobs = [job, *alone.values()]
    dice, live = Random("views"), list[dict[str, str | None]]()
    for number in range(4):
        for each in jobs:
            each.now_ms = 1_000_000 + 40_000 * number
        sent = timed_messages(dice, live)
        job.epoch_of(list(sent))
        for own in alone.values():
            own.epoch()
        for each in jobs:
            each.time_epoch(0)
        if number == 1:
            job.restart()
        for name, own in alone.items():
            seen = job.at_view(name)
            assert seen.results() == own.results(), (number, name)
            assert sorted(seen.lines()) == sorted(own.lines()), (number, name)
            kept = [(each["partition"], each["offset"]) for each in seen.quarantine()]
            assert kept == [(each["partition"], each["offset"]) for each in own.quarantine()]
            assert len(seen.late()) == len(own.late()), (number, name)
    assert job.at_view("final").late(), "no row was late"
    assert job.at_view("short").epochs()[-1].counts.groups is not None
    files = job.pipeline.table.live_files()
    assert {"final:changelog", "sums:changelog"} <= {file.part for file in files}
    assert not {CHANGELOG} & {file.part for file in files}
    assert f"final:{QUARANTINE}" in {file.part for file in files}
