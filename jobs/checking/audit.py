"""Audit: recompute a job's results from its topic, and compare them with its table.

    topic, from the job's first offsets to those of the newest epoch
        │ the same decoding, the same row expressions; joined by Spark SQL (join_audit)
        ▼
    signed rows ──► plain Spark SQL: SUM of signs, of signed values, MAX of present values
        │                                                        │
        ▼                                                        ▼
    no code of the fold, the hot state or the bundles            compare, group by group

This checks everything between the decoder and the table: consolidation, fold, hot state, files,
commits, compaction, rewinds. The verdict is `undecided` where the topic decides no result:

    rows are retracted that the topic lacks    it begins in the middle of the table's life
    the source has repeated itself             rows count twice, in the recomputation too; the job
                                               has noticed it, or a message came before
    with dedupe: a key without an order        its changes are in several partitions
    with `early_retractions: drop`             what was dropped depends on the bundles
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.checking.dedupe_audit import MESSAGE, SIGN
from jobs.checking.join_audit import join_sources
from jobs.checking.recomputation import recompute, recompute_total, sort_present
from jobs.checking.source_rows import CountedRows, SourceRows, project_rows
from jobs.checking.window_audit import LateRowsGone, assign_sessions, exclude_late, exclude_withheld
from jobs.core.aggregates import clock_of_timers, is_class
from jobs.core.aggregates.operator_class import AggregateFailed, recompute_class
from jobs.core.evaluate.expressions import GroupRows
from jobs.core.fold.state import Key
from jobs.core.plan.tree import Aggregate, Named, Plan
from jobs.core.values.change import Row
from jobs.core.values.json_values import Json
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.kafka.source import find_topics
from jobs.edge.process import aggregate_class  # noqa: F401 - that classes can be loaded
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.spark.column_types import spark_type
from jobs.edge.spark.session import session
from jobs.edge.table.reading import TableReader
from jobs.reading.epoch_rows import describe_missing_start
from schemas.limits import DIFFERENCES_SHOWN_MAX
from schemas.spec.connections import Connections
from schemas.table.epoch import EpochRow, Offsets
from schemas.types.arrow_values import from_arrow, to_list
from schemas.types.sql_types import DECIMAL_PRECISION_MAX, Kind, SqlType, decimal

EXTREMES = ("MAX", "MIN", "ANY_VALUE")

Verdict = Literal["equal", "different", "undecided"]


class CannotAudit(Exception):
    """The results cannot be recomputed; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A group whose row differs between table and recomputation; None if it is missing."""

    group: dict[str, Json]
    table: dict[str, Json] | None
    recomputed: dict[str, Json] | None


@dataclass(frozen=True, slots=True)
class AuditReport:
    job: str
    epoch: int
    verdict: Verdict
    groups: int
    not_compared: int  # groups with a sum beyond Spark's decimals
    differing: int
    differences: list[Difference]  # the first ones
    odd: dict[str, int]  # where the source breaks its rules, by the counter
    doubts: list[str]  # the first of these, with offsets
    offsets: dict[str, dict[str, list[int]]]  # [from, to) of each partition


def audit(
    paths: JobDirectory, connections: Connections, admin: KafkaAdmin, master: str
) -> AuditReport:
    """Audit the newest epoch of a job or a view; the job may run, later epochs are ignored."""
    reader = TableReader.open(paths)
    with open_session(paths.name, master) as start_session:
        return audit_table(reader, admin, SourceRows(start_session, connections, [reader]))


@contextmanager
def open_session(name: str, master: str) -> Iterator[Callable[[], SparkSession]]:
    """Yield a function that returns the session of an audit, which it starts when first called."""
    started: list[SparkSession] = []

    def get() -> SparkSession:
        if not started:
            started.append(session(f"audit-{name}", master))
        return started[0]

    try:
        yield get
    finally:
        for spark in started:
            spark.stop()


def audit_table(reader: TableReader, admin: KafkaAdmin, source: SourceRows) -> AuditReport:
    """Audit one version of a job's or a view's table; raise CannotAudit before Spark starts."""
    first, newest = reader.start, _find_shown_epoch(reader)
    named = repr(reader.paths.name)
    if first is None:
        raise CannotAudit(describe_missing_start(reader.paths.name))
    if newest.moved is not None:
        raise CannotAudit(
            f"the offsets of job {named} were moved by hand at epoch {newest.moved}, so its "
            "results are not the query over its topic; restore an earlier epoch (retally rewind) "
            "or read the topic again (retally evolve --replay)"
        )
    if newest.counts.snapshot:
        raise CannotAudit(
            f"job {named} began with a snapshot, whose rows are in no topic, so its results "
            "cannot be recomputed; compare them with the same query over the source's table"
        )
    if reader.spec.state.ttl_ms:
        raise CannotAudit("groups of this job expire (state.ttl), and the topic does not say when")
    starts, ends = _find_range(admin, reader, first, newest)
    stored = reader.results()
    try:
        found = _read_rows(source, reader, starts, ends)
        signed = exclude_late(source.spark, reader, found.rows, MESSAGE)
        signed = assign_sessions(signed, reader.plan, SIGN)
        work, clock = newest.time.due_work, clock_of_timers(reader.plan)
        passed = None if work is None else work.now if clock == "processing" else work.passed
        recomputed, beyond = _recompute_results(
            signed,
            reader.plan,
            drops_early=reader.spec.drops_early,
            fired_to=passed,
        )
        recomputed = exclude_withheld(reader, recomputed, stored)
    except (LateRowsGone, AggregateFailed) as failed:
        raise CannotAudit(str(failed)) from failed
    offsets = _pair_offsets(starts, ends)
    return _make_report(reader, stored, recomputed, beyond, found, offsets)


def _find_shown_epoch(reader: TableReader) -> EpochRow:
    """Return the newest epoch that does not withhold results; raise CannotAudit without one.

    Under the event clock, results are withheld until the watermark ends their bundle.
    """
    for row in reversed(reader.kept_epochs):
        if not row.withholds:
            return row
    raise CannotAudit(
        f"every kept epoch of job {reader.paths.name!r} withholds results, so there is none to "
        "audit; audit it again when the watermark has ended a bundle"
    )


# --- reading ----------------------------------------------------------------------------------


def _find_range(
    admin: KafkaAdmin, reader: TableReader, first: EpochRow, newest: EpochRow
) -> tuple[Offsets, Offsets]:
    """Return the job's first offsets and those of the epoch; raise CannotAudit if any are gone."""
    starts: Offsets = {}
    ends: Offsets = {}
    for topic, identity in find_topics(admin, reader.spec.topics).items():
        known = newest.topics.get(topic)
        if known is not None and known.id != identity.id:
            raise CannotAudit(
                f"topic {topic!r} was deleted and created again, or its connection is now "
                "another cluster; the job has read the old one"
            )
        starts[topic], ends[topic] = {}, {}
        for number, beginning in admin.beginning_offsets(topic).items():
            partition = str(number)
            # A partition that was added after the job's start was read from its first record.
            end = newest.offsets.get(topic, {}).get(partition, beginning)
            start = first.offsets.get(topic, {}).get(partition, 0)
            if start >= end:
                start = end = max(beginning, end)
            elif start < beginning:
                raise CannotAudit(
                    f"{topic}/{partition} now starts at offset {beginning}, but the job has read "
                    f"it from offset {start}; without the {beginning - start} offsets in between "
                    "the results cannot be recomputed"
                )
            starts[topic][partition] = start
            ends[topic][partition] = end
    return starts, ends


def _read_rows(
    source: SourceRows, reader: TableReader, starts: Offsets, ends: Offsets
) -> CountedRows:
    """Return the rows that count, with group and argument columns."""
    plan = reader.plan
    if plan.relation is not None:
        return join_sources(source, reader, starts, ends)
    found = source.count(reader, plan.source, plan.used, starts, ends)
    return replace(found, rows=project_rows(found.rows, plan))


def _pair_offsets(starts: Offsets, ends: Offsets) -> dict[str, dict[str, list[int]]]:
    return {
        topic: {p: [starts[topic][p], end] for p, end in partitions.items()}
        for topic, partitions in ends.items()
    }


# --- recomputing ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Argument:
    """Count, sum and values of one argument in one group, from Spark."""

    count: int = 0
    total: int | None = 0  # in units of the type; None if beyond DECIMAL(38)
    largest: Any = None
    smallest: Any = None
    values: Sequence[tuple[Any, int]] = ()  # with multiplicities, if the aggregate needs them

    def add(self, sign: int, count: int, total: int | None) -> None:
        """Add values that have one sign; their total is NULL if there is none of them."""
        self.count += sign * count
        if count and self.total is not None:
            self.total = None if total is None else self.total + sign * total


def _recompute_results(
    rows: DataFrame, plan: Plan, *, drops_early: bool, fired_to: int | None
) -> tuple[dict[Key, Row], set[Key]]:
    """Return the results of all groups, and the groups with a sum beyond Spark's decimals."""
    rows = rows.persist()
    keys = [f"g{index}" for index in range(len(plan.group))]
    found = {key: (0, [_Argument() for _ in plan.arguments]) for key in plan.empty_keys}
    found |= {
        key: (row_count, arguments)
        for key, (row_count, arguments) in _count_and_sum(rows, plan, keys).items()
        if row_count > 0 or (drops_early and row_count) or key in plan.empty_keys
    }
    for index, function in _list_value_arguments(plan):
        for key, *values in _collect_values(rows, plan, keys, index, function):
            if key not in found:
                continue
            argument = found[key][1][index]
            if function == "extremes":
                argument.largest, argument.smallest = values
            else:
                (argument.values,) = values
    rows.unpersist()
    rows_of_groups = GroupRows(plan) if plan.has_computed else None
    results: dict[Key, Row] = {}
    for key, (row_count, arguments) in found.items():
        result: Row = tuple(
            _recompute_result(plan, each, row_count, arguments, fired_to)
            for each in plan.aggregates
        )
        if rows_of_groups is None:
            results[key] = result
            continue
        stored, passes = rows_of_groups.compute(key, result, [0])
        if passes:
            results[key] = rows_of_groups.select(stored)
    beyond = {
        key for key, (_, kept) in found.items() if any(argument.total is None for argument in kept)
    }
    return results, beyond


def _count_and_sum(
    rows: DataFrame, plan: Plan, keys: Sequence[str]
) -> dict[Key, tuple[int, list[_Argument]]]:
    """Return for each group the sum of signs, and the count and exact sum of each argument.

    The rows of a group are summed for each sign, which is a weight if they are joined."""
    columns: list[Column] = [F.count("*").alias("rows")]
    shapes: list[SqlType | None] = []
    for index, argument in enumerate(plan.arguments):
        value = F.col(f"a{index}")
        columns.append(F.count(value).alias(f"count{index}"))
        shape = None
        if argument.type.integer or argument.type.kind is Kind.DECIMAL:
            shape = decimal(DECIMAL_PRECISION_MAX, argument.type.scale or 0)
            columns.append(F.try_sum(value.cast(spark_type(shape))).alias(f"sum{index}"))
        shapes.append(shape)
    table = rows.groupBy(*keys, SIGN).agg(*columns).toArrow()
    found = [from_arrow(table[name], named.type) for name, named in _zip_named(keys, plan)]
    group_keys = list(zip(*found, strict=True)) if keys else [()] * table.num_rows
    signs, row_counts = to_list(table[SIGN]), to_list(table["rows"])
    counts = [to_list(table[f"count{index}"]) for index in range(len(shapes))]
    totals = [
        [0] * table.num_rows if shape is None else from_arrow(table[f"sum{index}"], shape)
        for index, shape in enumerate(shapes)
    ]
    groups: dict[Key, tuple[int, list[_Argument]]] = {}
    for at, (key, sign) in enumerate(zip(group_keys, signs, strict=True)):
        row_count, arguments = groups.get(key) or (0, [_Argument() for _ in shapes])
        for each, count, total in zip(arguments, counts, totals, strict=True):
            each.add(sign, count[at], total[at])
        groups[key] = row_count + sign * row_counts[at], arguments
    return groups


def _zip_named(keys: Sequence[str], plan: Plan) -> Iterator[tuple[str, Named]]:
    return zip(keys, plan.group, strict=True)


def _list_value_arguments(plan: Plan) -> list[tuple[int, str]]:
    """Return the arguments whose values are needed, each with its purpose."""
    needed: dict[tuple[int, str], None] = {}
    for each in plan.aggregates:
        if each.argument is None:
            continue
        if each.function in EXTREMES:
            needed[each.argument, "extremes"] = None
        elif _needs_values(each, plan.arguments[each.argument].type):
            needed[each.argument, "values"] = None
    return list(needed)


def _needs_values(aggregate: Aggregate, argument: SqlType) -> bool:
    """Return whether Spark has no exact result; it has for counts, and for sums except floats."""
    if aggregate.distinct or aggregate.function not in ("COUNT", "SUM", "AVG"):
        return True
    return aggregate.function != "COUNT" and argument.floating


def _collect_values(
    rows: DataFrame, plan: Plan, keys: Sequence[str], index: int, purpose: str
) -> Iterator[tuple[Any, ...]]:
    """Yield for each group the extremes of an argument, or all values with multiplicities."""
    name, kind = f"a{index}", plan.arguments[index].type
    left = (
        rows.where(F.col(name).isNotNull())
        .groupBy(*keys, name)
        .agg(F.sum(SIGN).alias("times"))
        .where(F.col("times") != 0)
    )
    if purpose == "extremes":
        left = left.where(F.col("times") > 0)
        columns = [F.max(name).alias("largest"), F.min(name).alias("smallest")]
        table = left.groupBy(*keys).agg(*columns).toArrow()
        values = [from_arrow(table[each], kind) for each in ("largest", "smallest")]
    else:
        pairs = F.collect_list(F.struct(F.col(name).alias("value"), F.col("times")))
        table = left.groupBy(*keys).agg(pairs.alias("pairs")).toArrow()
        values = [_read_pairs(table["pairs"].combine_chunks(), kind)]
    found = [from_arrow(table[each], named.type) for each, named in _zip_named(keys, plan)]
    group_keys = list(zip(*found, strict=True)) if keys else [()] * table.num_rows
    yield from zip(group_keys, *values, strict=True)


def _read_pairs(lists: pa.ListArray, kind: SqlType) -> list[list[tuple[Any, int]]]:
    """Return lists of pairs: a value and its multiplicity."""
    pairs = lists.values
    flat = list(zip(from_arrow(pairs.field(0), kind), pairs.field(1).to_pylist(), strict=True))
    return [flat[start:end] for start, end in pairwise(lists.offsets.to_pylist())]


def _recompute_result(
    plan: Plan,
    each: Aggregate,
    row_count: int,
    arguments: Sequence[_Argument],
    fired_to: int | None,
) -> Any:
    """Return the value of one aggregate; `fired_to` is the time up to which timers have fired."""
    if each.argument is None:
        return row_count
    argument, kind = arguments[each.argument], plan.arguments[each.argument].type
    if is_class(each):
        return recompute_class(each, kind, sort_present(argument.values), fired_to)
    if each.function in EXTREMES:
        return argument.largest if each.function == "MAX" else argument.smallest
    if _needs_values(each, kind):
        return recompute(each, kind, argument.values)
    if each.function == "COUNT":
        return argument.count
    if argument.total is None:
        return None
    return recompute_total(each, kind, argument.total, argument.count)


# --- comparing --------------------------------------------------------------------------------


def _make_report(
    reader: TableReader,
    stored: Mapping[Key, Row],
    recomputed: Mapping[Key, Row],
    beyond: set[Key],
    found: CountedRows,
    offsets: dict[str, dict[str, list[int]]],
) -> AuditReport:
    differing = [
        key
        for key in {**stored, **recomputed}
        if key not in beyond and stored.get(key) != recomputed.get(key)
    ]
    shape = reader.shape

    def row(rows: Mapping[Key, Row], key: Key) -> dict[str, Json] | None:
        return shape.row(key, rows[key]) if key in rows else None

    together = found.doubts + found.repeated
    odd, named = together.counts, together.named
    noticed = reader.newest.counts.source_repeated
    if noticed is not None and not reader.spec.dedupes(noticed.topic):
        odd["source_repeats"] = noticed.count
        place = f"{noticed.topic}/{noticed.partition} offset {noticed.offset}"
        named.append(f"the source repeats itself from {place}")
    verdict: Verdict = "undecided" if odd else "equal"
    dropped = sum(row.counts.dropped_retractions for row in reader.counted_epochs)
    if dropped:
        odd["dropped_retractions"] = dropped
    if differing:
        depends_on_bundles = dropped and reader.spec.drops_early
        verdict = "undecided" if found.doubts.counts or depends_on_bundles else "different"
    return AuditReport(
        job=reader.paths.name,
        epoch=reader.newest.epoch,
        verdict=verdict,
        groups=len(stored),
        not_compared=len(beyond),
        differing=len(differing),
        differences=[
            Difference(shape.key(key), row(stored, key), row(recomputed, key))
            for key in differing[:DIFFERENCES_SHOWN_MAX]
        ],
        odd=odd,
        doubts=named,
        offsets=offsets,
    )
