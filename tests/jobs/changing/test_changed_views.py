"""A job with three views is changed as a whole: all of them go back, continue and are copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jobs.changing.clone import CannotClone, clone
from jobs.changing.offsets import move_offsets
from jobs.changing.rewind import rewind
from jobs.changing.savepoint import create_savepoint
from jobs.core.job.cloning import clone_spec
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.reading import TableReader
from schemas.spec.file import load_spec
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.jobs.canal_messages import delete, insert, row
from tests.support.jobs.epochs_by_hand import ByHand, EpochsByHand
from tests.support.sampling import quick

VIEWS = {
    "sums": "SELECT k, SUM(CAST(v AS INT)) AS s FROM t GROUP BY k",
    "tops": "SELECT k, MAX(v) AS top FROM t WHERE v <> '0' GROUP BY k",
    "whole": "SELECT COUNT(*) AS n FROM t",
}
BAD = insert(row("a", "three"))  # an expression of `sums` fails, the other views take it
EPOCHS = [
    [(0, insert(row("a", "1"), row("b", "2"))), (1, b"no")],
    [(0, insert(row("a", "5"))), (1, insert(row("c", "7")))],
    [(0, delete(row("a", "5"))), (0, BAD), (1, insert(row("b", "9"))), (1, b"no, again")],
]
Seen = dict[str, tuple[Any, Any]]


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        yield admin


@pytest.fixture(params=quick(["only views", "with a query"], ["with a query"]))
def job(request: pytest.FixtureRequest, by_hand: ByHand) -> EpochsByHand:
    views = dict(VIEWS)
    if request.param == "with a query":
        views = {"": VIEWS["whole"].replace("AS n", "AS m"), **VIEWS}
    columns = {"k": "STRING", "v": "STRING"}
    return by_hand.views(views, columns=columns, max_bad_fraction=1.0, retention="1h", partitions=2)


def look(job: EpochsByHand) -> Seen:
    """Return results and quarantine of each view; its changelog must lead to the results."""
    seen: Seen = {}
    for view in job.spec.view_specs:
        own = job.at_view(view)
        reader = TableReader.open(own.place)
        results = reader.results()
        assert fold_changelog({}, own.changelog()) == results, view
        assert reader.newest.groups == len(results), view
        seen[view] = results, [(each["partition"], each["offset"]) for each in own.quarantine()]
    return seen


def test_all_views_go_back_together_and_take_the_later_messages_again(
    job: EpochsByHand, admin: KafkaAdmin
) -> None:
    seen = [look(job)]
    for messages in EPOCHS:
        job.epoch_of(messages)
        seen.append(look(job))
        if len(seen) == 3:
            saved = create_savepoint(job.place.at_view(""), "two")
    assert saved.row.views == tuple(job.spec.view_specs)
    assert seen[3] != seen[2] and seen[3]["sums"][1] != seen[3]["whole"][1]
    for to, epoch in (("two", 2), ("1", 1), ("epoch-3", 3)):
        done = rewind(job.place.at_view(""), to, admin)
        assert done.row is not None
        assert done.row.offsets == job.epochs()[epoch].offsets
        assert done.row.counts.rewound_to == epoch
        assert look(job) == seen[epoch], to
        job.restart()
    rewind(job.place.at_view(""), "two", admin)
    job.restart()
    job.epoch()
    assert look(job) == seen[3]
    job.epoch_of([(0, delete(row("a", "1")))])
    assert look(job)["sums"][0][("c",)] == (7,)


def test_a_clone_has_every_view_and_continues_alone(job: EpochsByHand) -> None:
    for messages in EPOCHS[:2]:
        job.epoch_of(messages)
    before = look(job)
    create_savepoint(job.place.at_view(""), "two")
    job.epoch_of(EPOCHS[2])
    place, home = job.place.at_view(""), job.home
    spec = clone_spec(load_spec(place.spec), "other")
    row_of_clone = clone(place, JobDirectory(home, "other"), spec, "two")
    assert row_of_clone.groups == sum(len(results) for results, _ in before.values())
    other = EpochsByHand(job.spark, job.brokers, home, spec)
    assert look(other) == before
    other.epoch()
    assert look(other) == look(job)
    starts = {view: TableReader.open(other.at_view(view).place).start for view in spec.view_specs}
    assert all(start is not None and start.epoch == 0 for start in starts.values())


def test_a_clone_with_other_views_is_refused_by_name(job: EpochsByHand) -> None:
    job.epoch_of(EPOCHS[0])
    place = job.place.at_view("")
    document = clone_spec(load_spec(place.spec), "other").document()
    document["views"]["tops"]["query"] = "SELECT k, MIN(v) AS top FROM t GROUP BY k"
    document["views"]["whole"]["state"]["buckets"] = 8
    document["views"]["more"] = document["views"].pop("sums")
    with pytest.raises(CannotClone) as refused:
        clone(place, JobDirectory(job.home, "other"), load_spec(document), None)
    for key in ("views must be those", "views.tops.query", "views.whole.state.buckets"):
        assert key in str(refused.value)
    assert not JobDirectory(job.home, "other").has_table


@pytest.mark.slow
def test_moved_offsets_count_for_all_views(
    job: EpochsByHand, topic: str, admin: KafkaAdmin
) -> None:
    for messages in EPOCHS[:2]:
        job.epoch_of(messages)
    before = look(job)
    moved = move_offsets(job.place.at_view(""), {topic: {"0": 0}}, admin)
    assert moved.row is not None and moved.row.kind == "offsets"
    assert look(job) == before
    for view in job.spec.view_specs:
        assert TableReader.open(job.at_view(view).place).newest.moved == 3
    job.restart()
    job.epoch()
    assert job.pipeline.newest.moved == 3
    after = look(job)
    assert after["whole"][0] == {(): (7,)}  # the three rows of partition 0 once more
    assert after["sums"][0] == {("a",): (12,), ("b",): (4,), ("c",): (7,)}
    reset = move_offsets(job.place.at_view(""), None, admin)
    assert reset.row is not None and reset.row.offsets == {topic: {"0": 0, "1": 0}}
