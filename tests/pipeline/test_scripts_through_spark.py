"""Every change script through Kafka, Spark and Delta: the table says what the script says.

The same scripts hold for the core alone; here a bundle is an epoch over a real topic, the hot
state is LMDB, and what is compared was read back from the table's Parquet files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.edge.broker import Broker
from schemas.epoch import EpochRow
from tests.change_scripts import Script, per_key, scripts
from tests.pipeline.epochs_by_hand import EpochsByHand, spec_of
from tests.pipeline.running import create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def noticed(row: EpochRow) -> list[str]:
    """What the epoch's counters say beyond its changelog, as scripts write it."""
    names = {
        "dropped": "dropped_retractions",
        "unmatched": "unmatched_retractions",
        "misfits": "misfits",
    }
    counts = {word: row.counters.get(name, 0) for word, name in names.items()}
    return [f"{word} {count}" for word, count in counts.items() if count]


# The pipeline does not let time pass by hand yet.
TIMELESS = [script for script in scripts() if all(bundle.changes for bundle in script.bundles)]


@pytest.mark.parametrize("script", TIMELESS, ids=lambda script: script.name)
def test_the_script_holds_through_kafka_spark_and_delta(
    script: Script, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    partitions = {change.partition for bundle in script.bundles for change in bundle.changes}
    create_topic(broker.address, topic, 1 + max(partitions))
    document = script.spec(source={"topic": topic, "format": "changelog-json"})
    job = EpochsByHand(spark, broker.address, tmp_path, spec_of(document))
    key_columns = len(job.plan.group)
    for bundle in script.bundles:
        produce(broker.address, topic, script.records(bundle))
        row = job.epoch()
        lines = job.lines(row.epoch) + noticed(row)
        assert per_key(lines, key_columns) == per_key(bundle.expected, key_columns)
        assert row.counters["rows"] == len(bundle.changes)
        job.results()
