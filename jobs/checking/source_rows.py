"""Read the rows of a job's sources for an audit, as the job decodes them.

topics, between two offsets ─► decoded, with signs ─┬─► group and argument columns of a view
                               once for all views   ├─► those of another view
                                                    └─► the key and columns of a side of a join
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jobs.checking.dedupe_audit import (
    KIND,
    MESSAGE,
    NO_DOUBTS,
    POSITION,
    SIGN,
    TIME,
    Doubts,
    count_doubts,
    describe_position,
    format_position,
    read_kinds,
    select_last_rows,
)
from jobs.core.formats.registered import FindSchema
from jobs.core.formats.registry import MessageRules
from jobs.core.job.views import JobInputs
from jobs.core.plan.tree import Column, Plan
from jobs.core.plan.walk import plan_can_fail
from jobs.core.rows.consolidate import Integers, WeightedRows
from jobs.core.rows.dedupe import NO_TRUNCATIONS, number_partition
from jobs.core.rows.source_order import number_content
from jobs.core.rows.truncations import Truncation, Truncations
from jobs.core.values.change import Changes, RejectCode, Row, Truncated
from jobs.edge.files.lines import LinePiece
from jobs.edge.files.log import FileLog
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.rows.evaluated_rows import evaluate_rows
from jobs.edge.rows.range_rows import RangeRows
from jobs.edge.spark.column_types import spark_type
from jobs.edge.table.reading import TableReader
from jobs.edge.tasks.file_ranges import read_file_ranges
from jobs.reading.parts import QUARANTINE
from jobs.topics.schema_registry import find_by
from schemas.limits import DOUBTFUL_KEYS_NAMED_MAX
from schemas.spec.connections import Connections, spark_options
from schemas.table.epoch import Offsets
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import to_arrow

_TIMES = "__weight"
_NOT_DECODED_AGAIN = (RejectCode.FUTURE, RejectCode.SHARED, RejectCode.SCHEMA)
FAILED = "__failed"  # of an evaluated row
CONTENT = "__content"  # of a message, at the first of its rows
_RECORD = "key binary, value binary, topic string, partition int, offset long"
_TRUNCATIONS = pa.schema([(name, pa.int64()) for name in Truncation.__struct_fields__])


@dataclass(frozen=True, slots=True)
class _SignedRows:
    """Decodes records to signed rows, one by one; a rejected message has no rows."""

    plan: Plan  # for decoding the source
    rules: MessageRules
    find_schema: FindSchema | None
    left_out: frozenset[str]  # quarantined messages whose rejection cannot be recomputed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        image, find = self.plan.image, self.find_schema
        decode = self.rules.decoder(self.plan.columns, image, find_schema=find).decode
        for batch in batches:
            messages: list[str] = []
            places: list[str] = []
            signs: list[int] = []
            rows: list[Row] = []
            kinds: list[int] = []
            times: list[int | None] = []
            contents: list[int | None] = []
            for record in batch.to_pylist():
                decoded = decode(record["value"], record["key"])
                at = record["topic"], record["partition"], record["offset"]
                name = "/".join(map(str, at))
                if isinstance(decoded, Changes) and name not in self.left_out:
                    count = len(decoded.changes)
                    messages += [name] * count
                    places += [format_position(*at, index) for index in range(count)]
                    signs += [sign for sign, _ in decoded.changes]
                    rows += [row for _, row in decoded.changes]
                    if self.plan.primary_key:
                        kinds += read_kinds(
                            self.plan, decoded.changes, keys_change=self.rules.keys_change
                        )
                        times += [decoded.es] * count
                    elif count:
                        content = number_content(self.rules.format, record["key"], record["value"])
                        contents += [content, *[None] * (count - 1)]
            found = self._batch(messages, places, signs, rows)
            if self.plan.primary_key:
                found = found.append_column(KIND, pa.array(kinds, pa.int64()))
                found = found.append_column(TIME, pa.array(times, pa.int64()))
            else:
                found = found.append_column(CONTENT, pa.array(contents, pa.int64()))
            yield found

    def _batch(
        self,
        messages: Sequence[str],
        places: Sequence[str],
        signs: Sequence[int],
        rows: Sequence[Row],
    ) -> pa.RecordBatch:
        image = self.plan.image
        values = list(zip(*rows, strict=True)) if rows else [()] * len(image)
        arrays = [to_arrow(v, column.type) for v, column in zip(values, image, strict=True)]
        fields = [(column.name, arrow_type(column.type)) for column in image]
        own = [(MESSAGE, pa.string()), (POSITION, pa.string()), (SIGN, pa.int64())]
        arrays += [pa.array(messages, pa.string()), pa.array(places, pa.string())]
        arrays.append(pa.array(signs, pa.int64()))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*fields, *own]))


@dataclass(frozen=True, slots=True)
class _FindTruncates:
    """Finds the TRUNCATEs that the job has applied; others stopped it or are in quarantine."""

    plan: Plan
    rules: MessageRules
    find_schema: FindSchema | None
    left_out: frozenset[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        image, find = self.plan.image, self.find_schema
        decode = self.rules.decoder(self.plan.columns, image, find_schema=find).decode
        for batch in batches:
            found = []
            for record in batch.to_pylist():
                decoded = decode(record["value"])
                if not isinstance(decoded, Truncated) or decoded.es is None:
                    continue
                topic, partition, offset = (record[n] for n in ("topic", "partition", "offset"))
                if f"{topic}/{partition}/{offset}" not in self.left_out:
                    number = number_partition(topic, partition)
                    each = Truncation.of(number, decoded.es, decoded.ts, offset)
                    found.append(msgspec.structs.asdict(each))
            yield pa.RecordBatch.from_pylist(found, _TRUNCATIONS)


@dataclass(frozen=True, slots=True)
class CountedRows:
    """Rows that count, and where the source leaves open which ones these are."""

    rows: DataFrame
    doubts: Doubts  # keys whose row the topic does not decide
    repeated: Doubts = NO_DOUBTS  # messages that count twice, in the table and in an audit


class SourceRows:
    """Reads the sources of a job for audits; views that have read the same messages share them."""

    def __init__(
        self,
        start_session: Callable[[], SparkSession],
        connections: Connections,
        readers: Iterable[TableReader],
    ) -> None:
        self._start_session = start_session
        self._connections = connections
        views = {reader.paths.view: reader for reader in readers}
        first = next(iter(views.values()))
        spec, self._data = first.spec, first.paths.data.absolute()
        self._specs = spec.source_specs
        # The plan of a source has every column that one of the views reads, as that of the job.
        self.inputs = JobInputs.of(spec, {name: reader.plan for name, reader in views.items()})
        self._found: dict[tuple[str, str, str, frozenset[str]], DataFrame] = {}

    @property
    def spark(self) -> SparkSession:
        """The session, which is started when it is first needed."""
        return self._start_session()

    def count(
        self,
        reader: TableReader,
        source: str,
        columns: Iterable[Column],
        starts: Offsets,
        ends: Offsets,
    ) -> CountedRows:
        """Return the rows of a source that count, with message and sign.

        With dedupe these are the last rows of its keys, else all inserted and deleted ones, of
        which each has its match in these columns."""
        plan = self.inputs.sources[source]
        left_out = names_left_out(reader.part(QUARANTINE), plan)
        first, last = (
            json.dumps({topic: each[topic] for topic in self._specs[source].source.topics})
            for each in (starts, ends)
        )
        asked = source, first, last, left_out
        if asked not in self._found:
            self._found[asked] = self._read(*asked).persist()
        rows = self._found[asked]
        if plan.primary_key:
            return CountedRows(rows.where(F.col(SIGN) > 0), count_doubts(rows))
        return CountedRows(rows, find_missing_rows(rows, columns), find_repeated_messages(rows))

    def _read(self, source: str, starts: str, ends: str, left_out: frozenset[str]) -> DataFrame:
        """Return every signed row of a source; with dedupe the last row of each key."""
        plan, records = self.inputs.sources[source], self._read_records(source, starts, ends)
        rules = MessageRules.of(self._specs[source])
        find = find_by(self._connections, self._specs[source])
        schema = StructType()
        for column in plan.image:
            schema = schema.add(column.name, spark_type(column.type))
        schema = schema.add(MESSAGE, "string").add(POSITION, "string").add(SIGN, "long")
        if plan.primary_key:
            schema = schema.add(KIND, "long").add(TIME, "long")
        else:
            schema = schema.add(CONTENT, "long")
        rows = records.mapInArrow(_SignedRows(plan, rules, find, left_out), schema)
        if not plan.primary_key:
            return rows
        truncations = NO_TRUNCATIONS
        if self._specs[source].on_truncate == "apply":
            truncations = _collect_truncations(records, _FindTruncates(plan, rules, find, left_out))
        return select_last_rows(rows, plan, truncations)

    def _read_records(self, source: str, starts: str, ends: str) -> DataFrame:
        if (files := self._specs[source].source.files) is not None:
            at = [json.loads(each)[files.path]["0"] for each in (starts, ends)]
            return self._read_lines(FileLog.open(self._data, files), *at)
        connection = self._connections.lookup(self._specs[source].source.connection)
        return (
            self.spark.read.format("kafka")
            .options(**spark_options(connection))
            .option("subscribe", ",".join(sorted(json.loads(starts))))
            .option("startingOffsets", starts)
            .option("endingOffsets", ends)
            .option("failOnDataLoss", "true")
            .option("kafka.isolation.level", "read_committed")
            .load()
            .select("key", "value", "topic", "partition", "offset")
        )

    def _read_lines(self, log: FileLog, start: int, end: int) -> DataFrame:
        pieces = list(log.find_pieces(start, end))
        ranges = self.spark.sparkContext.parallelize(pieces, max(1, len(pieces)))
        read = partial(_records_of, OffsetRange(log.files.path, 0, start, end))
        return self.spark.createDataFrame(ranges.flatMap(read), _RECORD)


def _records_of(read: OffsetRange, piece: LinePiece) -> Iterator[tuple[Any, ...]]:
    """Yield the lines of a piece that belong to the range, as Spark reads records."""
    for _, records in read_file_ranges([LinePiece(*piece)], [read]):
        for record in records:
            yield record.key, record.value, read.topic, read.partition, record.offset


def _collect_truncations(records: DataFrame, find: _FindTruncates) -> Truncations:
    """Return the TRUNCATEs that the job applies; with positions, which are offsets."""
    found = records.mapInArrow(find, "partition long, time long, until long, position long")
    rows = sorted(found.collect(), key=lambda row: row["position"])
    return NO_TRUNCATIONS.add(Truncation(*row) for row in rows)


def names_left_out(rejects: Sequence[Mapping[str, Any]], plan: Plan) -> frozenset[str]:
    """Return the names of the quarantined messages that an audit does not decode again.

    The others must be refused again, for the same reason. With `dedupe: pk` all are left out,
    because the images before a refused message count. With joins a message on which one of them
    fails is refused for all views.
    """
    return frozenset(
        f"{reject['topic']}/{reject['partition']}/{reject['offset']}"
        for reject in rejects
        if plan.primary_key or reject["quarantine_code"] in _NOT_DECODED_AGAIN
    )


def find_missing_rows(rows: DataFrame, columns: Iterable[Column]) -> Doubts:
    """Return the rows that the topic retracts more often than it inserts them."""
    retracted_at = F.when(F.col(SIGN) < 0, F.col(POSITION))
    counted = rows.groupBy(*(column.name for column in columns)).agg(
        F.sum(SIGN).alias(_TIMES), F.max(retracted_at).alias(POSITION)
    )
    missing = counted.where(F.col(_TIMES) < 0).select((-F.col(_TIMES)).alias(_TIMES), POSITION)
    return _count_doubts(missing, "missing_rows", "retracts a row that is missing")


def find_repeated_messages(rows: DataFrame) -> Doubts:
    """Return the messages that say the same as another one, so that their rows count twice."""
    said = rows.where(F.col(CONTENT).isNotNull()).groupBy(CONTENT)
    counted = said.agg(F.count("*").alias(_TIMES), F.max(POSITION).alias(POSITION))
    again = counted.where(F.col(_TIMES) > 1).select((F.col(_TIMES) - 1).alias(_TIMES), POSITION)
    return _count_doubts(again, "repeated_messages", "says what an earlier one does")


def _count_doubts(found: DataFrame, counter: str, what: str) -> Doubts:
    """Return the sum of the times in these rows, and the first positions."""
    found = found.persist()
    total = found.agg(F.sum(_TIMES)).collect()[0][0] or 0
    first = found.orderBy(POSITION).limit(DOUBTFUL_KEYS_NAMED_MAX).collect() if total else []
    found.unpersist()
    named = [f"{describe_position(row[POSITION])} {what}" for row in first]
    return Doubts({counter: total} if total else {}, named)


def project_rows(rows: DataFrame, plan: Plan) -> DataFrame:
    """Return the rows that WHERE leaves, without those of messages on which an expression fails."""
    evaluated = evaluate(rows, plan)
    if not plan_can_fail(plan):
        return evaluated.drop(FAILED)
    # If an expression fails on one row, the whole message is in quarantine.
    failing = evaluated.where(FAILED).select(MESSAGE).distinct()
    return evaluated.where(~F.col(FAILED)).drop(FAILED).join(failing, MESSAGE, "left_anti")


def evaluate(rows: DataFrame, plan: Plan) -> DataFrame:
    """Return message, sign, FAILED, group and arguments of rows."""
    # Spark would take the dot in the name of a joined column for a field.
    used = [F.col(f"`{each.name}`").alias(f"c{index}") for index, each in enumerate(plan.used)]
    function = _EvaluateRows(plan)
    return rows.select(MESSAGE, SIGN, *used).mapInArrow(function, function.schema)


@dataclass(frozen=True, slots=True)
class _EvaluateRows:
    """Evaluates the row expressions of a plan, as the job does: a row for each window and set.

    A row that fails is there once, without values and with FAILED."""

    plan: Plan

    @property
    def schema(self) -> StructType:
        """Return the schema of evaluated rows: message, sign, FAILED, group, arguments."""
        schema = StructType().add(MESSAGE, "string").add(SIGN, "long").add(FAILED, "boolean")
        for letter, columns in (("g", self.plan.group), ("a", self.plan.arguments)):
            for index, named in enumerate(columns):
                schema = schema.add(f"{letter}{index}", spark_type(named.type))
        return schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [
                batch[f"c{index}"].cast(arrow_type(each.type))
                for index, each in enumerate(self.plan.used)
            ]
            numbers = np.arange(batch.num_rows)
            weighted = WeightedRows(numbers, numbers, np.ones(batch.num_rows, np.int64))
            found = evaluate_rows(self.plan, RangeRows(columns, weighted.weights), weighted)
            good = ~np.isin(found.weighted.positions, [row for row, _ in found.failures])
            values = [column.filter(pa.array(good)) for column in found.rows.columns]
            yield self._batch(batch, found.weighted.positions[good], values, failed=False)
            failing = np.array([row for row, _ in found.failures], np.int64)
            nothing = [pa.nulls(len(failing), column.type) for column in values]
            yield self._batch(batch, failing, nothing, failed=True)

    def _batch(
        self, batch: pa.RecordBatch, rows: Integers, values: list[pa.Array], *, failed: bool
    ) -> pa.RecordBatch:
        own = [batch[name].take(pa.array(rows)) for name in (MESSAGE, SIGN)]
        own.append(pa.repeat(pa.scalar(failed), len(rows)))
        return pa.RecordBatch.from_arrays([*own, *values], self.schema.names)
