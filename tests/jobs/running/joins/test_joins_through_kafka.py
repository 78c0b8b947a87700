"""Jobs with joins from Kafka to the table: after every epoch each view is what DuckDB says."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from jobs.changing.clone import clone
from jobs.changing.rewind import rewind
from jobs.core.job.cloning import clone_spec
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.compaction import BASE_TIER, Merge, merge_files
from jobs.reading.files import own_files, place_file
from jobs.reading.parts import STATE
from jobs.running.outcome import InputRefused
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.jobs.joined_tables import QUERIES, JoinedTables

pytestmark = pytest.mark.costly("a dozen joins after every epoch, restart, merge, rewind and clone")


def test_each_view_is_exact_after_every_epoch_and_restart(by_hand: ByHand) -> None:
    tables = JoinedTables.create(by_hand, QUERIES)
    job = tables.job
    for number in range(5):
        tables.send(tables.change(tables.rng.choice([3, 25])))
        row = job.epoch()
        assert row.epoch == number + 1
        assert tables.results() == tables.truth()
        if number % 3 == 2:
            job.restart()
        if number == 3:  # another host has no hot state
            shutil.rmtree(job.cache.parent)


@pytest.mark.slow
def test_rows_that_are_retracted_before_they_come_end_in_the_same_result(by_hand: ByHand) -> None:
    tables = JoinedTables.create(by_hand, QUERIES, seed=1)
    changes = tables.change(120)
    tables.rng.shuffle(changes)
    for start in range(0, len(changes), 20):
        tables.send(changes[start : start + 20])
        tables.job.epoch()
    assert tables.results() == tables.truth()
    assert all(row.counts.groups_below_zero >= 0 for row in tables.job.epochs())


@pytest.mark.slow
def test_sources_with_dedupe_are_joined_as_if_nothing_were_repeated(by_hand: ByHand) -> None:
    keyed = {"primary_key": ["id"], "dedupe": "pk"}
    tables = JoinedTables.create(by_hand, QUERIES, seed=2, **keyed)
    for number in range(5):
        tables.send(tables.change_by_id(20), by_id=True)
        tables.job.epoch()
        assert tables.results() == tables.truth()
        if number == 2:
            tables.job.restart()
    counts = tables.job.pipeline.newest.counts
    assert counts.images == sum(map(len, tables.live.values()))


def test_a_joined_row_on_which_an_expression_fails_counts_for_nothing_while_it_is_there(
    by_hand: ByHand,
) -> None:
    query = (
        "SELECT w, SUM(12 / (v + b.id)) AS s, COUNT(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY w"
    )
    tables = JoinedTables.create(by_hand, [query])
    good, failing, divisor = (1, 1, 3), (2, 1, -1), (1, 1, "x")
    tables.send([("a", 1, good), ("a", 1, failing), ("b", 1, divisor)])
    tables.job.epoch()
    assert tables.results() == {"q0": {("x", 3, 1): 1}}
    counts = tables.job.pipeline.newest.counts
    assert (counts.failing_rows, counts.quarantined) == (1, 0)
    assert "division by zero" in str(counts.failing_reason)
    tables.send([("a", -1, failing)])
    tables.job.epoch()
    assert tables.results() == {"q0": {("x", 3, 1): 1}}
    assert tables.job.pipeline.newest.counts.failing_rows == 0


def test_a_key_with_many_rows_on_both_sides_takes_several_epochs_or_stops_the_job_by_name(
    by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.edge.rows.joined_rows.JOIN_PAIRS_MAX", 8)
    tables = JoinedTables.create(by_hand, QUERIES[:1])
    tables.send([("a", 1, (n, 7, n)) for n in range(3)])
    tables.job.epoch()
    tables.send([("b", 1, (n, 7, "xyz"[n])) for n in range(3)])
    tables.job.epoch()
    assert tables.job.pipeline.newest.epoch == 3  # one message, then two
    assert tables.results() == {"q0": {("x", 3, 3): 1, ("y", 3, 3): 1, ("z", 3, 3): 1}}
    monkeypatch.setattr("jobs.edge.rows.joined_rows.JOIN_PAIRS_MAX", 2)
    tables.send([("b", 1, (4, 7, "z"))])
    why = (
        r"^3 pairs of rows with the join key \(7,\) would change in one epoch: 3 rows of a and 4 "
        "rows of b have it, and at most 2 may; join by one more column"
    )
    with pytest.raises(InputRefused, match=why):
        tables.job.epoch()
    assert tables.job.pipeline.newest.epoch == 3


@pytest.mark.slow
def test_a_rewind_and_a_clone_take_the_rows_of_the_joins_with_them(by_hand: ByHand) -> None:
    tables = JoinedTables.create(by_hand, QUERIES, seed=3)
    job = tables.job
    epochs = [tables.change(30) for _ in range(2)]
    for changes in epochs:
        tables.send(changes)
        job.epoch()
    exact, place = tables.truth(), job.place.at_view("")
    with KafkaAdmin({"bootstrap_servers": [by_hand.brokers]}) as admin:
        assert rewind(place, "1", admin).row is not None
    copy = clone_spec(job.spec, "copied")
    clone(place, JobDirectory(job.home, copy.name), copy, None)
    for spec in (job.spec, copy):
        again = replace(tables, job=by_hand.reopen(spec))
        again.job.epoch()  # the second one again
        assert again.results() == exact


@pytest.mark.slow
def test_merged_sides_are_the_same_rows(by_hand: ByHand) -> None:
    keyed = {"primary_key": ["id"], "dedupe": "pk"}
    tables = JoinedTables.create(by_hand, QUERIES, seed=6, **keyed)
    job = tables.job
    for _ in range(4):
        tables.send(tables.change_by_id(25), by_id=True)
        job.epoch()
    table = job.pipeline.table
    for view, plan, root in job.pipeline.subtables:
        for part in STATE:
            files = [file for file in own_files(table.live_files(), view) if file.part == part]
            if len(files) > 1:
                uuid = f"merged-{view}-{part}"
                added = merge_files(plan, root, Merge(part, BASE_TIER, tuple(files)), uuid)
                old = [place_file(file, view) for file in files]
                table.commit([file.of_view(view) for file in added], old, uuid=uuid, what=uuid)
    shutil.rmtree(job.cache.parent)  # so that all state comes from the merged files
    job.restart()
    tables.send(tables.change_by_id(25), by_id=True)
    job.epoch()
    assert tables.results() == tables.truth()
