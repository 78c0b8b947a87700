"""Joins in an audit: plain joins of Spark SQL over all rows of the sources.

    rows of each source ─► WHERE, key, columns ─► equal rows added up ─┐
                                                                       ├─► pairs; weights multiply
    rows of another one ─► WHERE, key, columns ─► equal rows added up ─┘   rows without a match

The job adds up what each epoch changes; here there is one join, of everything. So the two have no
code in common but row expressions and the plan of the joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add, and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from jobs.checking.dedupe_audit import MESSAGE, SIGN
from jobs.checking.source_rows import FAILED, CountedRows, SourceRows, evaluate, project_rows
from jobs.core.join.stages import JoinStage, Side, sides_of_scans
from jobs.core.plan.relations import list_scans
from jobs.core.plan.tree import Column, Join, Named, Plan
from jobs.edge.spark.column_types import spark_type
from jobs.edge.table.reading import TableReader
from schemas.table.epoch import Offsets

_LEFT, _RIGHT = "left", "right"  # weights; with a number, parts of the key; others have a dot


def join_sources(
    source: SourceRows, reader: TableReader, starts: Offsets, ends: Offsets
) -> CountedRows:
    """Return the joined rows that a view's WHERE leaves, with group and argument columns."""
    tree = next(tree for tree in source.inputs.trees if reader.paths.view in tree.views)
    sides = list(zip(list_scans(tree.relation), sides_of_scans(tree), strict=True))
    read: dict[str, set[Column]] = {}
    for scan, side in sides:
        read.setdefault(scan.source, set()).update(side.inputs.used)
    found = {
        name: source.count(reader, name, columns, starts, ends) for name, columns in read.items()
    }
    rows, *others = [project_rows(found[scan.source].rows, side.inputs) for scan, side in sides]
    for stage, right in zip(tree.stages, others, strict=True):
        left = rows if stage is tree.stages[0] else _evaluate(rows, stage.left.inputs)
        rows = _join(stage, left, right)
    return CountedRows(
        _evaluate(rows, reader.plan),
        reduce(add, (each.doubts for each in found.values())),
        reduce(add, (each.repeated for each in found.values())),
    )


def _evaluate(rows: DataFrame, plan: Plan) -> DataFrame:
    """Return joined rows with group and argument columns; those that fail count for nothing."""
    evaluated = evaluate(rows.withColumn(MESSAGE, F.lit("")), plan)
    return evaluated.where(~F.col(FAILED)).drop(FAILED)


def _join(stage: JoinStage, left: DataFrame, right: DataFrame) -> DataFrame:
    """Return the rows of a join, with their weights."""
    join, keys = stage.join, range(len(stage.join.left_keys))
    left, right = _add_up(left, stage.left, _LEFT), _add_up(right, stage.right, _RIGHT)
    # A key with NULL is equal to none.
    same = reduce(and_, (F.col(f"{_LEFT}{i}") == F.col(f"{_RIGHT}{i}") for i in keys))
    left_found, right_found = _list_keys(left, keys, _LEFT), _list_keys(right, keys, _RIGHT)
    if join.kind == "SEMI":
        return _select(left.join(right_found, same, "left_semi"), join.columns, _LEFT)
    parts = []
    if join.kind != "ANTI":
        pairs = left.join(right, same).withColumn(SIGN, F.col(_LEFT) * F.col(_RIGHT))
        pairs = pairs if join.residual is None else _filter(pairs, join)
        parts.append(_select(pairs, join.columns, SIGN))
    if join.keeps_left:
        parts.append(_select(left.join(right_found, same, "left_anti"), join.columns, _LEFT))
    if join.keeps_right:
        parts.append(_select(right.join(left_found, same, "left_anti"), join.columns, _RIGHT))
    return reduce(DataFrame.union, parts)


def _add_up(rows: DataFrame, side: Side, prefix: str) -> DataFrame:
    """Return the rows of a side, each once, with its key and its weight."""
    plan = side.inputs
    keys = [F.col(f"g{i}").alias(f"{prefix}{i}") for i in range(len(plan.group))]
    values = [F.col(f"a{i}").alias(each.name) for i, each in enumerate(plan.arguments)]
    added = rows.groupBy(*keys, *values).agg(F.sum(SIGN).alias(prefix))
    return added.where(F.col(prefix) != 0)


def _list_keys(rows: DataFrame, keys: Sequence[int], prefix: str) -> DataFrame:
    """Return the keys that are a match: their weights do not add up to zero."""
    summed = rows.groupBy(*(f"{prefix}{i}" for i in keys)).agg(F.sum(prefix).alias(prefix))
    return summed.where(F.col(prefix) != 0).drop(prefix)


def _select(rows: DataFrame, columns: Sequence[Column], weight: str) -> DataFrame:
    """Return columns of joined rows; those of a side that has no row are NULL."""
    there = set(rows.columns)
    selected = [
        F.col(f"`{each.name}`")
        if each.name in there
        else F.lit(None).cast(spark_type(each.type)).alias(each.name)
        for each in columns
    ]
    return rows.select(*selected, F.col(weight).alias(SIGN))


def _filter(pairs: DataFrame, join: Join) -> DataFrame:
    """Return the pairs for which the further conditions of ON are true."""
    inputs = join.inputs
    outputs = tuple(Named(each.name, each) for each in inputs)
    found = _evaluate(pairs, Plan(inputs, inputs, join.residual, outputs, (), (), ()))
    named = [F.col(f"g{i}").alias(each.name) for i, each in enumerate(inputs)]
    return found.select(*named, SIGN)
