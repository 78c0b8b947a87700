"""What an audit has to know of dedupe: of each row only its last image counts.

    every signed row ──► the last one of each key, by (topic, partition, offset, index)
                     ──► without those that take a row away ──► projected, as rows of any job are

Expressions are evaluated on the images that are last when an epoch ends, so which messages went to
quarantine for failing depends on the bundles: the job wrote that down, and it is not recomputed.
Where a key is in several partitions the job went by arrival, which the topic no longer tells.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.plan.tree import Plan

PLACE = "__place"
_LAST, _PARTITIONS = "__last", "__partitions"


def place_of(topic: str, partition: int, offset: int, index: int) -> str:
    """Where a signed row stands, as text that sorts as places do."""
    return f"{topic}/{partition:010d}/{offset:020d}/{index:08d}"


def last_images(rows: DataFrame, plan: Plan, sign: str) -> DataFrame:
    """The rows that are live in the end, of signed rows with their places."""
    keys = [column.name for column in plan.primary_key]
    whole = F.struct(*(F.col(name) for name in rows.columns))
    newest = rows.groupBy(*keys).agg(F.max_by(whole, F.col(PLACE)).alias(_LAST))
    columns = [F.col(_LAST)[name].alias(name) for name in rows.columns]
    return newest.select(*columns).where(F.col(sign) > 0)


def keys_that_move(rows: DataFrame, plan: Plan) -> int:
    """How many keys come in more than one partition."""
    keys = [column.name for column in plan.primary_key]
    partition = F.substring_index(F.col(PLACE), "/", 2)
    counted = rows.groupBy(*keys).agg(F.count_distinct(partition).alias(_PARTITIONS))
    return counted.where(F.col(_PARTITIONS) > 1).count()
