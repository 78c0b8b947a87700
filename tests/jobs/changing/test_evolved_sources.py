"""A job gets a source and other topics while rows arrive; after each step DuckDB agrees."""

from __future__ import annotations

import pytest

from jobs.changing.evolve import CannotEvolve, activate_replay, evolve
from jobs.running.failure import SpecMisfit
from jobs.running.job_table import require_same_sides
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.jobs.evolving_joins import ALONE, IDS, MANY, SUMS, EvolvingJoins
from tests.support.jobs.joined_tables import JoinedTables
from tests.support.jobs.running_job import create_topic


@pytest.mark.spark
def test_a_job_gets_a_source_and_another_topic_by_reading_all_topics_again(by_hand: ByHand) -> None:
    """Views whose queries stay are read again too; the new topic begins at one offset for ever."""
    keyed = {"primary_key": ["id"], "dedupe": "pk"}
    tables = JoinedTables.create(by_hand, [SUMS], seed=8, without=["c"], **keyed)
    evolving = EvolvingJoins(tables)
    evolving.feed()

    # A source that the job has not read; its records before its start do not count.
    evolving.begin_table(f"{by_hand.topic}-c", start="latest", **keyed)
    spec = evolving.spec(q0=SUMS, ids=IDS)
    with pytest.raises(
        CannotEvolve, match=r"^sources changed, and .* retally evolve --replay reads"
    ):
        evolve(evolving.place, spec)
    evolving.job.read_again(spec)
    evolving.feed()
    with pytest.raises(CannotEvolve, match="run the same command once more"):
        activate_replay(evolving.place, spec)
    evolving.job.read_again(spec)
    activate_replay(evolving.place, spec)
    evolving.go_on(spec)

    # Another query, whose replay begins the new topic where the first one did.
    spec = evolving.spec(q0=MANY, ids=IDS, alone=ALONE)
    evolving.job.read_again(spec)
    activate_replay(evolving.place, spec)
    evolving.go_on(spec)

    # The same queries over another topic.
    create_topic(by_hand.brokers, f"{by_hand.topic}-d", 2)
    evolving.begin_table(f"{by_hand.topic}-d", **keyed)
    tables.live["c"] = [(number, number % 2, 3) for number in range(4)]
    tables.send([("c", 1, row) for row in tables.live["c"]], by_id=True)
    before, spec = tables.job.spec, evolving.spec(q0=MANY, ids=IDS, alone=ALONE)
    with pytest.raises(SpecMisfit, match="use retally evolve --replay"):
        require_same_sides(spec, before)
    with pytest.raises(CannotEvolve, match="sources changed"):
        evolve(evolving.place, spec)
    evolving.job.read_again(spec)
    activate_replay(evolving.place, spec)
    assert evolve(evolving.place, spec).row is None  # done
    evolving.go_on(spec)
    assert {report.verdict for report in tables.audit().values()} == {"equal"}
