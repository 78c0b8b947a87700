"""Queries with joins change while rows of both sides arrive; after each step DuckDB agrees.

random changes of a, b, c ─► epochs ─► evolve ─► epochs ─► evolve --replay ─► epochs
"""

from __future__ import annotations

import pytest

from jobs.changing.evolve import CannotEvolve, activate_replay, compare, evolve
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.jobs.evolving_joins import ALONE, COUNTS, IDS, MANY, SUMS, EvolvingJoins
from tests.support.jobs.joined_tables import JoinedTables


@pytest.mark.spark
def test_queries_with_joins_change_with_their_state_or_read_all_topics_again(
    by_hand: ByHand,
) -> None:
    keyed = {"primary_key": ["id"], "dedupe": "pk"}
    tables = JoinedTables.create(by_hand, [SUMS], seed=8, **keyed)
    evolving = EvolvingJoins(tables)
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
    evolving.job.read_again(spec)
    evolving.feed()
    with pytest.raises(CannotEvolve, match="run the same command once more"):
        activate_replay(evolving.place, spec)
    before = evolving.kept_parts()
    evolving.job.read_again(spec)
    activate_replay(evolving.place, spec)
    assert {"source_c"} <= evolving.kept_parts() - before
    evolving.go_on(spec)

    # One query, of which a replay reads the topics up to their ends.
    for query in (SUMS, IDS):
        spec = evolving.spec(**{"": query})
        tables.send(tables.change_by_id(20), by_id=True)
        if tables.job.spec.views:
            evolving.job.epoch()
        evolving.job.read_again(spec)
        activate_replay(evolving.place, spec)
        evolving.go_on(spec)
    assert sum(name.startswith("join_") for name in evolving.kept_parts()) == 4
