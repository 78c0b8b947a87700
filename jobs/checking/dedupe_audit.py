"""Dedupe in an audit: only the last image of each source row counts.

    every signed row ──► the last one of each key, by (topic, partition, offset, index)
                     ──► without deletions ──► projected, as rows of any job are

The job evaluates expressions on the images that are last when an epoch ends. So the bundles decide
which messages failed and are in quarantine; the audit takes these from the table. If a key is in
several partitions, the job used the order of arrival, which the topic does not contain.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.core.plan.tree import Plan

POSITION = "__place"
_LAST, _PARTITIONS = "__last", "__partitions"


def format_position(topic: str, partition: int, offset: int, index: int) -> str:
    """Return the position of a signed row as text that sorts like positions."""
    return f"{topic}/{partition:010d}/{offset:020d}/{index:08d}"


def select_last_images(rows: DataFrame, plan: Plan, sign: str) -> DataFrame:
    """Return the live rows: of each key the last image, unless it is a deletion."""
    keys = [column.name for column in plan.primary_key]
    whole = F.struct(*(F.col(name) for name in rows.columns))
    newest = rows.groupBy(*keys).agg(F.max_by(whole, F.col(POSITION)).alias(_LAST))
    columns = [F.col(_LAST)[name].alias(name) for name in rows.columns]
    return newest.select(*columns).where(F.col(sign) > 0)


def count_moving_keys(rows: DataFrame, plan: Plan) -> int:
    """Return the number of keys that occur in more than one partition."""
    keys = [column.name for column in plan.primary_key]
    partition = F.substring_index(F.col(POSITION), "/", 2)
    counted = rows.groupBy(*keys).agg(F.count_distinct(partition).alias(_PARTITIONS))
    return counted.where(F.col(_PARTITIONS) > 1).count()
