"""Commands change the views of a job, and each topic stays right for whoever folds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition

from jobs.edge.process.broker import Broker
from jobs.edge.publisher.session import read_progress
from schemas.table.changelog import progress_topic
from tests.support.jobs.canal_messages import delete, insert, row
from tests.support.jobs.published_records import fold_topic
from tests.support.jobs.running_job import RunningJob, create_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

QUERIES = {
    "sums": "SELECT k, SUM(v) AS s, MAX(v) AS top FROM t GROUP BY k",
    "whole": "SELECT COUNT(*) AS n FROM t",
    "by-value": "SELECT v, COUNT(*) AS times FROM t GROUP BY v",
}


class EvolvingViews(RunningJob):
    def set_views(self, *names: str, **queries: str) -> None:
        topic = self.spec["source"]["topic"]
        self.spec["views"] = {
            name: {
                "query": queries.get(name) or QUERIES[name],
                "state": {"buckets": 3},
                "sink": {"topic": f"{topic}-{name}", "partitions": 2},
            }
            for name in names
        }

    def must_agree(self, wanted: dict[str, list[dict[str, Any]]]) -> None:
        """Results and topics of all views are these rows, and all topics are at one epoch."""
        at = set()
        for view, rows in wanted.items():
            topic = self.spec["views"][view]["sink"]["topic"]
            results = self.ask("results", "items", "--view", view)
            assert sorted(map(str, results)) == sorted(map(str, rows)), view
            assert sorted(map(str, self.folded(topic))) == sorted(map(str, rows)), view
            own, _ = read_progress(
                {"bootstrap.servers": self.brokers}, progress_topic(topic), "items"
            )
            assert own is not None and own.complete
            at.add(own.epoch)
            (report,) = self.ask("audit", "items", "--view", view, "--brokers", self.brokers)
            assert report["verdict"] == "equal", report
        assert at == {self.epochs()[-1].epoch}

    def folded(self, topic: str) -> list[dict[str, Any]]:
        return fold_topic(self.brokers, topic)


@pytest.mark.faults
def test_views_of_a_job_come_and_go_with_their_topics(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 2)
    spec = {"name": "items", "source": {"topic": topic}, "columns": {"k": "STRING", "v": "INT"}}
    job = EvolvingViews(spec, tmp_path, broker.address)
    job.set_views("sums", "whole")
    produce(
        broker.address, topic, [(0, insert(row("a", 1), row("a", 5))), (1, insert(row("b", 2)))]
    )
    job.must_run()

    # A new view, whose topic is the first one; the job has a new epoch meanwhile.
    job.set_views("by-value", "sums", "whole")
    assert "--replay" in job.evolve(code=1)
    assert "new: by-value" in job.evolve("--replay", "--beside", "--brokers", broker.address)
    produce(broker.address, topic, [(0, delete(row("a", 5)))])
    job.set_views("sums", "whole")
    job.must_run()
    job.set_views("by-value", "sums", "whole")
    again = ("--replay", "--brokers", broker.address)
    job.evolve(*again, failpoints="after_commit=kill", code=-9)  # in the shadow job
    job.evolve(*again, failpoints="after_commit=kill", code=-9)  # the shadow job has all
    job.must_run()
    wanted: dict[str, list[dict[str, Any]]] = {
        "by-value": [{"v": 1, "times": 1}, {"v": 2, "times": 1}],
        "sums": [{"k": "a", "s": 1, "top": 1}, {"k": "b", "s": 2, "top": 2}],
        "whole": [{"n": 2}],
    }
    job.must_agree(wanted)

    # The first view goes, with its topic; another one changes; the kept state answers.
    lower = "SELECT k, SUM(v) AS s, MIN(v) AS low FROM t GROUP BY k"
    job.set_views("sums", "whole", sums=lower)
    assert "removed: sums.top, by-value" in job.evolve()
    produce(broker.address, topic, [(1, insert(row("a", 7)))])
    job.must_run()
    job.must_agree(
        {"sums": [{"k": "a", "s": 8, "low": 1}, {"k": "b", "s": 2, "low": 2}], "whole": [{"n": 3}]}
    )
    # The topic of the dropped view has its changelog up to then, and takes no other.
    assert job.folded(f"{topic}-by-value") == wanted["by-value"]
    job.set_views("sums", "whole", "by-value", sums=lower)
    job.evolve("--replay", "--brokers", broker.address)
    code, said = job.run()
    assert code != 0 and "has an older changelog; give sink.topic another name" in said
    job.spec["views"]["by-value"]["sink"]["topic"] += "-2"
    job.must_run()
    job.must_agree(
        {
            "sums": [{"k": "a", "s": 8, "low": 1}, {"k": "b", "s": 2, "low": 2}],
            "by-value": [{"v": each, "times": 1} for each in (1, 2, 7)],
        }
    )


def test_without_the_beginning_of_the_topic_only_views_that_the_state_answers_are_added(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    create_topic(broker.address, topic, 1)
    spec = {"name": "items", "source": {"topic": topic}, "columns": {"k": "STRING", "v": "INT"}}
    job = EvolvingViews(spec, tmp_path, broker.address)
    job.set_views("sums")
    produce(broker.address, topic, [(0, insert(row("a", 1))), (0, insert(row("a", 5)))])
    job.must_run()
    admin = KafkaAdminClient(bootstrap_servers=[broker.address])
    admin.delete_records({TopicPartition(topic, 0): 1})
    admin.close()

    job.set_views("sums", "by-value")
    said = job.evolve("--replay", "--brokers", broker.address, code=1)
    assert "retention has removed everything before 1" in said
    assert "change the query so that the state can answer it, or give it to a new job" in said
    job.set_views("sums")
    produce(broker.address, topic, [(0, insert(row("b", 2)))])
    job.must_run()  # as if nothing had been tried

    job.set_views("sums", "lows", lows="SELECT k, MIN(v) AS low FROM t GROUP BY k")
    assert "new: lows" in job.evolve()
    produce(broker.address, topic, [(0, insert(row("b", 1)))])
    job.must_run()
    rows = [{"k": "a", "low": 1}, {"k": "b", "low": 1}]
    assert sorted(job.ask("results", "items", "--view", "lows"), key=str) == rows
    assert sorted(job.folded(f"{topic}-lows"), key=str) == rows
    assert sorted(job.folded(f"{topic}-sums"), key=str) == [
        {"k": "a", "s": 6, "top": 5},
        {"k": "b", "s": 3, "top": 2},
    ]
