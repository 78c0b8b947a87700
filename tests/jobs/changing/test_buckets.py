"""State is restored, cloned and continued only in the buckets in which it was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from jobs.changing.clone import CannotClone, clone
from jobs.changing.evolve import CannotEvolve, evolve
from jobs.changing.rewind import CannotRewind, rewind
from jobs.changing.savepoint import create_savepoint
from jobs.core.job.cloning import clone_spec
from jobs.core.job.views import plans_of
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.reading import TableReader
from jobs.reading.version import newest_whole_row
from jobs.running.failure import SpecMisfit
from jobs.running.job_table import open_table
from jobs.running.views import RunningView
from schemas.spec.file import load_spec, spec_text
from schemas.types.sql_types import INT, STRING
from tests.support.tables.written_table import BUCKETS, WrittenTable

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
ADMIN = cast(Any, None)  # no topic is looked at before the buckets are


@pytest.fixture
def written(tmp_path: Path) -> WrittenTable:
    """A job whose own query was once in 8 buckets, then removed and added again."""
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    for buckets in (8, BUCKETS):
        share = {"plan": table.plan.fingerprint, "buckets": buckets, "counters": {"groups": 1}}
        table.epoch({("a",): (buckets,)}, views={"": share})
        create_savepoint(table.place, f"in-{buckets}")
    return table


def test_state_in_other_buckets_is_neither_restored_nor_cloned(written: WrittenTable) -> None:
    with pytest.raises(CannotRewind, match=r"epoch 1 .* other state\.buckets"):
        rewind(written.place, "in-8", ADMIN)
    spec = clone_spec(load_spec(written.place.spec), "other")
    other = JobDirectory(written.place.data, "other")
    with pytest.raises(CannotClone, match=r"epoch 1 .* other state\.buckets"):
        clone(written.place, other, spec, "in-8")
    clone(written.place, other, spec, f"in-{BUCKETS}")
    newest = newest_whole_row(other.table)
    assert newest is not None and newest.shares[""].buckets == BUCKETS


def test_the_state_of_one_query_says_itself_in_which_buckets_it_is(tmp_path: Path) -> None:
    """The row of an epoch of one query does not; the query was removed since, and came back."""
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({(name,): (1,) for name in "abcdef"})
    create_savepoint(table.place, "of-one-query")
    share = {"plan": table.plan.fingerprint, "buckets": 8, "counters": {"groups": 6}}
    table.epoch({}, views={"": share})
    spec, other = load_spec(table.place.spec), JobDirectory(tmp_path, "other")
    clone(table.place, other, clone_spec(spec, "other"), "of-one-query")
    assert len(TableReader.open(other).results()) == 6

    table.place.spec.write_text(spec_text(load_spec(spec.document() | {"state": {"buckets": 8}})))
    with pytest.raises(CannotRewind, match=r"epoch 1 .* other state\.buckets"):
        rewind(table.place, "of-one-query", ADMIN)
    another = clone_spec(load_spec(table.place.spec), "another")
    with pytest.raises(CannotClone, match=r"epoch 1 .* other state\.buckets"):
        clone(table.place, JobDirectory(tmp_path, "another"), another, "of-one-query")


def test_a_job_starts_only_with_the_buckets_of_its_newest_epoch(written: WrittenTable) -> None:
    spec = load_spec(written.place.spec)
    _, newest = open_table(spec, plans_of(spec), written.place, ADMIN, {})
    assert newest.epoch == 2
    other = load_spec(spec.document() | {"state": {"buckets": 8}})
    with pytest.raises(SpecMisfit, match=r"^state\.buckets is fixed .* go back to 4"):
        open_table(other, plans_of(other), written.place, ADMIN, {})


def test_an_evolve_without_another_query_keeps_the_buckets_and_the_topic(
    written: WrittenTable,
) -> None:
    spec = load_spec(written.place.spec)
    for change, named in (
        ({"state": {"buckets": 8}}, r"state\.buckets is fixed .* it is 4"),
        ({"source": {"topic": "u"}}, r"source\.topic changed"),
    ):
        with pytest.raises(CannotEvolve, match=named):
            evolve(written.place, load_spec(spec.document() | change))
        assert load_spec(written.place.spec) == spec
    assert evolve(written.place, spec).row is None


def test_an_epoch_has_the_buckets_of_each_view(tmp_path: Path) -> None:
    table = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    table.epoch({("a",): (1,)})
    document = load_spec(table.place.spec).document()
    own = {"query": QUERY.replace("SUM", "AVG"), "state": {"buckets": BUCKETS}}
    spec = load_spec(document | {"views": {"means": own}})
    row = evolve(table.place, spec).row
    assert row is not None
    assert {name: share.buckets for name, share in row.shares.items()} == {"": 4, "means": 4}
    view, plan = spec.view_specs["means"], plans_of(spec)["means"]
    running = RunningView.of(1, "means", view, plan, table.place.table, tmp_path, [], row)
    assert running.share({}).buckets == BUCKETS
