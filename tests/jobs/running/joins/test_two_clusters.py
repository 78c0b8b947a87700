"""A job whose sources are on two clusters: it reads, counts and audits each where it is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from jobs.edge.process.broker import Broker
from tests.support.jobs.joined_tables import QUERIES, TableRow, Tables
from tests.support.jobs.running_job import RunningJob, create_topic
from tests.support.topics import committed_records

ASKED = {"q0": 0, "q1": 6, "q2": 7}  # over a and b; over a, b and c; over c alone


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
def test_a_job_joins_topics_of_two_clusters(broker: Broker, topic: str, tmp_path: Path) -> None:
    with Broker(tmp_path / "east") as east:
        queries = [QUERIES[number] for number in ASKED.values()]
        west = Tables.make(broker.address, topic, queries, primary_key=["id"], dedupe="pk")
        west.topics["c"] = f"{topic}-east"  # only there
        create_topic(east.address, west.topics["c"], 2)
        west.document["sources"]["c"] |= {"topic": west.topics["c"], "connection": "east"}
        west.document["views"]["q1"]["sink"] = {"topic": f"{topic}-out", "partitions": 1}
        of_east = Tables(east.address, west.document, west.topics, west.rng, west.live)
        connections = tmp_path / "connections.yaml"
        connections.write_text(f"east: {{bootstrap: '{east.address}'}}")
        options = ("--connections", str(connections))
        spec = {"name": "two", "minibatch": {"size": 10, "max_rows": 10}, **west.document}
        job = RunningJob(spec, tmp_path, broker.address, options)

        def results() -> dict[str, Counter[TableRow]]:
            return {
                view: Counter(
                    tuple(row.values()) for row in job.ask("results", "two", "--view", view)
                )
                for view in ASKED
            }

        for round in range(2):  # the second start continues at the offsets of both
            changes = west.change_by_id(60)
            west.send([each for each in changes if each[0] != "c"], by_id=True)
            of_east.send([each for each in changes if each[0] == "c"], by_id=True)
            job.must_run()
            assert results() == west.truth(), round

        newest = job.epochs()[-1]
        assert newest.epoch > 3 and set(newest.offsets) == {topic, west.topics["c"]}
        group = "retally-two"
        for cluster, name in ((broker, topic), (east, west.topics["c"])):
            consumer = KafkaConsumer(bootstrap_servers=cluster.address, group_id=group)
            for partition, offset in newest.offsets[name].items():
                assert consumer.committed(TopicPartition(name, int(partition))) == offset
            consumer.close()
        assert committed_records(broker.address, f"{topic}-out")
        audit = job.ask("audit", "two", "--brokers", broker.address, *options)
        assert audit[0]["verdict"] == "equal", audit
