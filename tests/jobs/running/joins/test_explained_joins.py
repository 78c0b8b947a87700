"""An explanation of a group over a join names the offsets of all topics in each of its epochs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jobs.edge.process.broker import Broker
from jobs.edge.table.reading import TableReader
from tests.support.jobs.joined_tables import JoinedTables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_epochs_of_a_joined_group_have_what_each_topic_told_them(
    spark: SparkSession, broker: Broker, tmp_path: Path, topic: str
) -> None:
    query = "SELECT a.v, SUM(c.x) AS s, MAX(c.x) AS m FROM a JOIN c ON a.k = c.k GROUP BY a.v"
    tables = JoinedTables.create(spark, broker.address, tmp_path, topic, [query])
    tables.send([("a", 1, (1, 1, 5)), ("c", 1, (2, 1, 7))])
    tables.job.epoch()
    tables.send([("c", 1, (3, 1, 9)), ("c", 1, (4, 1, "x"))])
    tables.job.epoch()
    found = TableReader.open(tables.job.place.at_view("q0")).explain((5,))
    assert (found.row, found.row_count) == ({"v": 5, "s": 16, "m": 9}, 2)
    first, second = found.epochs
    assert set(first.offsets or ()) == set(tables.topics.values())
    assert set(second.offsets or ()) == {tables.topics["c"]}
    (refused,) = tables.job.quarantine()
    assert (refused["quarantine_source"], refused["topic"]) == ("c", tables.topics["c"])
