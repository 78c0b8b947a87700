"""Jobs with several views, for tests of the pipeline and of the service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.edge.process.broker import Broker
from tests.support.jobs.epochs_by_hand import EpochsByHand, spec_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_views(
    spark: SparkSession, broker: Broker, topic: str, home: Path, views: dict[str, Any], **keys: Any
) -> EpochsByHand:
    """A job with these views, which are queries or whole sections."""
    written = {
        name: {"state": {"buckets": 4}, **(view if isinstance(view, dict) else {"query": view})}
        for name, view in views.items()
        if name
    }
    spec = {"source": {"topic": topic}, "views": written, **keys}
    if "" in views:
        spec["query"] = views[""]
        return EpochsByHand(spark, broker.address, home, spec_of(spec))
    return EpochsByHand(spark, broker.address, home, spec_of(spec, buckets=None))
