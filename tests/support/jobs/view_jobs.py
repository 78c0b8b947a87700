"""Jobs with several views, for tests of the pipeline and of the service."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
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


def timed_messages(random: Random, live: list[dict[str, str | None]]) -> list[tuple[int, bytes]]:
    """Inserts and deletes of rows around 1970, in two partitions; some rows have no time."""
    made: list[tuple[int, bytes]] = []
    for _ in range(40):
        second = f"1970-01-01 00:00:{random.randint(0, 19):02}.{random.randint(0, 999):03}"
        if random.random() < 0.7 or not live:
            time = None if random.random() < 0.05 else second
            live.append({"k": random.choice("abc"), "v": str(random.randint(1, 9)), "t": time})
            document = {"type": "INSERT", "data": [live[-1]]}
        else:
            document = {"type": "DELETE", "data": [live.pop(random.randrange(len(live)))]}
        made.append((random.randint(0, 1), json.dumps(document).encode()))
    return made
