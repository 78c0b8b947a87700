"""Queries with joins change while rows of both sides arrive; after each step DuckDB agrees.

random changes of a, b, c ─► epochs ─► evolve ─► epochs ─► evolve --replay ─► epochs
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.changing.evolve import CannotEvolve, activate_replay, compare, evolve, prepare_replay
from jobs.edge.process.broker import Broker
from jobs.table.files import live_files, open_table
from schemas.spec.job import JobSpec
from schemas.table.view_path import split_part
from tests.support.jobs.epochs_by_hand import EpochsByHand, spec_of
from tests.support.jobs.joined_tables import JoinedTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMS = "SELECT w, SUM(v) AS s, COUNT(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY w"
MANY = "SELECT w, SUM(v) AS s FROM a JOIN b ON a.k = b.k GROUP BY w HAVING COUNT(*) > 2"
COUNTS = "SELECT w, COUNT(v) AS c FROM a JOIN b ON a.k = b.k GROUP BY w"
IDS = (
    "SELECT w, MAX(a.id) AS top, SUM(x) AS sx FROM a LEFT JOIN b ON a.k = b.k "
    "LEFT JOIN c ON c.k = b.id GROUP BY w"
)
ALONE = "SELECT x, COUNT(*) AS xs FROM c GROUP BY x"


class Evolving:
    """A job of three sources with last images, whose rows are known."""

    def __init__(self, tables: JoinedTables) -> None:
        self.tables, self.job = tables, tables.job
        self.place = self.job.place.at_view("")

    def feed(self) -> None:
        self.tables.send(self.tables.change_by_id(20), by_id=True)
        self.job.epoch()

    def must_be_exact(self) -> None:
        assert self.tables.results() == self.tables.truth()

    def spec(self, **queries: str) -> JobSpec:
        """Return the spec with these views; "query" is the job's own."""
        views = {name: {"query": text, "state": {"buckets": 4}} for name, text in queries.items()}
        self.wanted = self.tables.document | {"views": views}
        own = {**self.wanted, "views": {name: view for name, view in views.items() if name}}
        if "" in views:
            own |= views[""]
        if not own["views"]:
            own.pop("views")
        return spec_of(own, buckets=None)

    def read_again(self, spec: JobSpec) -> None:
        replay = prepare_replay(self.place, spec)
        shadow = EpochsByHand(self.job.spark, self.job.brokers, replay.shadow.data, replay.spec)
        if shadow.pipeline.newest.offsets != (replay.goal or shadow.ends()):
            shadow.epoch(replay.goal)

    def go_on(self, spec: JobSpec) -> None:
        self.tables.document = self.wanted
        self.job.spec = spec
        self.job._look_at(next(iter(self.job.plans)))
        self.job.restart()
        self.must_be_exact()
        self.feed()
        self.must_be_exact()

    def kept_parts(self) -> set[str]:
        """The parts of the table that belong to no view."""
        files = live_files(open_table(self.place.table))
        owners = {split_part(file.part)[0] for file in files}
        return {name for name in owners if "_" in name}


@pytest.mark.spark
def test_queries_with_joins_change_with_their_state_or_read_all_topics_again(
    spark: SparkSession, broker: Broker, tmp_path: Path, topic: str
) -> None:
    keyed = {"primary_key": ["id"], "dedupe": "pk"}
    tables = JoinedTables.create(spark, broker.address, tmp_path, topic, [SUMS], seed=8, **keyed)
    evolving = Evolving(tables)
    evolving.feed()

    # The same rows of both sides: the state answers it.
    spec = evolving.spec(q0=MANY, counts=COUNTS)
    assert compare(evolving.place, spec).continues
    evolve(evolving.place, spec)
    evolving.go_on(spec)

    # Other columns, another join, a source that nothing has read; the job goes on meanwhile.
    spec = evolving.spec(q0=MANY, ids=IDS, alone=ALONE)
    with pytest.raises(CannotEvolve, match="it is new, and the state of no other view answers it"):
        evolve(evolving.place, spec)
    evolving.read_again(spec)
    evolving.feed()
    with pytest.raises(CannotEvolve, match="run the same command once more"):
        activate_replay(evolving.place, spec)
    before = evolving.kept_parts()
    evolving.read_again(spec)
    activate_replay(evolving.place, spec)
    assert {"source_c"} <= evolving.kept_parts() - before
    evolving.go_on(spec)

    # One query, of which a replay reads the topics up to their ends.
    for query in (SUMS, IDS):
        spec = evolving.spec(**{"": query})
        tables.send(tables.change_by_id(20), by_id=True)
        if tables.job.spec.views:
            evolving.job.epoch()
        evolving.read_again(spec)
        activate_replay(evolving.place, spec)
        evolving.go_on(spec)
    assert sum(name.startswith("join_") for name in evolving.kept_parts()) == 4
