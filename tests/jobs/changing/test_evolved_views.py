"""Views come, change and go while the others go on, as DuckDB has all of them after each step.

random rows ─► epochs ─► evolve ─► epochs ─► ... each view == the same SQL in DuckDB
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from jobs.changing.evolve import CannotEvolve, activate_replay, compare, evolve, prepare_replay
from jobs.edge.process import failpoints
from jobs.edge.process.failpoints import FailpointError
from jobs.edge.table.reading import TableReader
from jobs.reading.history import HistoryGone
from jobs.running.failure import SpecMisfit
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec
from tests.support.jobs.canal_messages import delete, insert, row
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand, of_view
from tests.support.sampling import quick

SUMS = "SELECT k, SUM(v) AS s, MAX(v) AS top FROM t GROUP BY k"
LOWS = "SELECT k, MIN(v) AS low, COUNT(DISTINCT v) AS kinds FROM t GROUP BY k"
WHOLE = "SELECT COUNT(*) AS n, MAX(v) AS highest FROM t"
BY_VALUE = "SELECT v, COUNT(*) AS times FROM t GROUP BY v"
LARGE = "SELECT k, COUNT(*) AS large FROM t WHERE v > 4 GROUP BY k"


@dataclass
class Evolving:
    """A job with views whose rows are known."""

    job: EpochsByHand
    random: Random
    live: list[tuple[str, int]] = field(default_factory=list)

    def feed(self, messages: int = 12) -> None:
        """One epoch of inserts and deletes; the messages of a key are in one partition.

        The last one is an insert, so that there are results after each epoch.
        """
        made = []
        for left in reversed(range(messages)):
            if left and self.live and self.random.random() < 0.35:
                gone = self.live.pop(self.random.randrange(len(self.live)))
                made.append((ord(gone[0]) % 2, delete(row(*gone))))
            else:
                self.live.append((self.random.choice("abcd"), self.random.randint(1, 9)))
                made.append((ord(self.live[-1][0]) % 2, insert(row(*self.live[-1]))))
        self.job.epoch_of(made)

    def spec(self, views: dict[str, str], query: str = "") -> JobSpec:
        document = self.job.spec.document()
        for key in ("query", "views", "state"):
            document.pop(key, None)
        if query:
            document |= of_view(query)
        if views:
            document["views"] = {name: of_view(text) for name, text in views.items()}
        return load_spec(document)

    @property
    def place(self) -> Any:
        return self.job.place.at_view("")

    def must_be_exact(self) -> None:
        """Every view has the results of DuckDB, and its changelog leads there."""
        t = pa.table(
            {
                "k": pa.array((k for k, _ in self.live), pa.string()),
                "v": pa.array((v for _, v in self.live), pa.int32()),
            }
        )
        for name, spec in self.job.spec.view_specs.items():
            seen = self.job.at_view(name)
            plan = seen.plan
            found = [
                tuple(
                    dict(
                        zip(
                            [*(g.name for g in plan.group), *(r for r, _ in plan.results)],
                            (*key, *result),
                            strict=True,
                        )
                    )[column]
                    for column in plan.output
                )
                for key, result in seen.results().items()
            ]
            wanted = _in_duckdb(spec.query, t)
            assert Counter(found) == Counter(wanted), name


def _in_duckdb(query: str, t: pa.Table) -> Iterable[tuple[Any, ...]]:
    rows = duckdb.connect().register("t", t).execute(query).fetchall()
    return rows if t.num_rows else []


@pytest.fixture
def evolving(by_hand: ByHand) -> Evolving:
    columns = {"k": "STRING", "v": "INT"}
    views = {"sums": SUMS, "whole": WHOLE}
    job = by_hand.views(views, columns=columns, partitions=2)
    made = Evolving(job, Random(by_hand.topic))
    made.feed()
    return made


def test_views_come_change_and_go_while_the_others_go_on(evolving: Evolving) -> None:
    evolving.must_be_exact()
    added = evolving.spec({"by-value": BY_VALUE, "sums": SUMS, "whole": WHOLE})
    with pytest.raises(CannotEvolve, match="view 'by-value': it is new, and the state of no"):
        evolve(evolving.place, added)
    evolving.job.replay(added)
    evolving.must_be_exact()
    evolving.feed()
    evolving.must_be_exact()

    # Another view has all values of v by k, so nothing is read again.
    kept = evolving.spec({"lows": LOWS, "by-value": BY_VALUE, "sums": SUMS, "whole": WHOLE})
    assert compare(evolving.place, kept).continues
    evolving.job.evolve(kept)
    evolving.must_be_exact()
    evolving.feed()
    evolving.must_be_exact()

    # One goes, one changes to what its state answers, and one to other rows.
    fewer = evolving.spec(
        {
            "by-value": BY_VALUE,
            "lows": LOWS,
            "whole": WHOLE.replace("MAX", "MIN").replace("highest", "lowest"),
        }
    )
    evolving.job.evolve(fewer)
    evolving.must_be_exact()
    others = evolving.spec({"by-value": BY_VALUE, "lows": LARGE, "sums": SUMS}, query=WHOLE)
    evolving.feed()
    evolving.job.replay(others)
    evolving.must_be_exact()
    evolving.feed()
    evolving.must_be_exact()
    kinds = [epoch.kind for epoch in evolving.job.epochs()]
    assert kinds == [
        "start",
        "data",
        "evolve",
        "data",
        "evolve",
        "data",
        "evolve",
        "data",
        "evolve",
        "data",
    ]


def test_a_view_that_came_later_has_no_earlier_history(evolving: Evolving) -> None:
    evolving.feed()
    evolving.job.replay(evolving.spec({"sums": SUMS, "whole": WHOLE, "by-value": BY_VALUE}))
    evolving.feed()
    new = TableReader.open(evolving.job.at_view("by-value").place)
    assert new.results(3)
    with pytest.raises(HistoryGone, match="history starts with epoch 3"):
        new.results(2)
    assert [change.epoch for change in new.changes(3)]
    old = TableReader.open(evolving.job.at_view("sums").place)
    assert old.results(1) and old.results(2) and next(old.changes(0)).epoch == 1
    assert old.newest.begins is False


@pytest.mark.slow
def test_a_job_with_one_query_gets_views_and_is_one_query_again(by_hand: ByHand) -> None:
    columns = {"k": "STRING", "v": "INT"}
    job = by_hand.views({"": SUMS, "whole": WHOLE}, columns=columns, partitions=2)
    evolving = Evolving(job, Random(by_hand.topic))
    evolving.feed()
    evolving.job.evolve(evolving.spec({}, query=SUMS))
    assert not evolving.job.pipeline.newest.views
    evolving.must_be_exact()
    evolving.feed()
    evolving.must_be_exact()
    evolving.job.evolve(evolving.spec({"lows": LOWS}, query=SUMS))
    assert evolving.job.pipeline.newest.views == ("", "lows")
    evolving.feed()
    evolving.must_be_exact()


@pytest.mark.parametrize("reads", quick([True, False], [False]))
def test_a_row_without_input_comes_with_the_topic_read_again_or_the_next_start(
    reads: bool, by_hand: ByHand
) -> None:
    job = by_hand.job({"columns": {"k": "STRING", "v": "INT"}, "query": WHOLE})
    if reads:
        job.epoch_of([(0, insert(row("a", 3))), (0, delete(row("a", 3)))])
    else:
        job.time_epoch()
    assert job.results() == {}
    old, spec = job.spec, load_spec(job.spec.document() | {"empty": "row"})
    with pytest.raises(CannotEvolve, match="`empty` changed"):
        evolve(job.place, spec)
    if reads:
        job.replay(spec)
    else:  # the shadow job has run no epoch
        prepare_replay(job.place, spec)
        activate_replay(job.place, spec)
        job.go_on(spec)
        assert job.results() == {}
        job.time_epoch()
    assert job.results() == {(): (0, None)}
    job.epoch_of([(0, insert(row("a", 5)))])
    assert job.lines()[-3:] == ["+I 0 NULL", "-U 0 NULL", "+U 1 5"]
    job.epoch_of([(0, delete(row("a", 5)))])
    job.restart()
    assert not job.pipeline.pass_time()
    job.replay(old)
    assert job.lines()[-1] == "-D 0 NULL"


@pytest.mark.parametrize("point", quick(["before_commit", "after_commit"], ["after_commit"]))
def test_a_killed_evolve_of_views_is_nothing_or_is_finished_by_who_comes_next(
    point: str, evolving: Evolving, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = evolving.spec({"lows": LOWS, "sums": SUMS})
    with monkeypatch.context() as patch:
        patch.setitem(failpoints._POINTS, point, ("raise", 0))
        with pytest.raises(FailpointError):
            evolve(evolving.place, spec)
    done = point == "after_commit"
    sums = TableReader.open(evolving.job.at_view("sums").place)
    assert sums.newest.epoch == (2 if done else 1)
    written = load_spec(evolving.place.spec).view_specs.keys()
    assert written == ({"lows", "sums"} if done else {"sums", "whole"})
    assert (evolve(evolving.place, spec).row is None) == done
    assert {path.stem for path in evolving.place.view_specs.glob("*.yaml")} == {"lows", "sums"}
    assert not evolving.place.next_spec.exists()
    evolving.job.go_on(spec)
    evolving.feed()
    evolving.must_be_exact()


def test_a_replay_goes_on_until_it_has_the_offsets_of_the_job(evolving: Evolving) -> None:
    spec = evolving.spec({"sums": SUMS, "by-value": BY_VALUE})
    evolving.job.read_again(spec)
    evolving.feed()  # the job goes on meanwhile
    with pytest.raises(CannotEvolve, match="run the same command once more"):
        activate_replay(evolving.place, spec)
    with pytest.raises(SpecMisfit, match="use retally evolve"):
        evolving.job.go_on(spec)
    evolving.job.replay(spec)
    evolving.must_be_exact()
    assert not evolving.place.shadow.home.exists()


def test_what_a_new_view_refuses_is_in_its_quarantine_and_answers_no_other_view(
    by_hand: ByHand,
) -> None:
    columns = {"k": "STRING", "v": "STRING"}
    job = by_hand.views(
        {"rows": "SELECT COUNT(*) AS n FROM t"}, columns=columns, max_bad_fraction=1.0, partitions=2
    )
    evolving = Evolving(job, Random(by_hand.topic))
    job.epoch_of([(0, insert(row("a", "2"))), (0, insert(row("a", "three"))), (1, b"no")])
    numbers = "SELECT k, SUM(CAST(v AS INT)) AS s FROM t GROUP BY k"
    views = {"rows": "SELECT COUNT(*) AS n FROM t", "numbers": numbers}
    evolving.job.replay(evolving.spec(views))
    job.epoch_of([(0, insert(row("b", "four"))), (1, insert(row("b", "5")))])
    seen = job.at_view("numbers")
    assert seen.results() == {("a",): (2,), ("b",): (5,)}
    assert job.at_view("rows").results() == {(): (4,)}
    own = TableReader.open(seen.place).part("quarantine")
    assert [(each["epoch"], each["offset"], "numbers" in each["reason"]) for each in own] == [
        (1, 0, False),
        (2, 1, True),
        (3, 2, True),
    ]
    counted = {**views, "by-key": "SELECT k, COUNT(*) AS rows_of_k FROM t GROUP BY k"}
    assert "it is new" in compare(evolving.place, evolving.spec(counted)).reasons[0]
