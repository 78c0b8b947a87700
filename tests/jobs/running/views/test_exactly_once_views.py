"""Three views, each with a topic: after a kill or a rewind each topic is exact all the same.

random history ──► retally run, killed or rewound ──► run again ──► for each view
        its topic (read_committed) == its changelog in the table, folded == DuckDB's results
        and all topics have the same progress
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from tests.support.histories.products import history
from tests.support.jobs.running_job import produce
from tests.support.jobs.shop_views import VIEWS, make_shop_views, views_must_be_exact
from tests.support.sampling import quick

pytestmark = pytest.mark.spark

KILLS = [("before_commit", "kill@2"), ("after_commit", "kill@2"), ("epoch_sent", "kill@2")]


@pytest.mark.parametrize(("failpoint", "action"), quick(KILLS, KILLS[:1], pytest.mark.faults))
def test_after_a_kill_every_view_and_every_topic_is_exact(
    failpoint: str, action: str, broker: Broker, topic: str, tmp_path: Path
) -> None:
    job = make_shop_views(broker.address, topic, tmp_path)
    made = history(21, 240)
    produce(broker.address, topic, ((each.partition, each.value) for each in made.messages))
    job.must_die_at(failpoint, action)
    job.must_run()
    views_must_be_exact(job, made.messages)


def test_after_a_rewind_every_view_and_every_topic_is_exact(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    job = make_shop_views(broker.address, topic, tmp_path)
    made = history(23, 180).messages
    first, rest = made[:120], made[120:]
    produce(broker.address, topic, ((each.partition, each.value) for each in first))
    job.must_run()
    (saved,) = job.ask("savepoint", "items", "--name", "before")
    produce(broker.address, topic, ((each.partition, each.value) for each in rest))
    job.must_run()
    views_must_be_exact(job, made)
    (done,) = job.ask("rewind", "items", "--to", "before", "--brokers", broker.address)
    assert (done["to"], done["kept"]) == (saved["epoch"], f"epoch-{done['epoch'] - 1}")
    assert done["changelog_rows"] > 0
    views_must_be_exact(job, first, published=False)
    (audited,) = job.ask("audit", "items", "--brokers", broker.address)
    assert (audited["verdict"], audited["epoch"]) == ("equal", done["epoch"])
    assert tuple(audited["views"]) == VIEWS
    (offsets,) = job.ask("offsets", "items")
    assert offsets["offsets"] == saved["offsets"]
    job.must_run()
    views_must_be_exact(job, made)
