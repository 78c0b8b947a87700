"""Windows in an audit: exclude late rows and withheld windows, and find sessions.

    recomputed rows ──► without the rows and windows of the part `late` ──► groups
                    ──► in sessions, if the query has some
    groups          ──► without those of windows that are not emitted yet ──► compared

The bundles decide which rows are late. So the audit takes late rows from the table.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from jobs.core.fold.state import Key
from jobs.core.job.window_rules import closing_of
from jobs.core.plan.tree import Plan, WindowBound
from jobs.core.values.change import Row
from jobs.edge.table.reading import TableReader
from jobs.reading.parts import LATE
from schemas.types.arrow_values import to_arrow, to_list


class LateRowsGone(Exception):
    """Retention has removed late rows, so the results cannot be recomputed."""


def exclude_late(
    spark: SparkSession, reader: TableReader, rows: DataFrame, message: str
) -> DataFrame:
    """Return projected rows without those that were too late for their group's window."""
    if closing_of(reader.spec, reader.plan) is None:
        return rows
    late = pa.concat_tables([reader.layout.schema(LATE).empty_table(), *reader.tables(LATE)])
    counted = sum(row.counts.late_windows for row in reader.counted_epochs)
    if counted > late.num_rows:  # clones of earlier versions have more than they counted
        raise LateRowsGone(
            f"{counted} rows were too late for a window, but the table still has only "
            f"{late.num_rows} of them; without the others the results cannot be recomputed"
        )
    if not late.num_rows:
        return rows
    names = [f"g{index}" for index in range(len(reader.plan.group))]
    positions = zip(
        to_list(late["topic"]), to_list(late["partition"]), to_list(late["offset"]), strict=True
    )
    keys = zip(*reader.layout.keys(late), strict=True)
    columns = {message: pa.array([f"{topic}/{at}/{offset}" for topic, at, offset in positions])}
    for name, named, values in zip(names, reader.plan.group, keys, strict=True):
        columns[name] = to_arrow(values, named.type)
    gone = spark.createDataFrame(pa.table(columns)).dropDuplicates().alias("late")
    same: Column = F.col(f"late.{message}") == F.col(f"row.{message}")
    for name in names:
        same = same & F.col(f"late.{name}").eqNullSafe(F.col(f"row.{name}"))
    return rows.alias("row").join(F.broadcast(gone), same, "left_anti")


def assign_sessions(rows: DataFrame, plan: Plan, sign: str) -> DataFrame:
    """Return projected rows with the bounds of their session.

    Spark finds the sessions without the job's code: a new one starts after each gap between
    instants that have rows left.
    """
    if plan.instants_argument is None or plan.window is None:
        return rows
    bounds = {
        each.expression.end: f"g{index}"
        for index, each in enumerate(plan.group)
        if isinstance(each.expression, WindowBound)
    }
    start, end = bounds[False], bounds[True]
    rest = [name for i in range(len(plan.group)) if (name := f"g{i}") not in bounds.values()]
    instants = (
        rows.groupBy(*rest, start, end).agg(F.sum(sign).alias("rows")).where(F.col("rows") != 0)
    )
    in_order = Over.partitionBy(*rest).orderBy(start)
    opens = F.coalesce((F.lag(end).over(in_order) < F.col(start)).cast("int"), F.lit(1))
    numbered = instants.withColumn("opens", opens)
    numbered = numbered.withColumn("session", F.sum("opens").over(in_order))
    whole = Over.partitionBy(*rest, "session")
    sessions = numbered.select(
        *rest,
        F.col(start).alias("instant"),
        F.min(start).over(whole).alias("begins"),
        F.max(end).over(whole).alias("ends"),
    )
    same: Column = F.col(f"row.{start}") == F.col("session.instant")
    for name in rest:
        same = same & F.col(f"row.{name}").eqNullSafe(F.col(f"session.{name}"))
    others = [F.col(f"row.{name}") for name in rows.columns if name not in bounds.values()]
    joined = rows.alias("row").join(sessions.alias("session"), same)
    return joined.select(
        *others, F.col("session.begins").alias(start), F.col("session.ends").alias(end)
    )


def exclude_withheld(
    reader: TableReader, groups: dict[Key, Row], stored: Mapping[Key, Row]
) -> dict[Key, Row]:
    """Return the groups that the job has emitted.

    With `emit: final`, it emits the groups of a window once the watermark of the epoch before the
    newest one has passed the window.
    """
    closing = closing_of(reader.spec, reader.plan)
    if closing is None or not closing.final:
        return groups
    before = [row for row in reader.kept_epochs[-2:-1] if reader.newest.kind != "rewind"]
    watermark = before[0].watermark if before else None
    return {
        key: row
        for key, row in groups.items()
        if key in stored or not closing.withholds(key, watermark)
    }
