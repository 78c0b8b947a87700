"""Views under the event clock and after retention: what a job of their own would have."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from jobs.edge.table.reading import TableReader
from jobs.edge.table.retention import expire_history
from jobs.reading.history import HistoryGone
from tests.support.jobs.canal_messages import insert, row, timed_messages
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand


def shown(job: EpochsByHand) -> dict[Any, Any]:
    """The results that readers see; others are withheld."""
    return TableReader.open(job.place).results()


def test_views_under_the_event_clock_release_their_results_as_jobs_of_their_own(
    by_hand: ByHand,
) -> None:
    views = {
        "sums": "SELECT k, SUM(v) AS s FROM t GROUP BY k",
        "tops": "SELECT k, MAX(v) AS top FROM t WHERE v > 2 GROUP BY k",
        "whole": "SELECT COUNT(*) AS n FROM t",
    }
    keys = {
        "columns": {"k": "STRING", "v": "INT", "t": "TIMESTAMP(3)"},
        "watermark": {"time": {"column": "t"}, "idle_after": "1h"},
        "minibatch": {"clock": "event", "interval": "5s"},
        "max_bad_fraction": 1.0,
    }
    job = by_hand.views(views, **keys, at="all", partitions=2)
    alone = {
        name: by_hand.job({**keys, "query": query}, at=f"own-{name}", partitions=2)
        for name, query in views.items()
    }
    dice, live, withheld = Random("event clock"), list[dict[str, str | None]](), 0
    for number in range(5):
        job.epoch_of(timed_messages(dice, live))
        for own in alone.values():
            own.epoch()
        withheld += any(job.at_view(name).epochs()[-1].withholds for name in views)
        if number % 2:
            job.restart()
        for name, own in alone.items():
            seen = job.at_view(name)
            assert shown(seen) == shown(own), (number, name)
            assert sorted(seen.lines()) == sorted(own.lines()), (number, name)
    assert withheld, "no results were withheld"


def test_retention_leaves_every_view_whole(by_hand: ByHand) -> None:
    views = {
        "": "SELECT k, SUM(v) AS s FROM t GROUP BY k",
        "tops": "SELECT MAX(v) AS top FROM t",
        "some": "SELECT COUNT(*) AS n FROM t WHERE v > 1",
    }
    job = by_hand.views(views, columns={"k": "STRING", "v": "INT"}, partitions=2)
    for value in range(1, 5):
        job.epoch_of([(0, insert(row("a", value))), (1, insert(row("b", 10 * value)))])
    before = {name: job.at_view(name).results() for name in views}
    old = expire_history(job.pipeline.table, 10**18, 3, "0" * 32)
    assert old is not None and old.epoch_max == 3
    job.pipeline.table.commit(old.added, old.removed, uuid="0" * 32, what="retention")
    job.restart()
    for name in views:
        reader = TableReader.open(job.at_view(name).place)
        assert reader.results() == before[name], name
        assert [row.epoch for row in reader.kept_epochs] == [4]
        assert reader.start is not None and reader.start.counts.read == 8 - 2
        with pytest.raises(HistoryGone):
            reader.changes(2)
    job.epoch_of([(0, insert(row("a", 90)))])
    found = {name: TableReader.open(job.at_view(name).place).results() for name in views}
    assert found == {"": {("a",): (100,), ("b",): (100,)}, "tops": {(): (90,)}, "some": {(): (8,)}}
