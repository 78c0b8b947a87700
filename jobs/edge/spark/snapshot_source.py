"""The rows of a source's snapshot, as Spark's own readers give them, in parts.

    database   ranges of the key  ─► a query of each, several at once ─┐
    files      pieces of a size   ─► some pieces of one version ───────┴─► rows of one part

A later start must find the same parts: their plan is in the epoch rows. A part by a text key ends
at a text that the database finds by its own order, and the epoch row has it for the next part.
Files that have changed since the plan are refused: a part of other pieces would lose rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
from delta.tables import DeltaTable
from pyspark import RDD
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from jobs.core.plan.tree import Column
from jobs.core.rows.key_ranges import KeyRange, cut_part, is_plain
from jobs.edge.files.allowed import require_allowed
from jobs.edge.rows.snapshot_columns import SnapshotColumn, SnapshotForm
from jobs.edge.spark.column_types import spark_type
from schemas.failures.catalogue import CodedError
from schemas.limits import (
    SNAPSHOT_BOUND_ROWS,
    SNAPSHOT_LISTING_TASKS,
    SNAPSHOT_PART_PIECES,
    SNAPSHOT_PART_ROWS,
    SNAPSHOT_PIECE_BYTES,
    SNAPSHOT_PIECE_FILES,
)
from schemas.spec.connections import Connections, jdbc_options
from schemas.spec.snapshot import JdbcTable, Snapshot
from schemas.table.snapshot import PLAN_FORMAT, SnapshotPlan
from schemas.types.sql_types import INTEGER_BITS, MICROSECOND_PRECISION, Kind, SqlType

_PIECES = {  # whatever cores a start has
    "spark.sql.files.minPartitionNum": "1",
    # Of Spark's job that lists: by default it has a task for each directory, or file of CSV.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(SNAPSHOT_LISTING_TASKS),
}
# Every line is a row of the first line's columns; a quote in a quoted text is doubled.
_CSV = {"header": "true", "mode": "FAILFAST", "escape": '"', "enforceSchema": "false"}
_INTEGERS: dict[T.DataType, int] = {
    T.ByteType(): 8,
    T.ShortType(): 16,
    T.IntegerType(): 32,
    T.LongType(): 64,
}
_TEXTS = T.StringType, T.CharType, T.VarcharType
_STAMPS = T.TimestampType(), T.TimestampNTZType()
_NESTED = T.ArrayType, T.MapType, T.StructType, T.BinaryType, T.NullType

_DIGEST_CHARACTERS = 16

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SnapshotMisfit(CodedError, code="input-refused"):
    """The snapshot of a source cannot be read as the spec says."""


@dataclass(frozen=True, slots=True)
class PartRows:
    """The rows of one part of a snapshot, not read yet."""

    frame: DataFrame
    columns: tuple[SnapshotColumn, ...]
    plan: SnapshotPlan  # to open the next part with
    pieces: Sequence[int] | None = None  # of the frame's partitions; None: all

    @property
    def tasks(self) -> int:
        return self.frame.rdd.getNumPartitions() if self.pieces is None else len(self.pieces)

    def run(self, task: Batches, schema: str) -> RDD[Any]:
        """Return what the task makes of the rows of each piece."""
        rows: RDD[Any] = self.frame.mapInArrow(task, schema).rdd
        if self.pieces is None:
            return rows
        jvm: Any = rows.ctx._jvm
        chosen = jvm.java.util.ArrayList()
        for piece in self.pieces:
            chosen.add(piece)
        # A set of Scala is a function that is true for its members.
        wanted = jvm.PythonUtils.toSeq(chosen).toSet()
        some = jvm.org.apache.spark.rdd.PartitionPruningRDD.create(rows._jrdd.rdd(), wanted)
        return RDD(some.toJavaRDD(), rows.ctx, rows._jrdd_deserializer)


class SnapshotSource:
    """Reads the snapshot of one source; `columns` are those that the job needs of a row."""

    def __init__(
        self,
        spark: SparkSession,
        snapshot: Snapshot,
        columns: tuple[Column, ...],
        connections: Connections,
        tasks: int,
    ) -> None:
        if snapshot.files is not None:
            kind, path = snapshot.files
            require_allowed(f"snapshot.{kind}", path)
        self._spark = spark.newSession()
        for name, value in _PIECES.items():
            self._spark.conf.set(name, value)
        self._snapshot = snapshot
        self._columns = columns
        self._connections = connections
        self._tasks = tasks
        self._checked: DataFrame | None = None  # whose files are those of the plan

    def make_plan(self) -> SnapshotPlan:
        """Return the parts of the snapshot as it is now."""
        if self._snapshot.jdbc is not None:
            return self._plan_table(self._snapshot.jdbc)
        version = None
        if (path := self._snapshot.delta) is not None:
            (newest,) = DeltaTable.forPath(self._spark, path).history(1).collect()
            version = newest["version"]
        self._checked = self._load(version)
        size = _choose_piece_bytes(self._checked)
        pieces, digest = self._find_pieces(self._checked, size)
        parts = max(1, -(-pieces // SNAPSHOT_PART_PIECES))
        return SnapshotPlan(
            parts=parts,
            version=version,
            pieces=pieces,
            piece_bytes=size,
            digest=digest,
            format=PLAN_FORMAT,
        )

    def open(self, plan: SnapshotPlan, part: int) -> PartRows:
        """Return the rows of a part, which counts from 0."""
        if (table := self._snapshot.jdbc) is not None:
            if plan.page:
                ranges, plan = self._cut_page(table, plan, part)
            else:
                ranges = cut_part(plan.low, plan.high, plan.parts, part, self._tasks)
            conditions = [each.condition(table.key) for each in ranges]
            options = self._options(table)
            url, name = options.pop("url"), table.table
            frame = self._spark.read.jdbc(url, name, predicates=conditions, properties=options)
            return self._select(frame, plan)
        # Listing takes a while, so it is done twice: before the first part of this process, and
        # before the last one of several.
        if self._checked is None or 0 < part == plan.parts - 1:
            self._checked = self._load(plan.version)
            found = self._find_pieces(self._checked, plan.piece_bytes)
            if found != (plan.pieces, plan.digest):
                raise SnapshotMisfit(
                    f"the files of the snapshot have changed since its first part was read; {part} "
                    f"of {plan.parts} parts are read; put the files back, or give the job a new "
                    "name"
                )
        first = part * SNAPSHOT_PART_PIECES
        last = min(first + SNAPSHOT_PART_PIECES, plan.pieces)
        return self._select(self._checked, plan, range(first, last))

    def _plan_table(self, table: JdbcTable) -> SnapshotPlan:
        key = table.key
        (found,) = self._query(table, f"{key} AS one_key", "WHERE 1 = 0").schema.fields
        text = isinstance(found.dataType, _TEXTS)
        ends = "0 AS low_key, 0" if text else f"MIN({key}) AS low_key, MAX({key})"
        frame = self._query(table, f"{ends} AS high_key, COUNT(*) AS row_count")
        low, high, rows = frame.collect()[0]
        parts = table.parts or max(1, -(-int(rows) // SNAPSHOT_PART_ROWS))
        if text:
            return SnapshotPlan(parts=parts, page=max(1, -(-int(rows) // parts)))
        if low is None:
            return SnapshotPlan(parts=1)
        if not all(isinstance(each, int | Decimal) and int(each) == each for each in (low, high)):
            raise SnapshotMisfit(
                f"snapshot.jdbc.key: {key} has neither whole numbers nor text; name another column"
            )
        return SnapshotPlan(parts=parts, low=int(low), high=int(high))

    def _cut_page(
        self, table: JdbcTable, plan: SnapshotPlan, part: int
    ) -> tuple[list[KeyRange], SnapshotPlan]:
        """Return the ranges of the next part by a text key, and the plan for the part after it."""
        bounds = [plan.after or None]
        for _ in range(self._tasks):
            bounds.append(self._find_bound(table, bounds[-1], -(-plan.page // self._tasks)))
            if bounds[-1] is None:
                break
        parts = part + 1 if bounds[-1] is None else max(plan.parts, part + 2)
        after = msgspec.structs.replace(plan, parts=parts, after=bounds[-1] or "")
        return [KeyRange(*each) for each in pairwise(bounds)], after

    def _find_bound(self, table: JdbcTable, after: str | None, rows: int) -> str | None:
        """Return a key of a text column some rows behind another one; None: the rows end before."""
        key, url = table.key, self._options(table)["url"]
        where = f"{key} IS NOT NULL" if after is None else KeyRange(after, None).condition(key)
        for some in SNAPSHOT_BOUND_ROWS:
            page = f"OFFSET {rows - 1} ROWS FETCH NEXT {some} ROWS ONLY"
            if url.startswith("jdbc:mysql:"):
                page = f"LIMIT {some} OFFSET {rows - 1}"
            frame = self._query(table, f"{key} AS one_key", f"WHERE {where} ORDER BY {key} {page}")
            found: list[str] = [text for (text,) in frame.collect()]
            if bound := next((text for text in found if is_plain(text)), None):
                return bound
            if len(found) < some:
                return None
        raise SnapshotMisfit(
            f"snapshot.jdbc.key: none of {some} texts of {key} behind {after!r} is printable ASCII "
            "without quotes, backslashes, braces and question marks, so none can end a part; name "
            "another column"
        )

    def _query(self, table: JdbcTable, columns: str, clauses: str = "") -> DataFrame:
        """Return a query over the table; the names in it are checked by the spec."""
        query = f"SELECT {columns} FROM {table.table} {clauses}"  # noqa: S608
        return self._spark.read.format("jdbc").options(**self._options(table), query=query).load()

    def _options(self, table: JdbcTable) -> dict[str, str]:
        return jdbc_options(self._connections.lookup_database(table.connection))

    def _load(self, version: int | None) -> DataFrame:
        """Return the frame of all files; of a Delta table those of a version."""
        assert self._snapshot.files is not None
        kind, path = self._snapshot.files
        options = {"versionAsOf": str(version)} if kind == "delta" else {}
        options = _CSV if kind == "csv" else options
        return self._spark.read.format(kind).options(**options).load(path)

    def _find_pieces(self, frame: DataFrame, size: int) -> tuple[int, str]:
        """Return how many pieces Spark divides files into, and a digest of all of them."""
        self._spark.conf.set("spark.sql.files.maxPartitionBytes", size)
        self._spark.conf.set("spark.sql.files.openCostInBytes", size // SNAPSHOT_PIECE_FILES)
        rdd: Any = frame._jdf.queryExecution().toRdd()
        while rdd.dependencies().nonEmpty():
            rdd = rdd.dependencies().apply(0).rdd()
        # Paths, ranges and times of all at once: a call of Java for each takes longer than Spark.
        jvm: Any = self._spark._jvm
        pieces = rdd.partitions()
        files = bytes(jvm.org.apache.spark.util.Utils.serialize(pieces))
        return len(pieces), sha256(files).hexdigest()[:_DIGEST_CHARACTERS]

    def _select(
        self, frame: DataFrame, plan: SnapshotPlan, pieces: Sequence[int] | None = None
    ) -> PartRows:
        """Return the columns that the job needs, each as the task can read it."""
        fields = {field.name.lower(): field for field in frame.schema.fields}
        fields |= {field.name: field for field in frame.schema.fields}  # the same case is better
        chosen, columns = list[SparkColumn](), list[SnapshotColumn]()
        for column in self._columns:
            field = fields.get(column.name) or fields.get(column.name.lower())
            if field is None:
                raise SnapshotMisfit(f"the snapshot has no column {column.name}")
            form, value = _read_as(F.col(f"`{field.name}`"), field.dataType, column)
            chosen.append(value)
            columns.append(SnapshotColumn(column, form))
        return PartRows(frame.select(*chosen), tuple(columns), plan, pieces)


def _read_as(
    value: SparkColumn, given: T.DataType, column: Column
) -> tuple[SnapshotForm, SparkColumn]:
    """Return a column of a frame as the task gets it; raise SnapshotMisfit for a wrong type."""
    wanted, kind = column.type, column.type.kind
    if isinstance(given, _TEXTS):
        return SnapshotForm.SOURCE_TEXT, value
    if _is_declared(given, wanted):
        return SnapshotForm.AS_DECLARED, value.cast(spark_type(wanted))
    is_text = kind is Kind.STRING
    plain = given in _INTEGERS or isinstance(given, T.DecimalType | T.DateType)
    if isinstance(given, _NESTED) or (is_text and not plain) or kind is Kind.BINARY:
        raise SnapshotMisfit(
            f"column {column.name} of the snapshot is {given.simpleString()}, and its {wanted} is "
            "not known; declare the type of the snapshot, or convert it in a view of the table"
        )
    if isinstance(given, T.BooleanType) and kind is not Kind.BOOLEAN:
        value = value.cast("int")
    text = value.cast("string")
    if kind is Kind.TIMESTAMP_LTZ and given in _STAMPS:
        text = F.concat(text, F.lit("Z"))
    return SnapshotForm.SQL_TEXT, text


def _is_declared(given: T.DataType, wanted: SqlType) -> bool:
    """Return whether Spark's values are those of a declared type, or all fit into it."""
    if wanted.integer:
        return given in _INTEGERS and _INTEGERS[given] <= INTEGER_BITS[wanted.kind]
    if wanted.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
        return given in _STAMPS and wanted.precision == MICROSECOND_PRECISION
    exact = (Kind.BOOLEAN, Kind.DECIMAL, Kind.DATE, Kind.BINARY)
    return wanted.kind in exact and given == spark_type(wanted)


def _choose_piece_bytes(frame: DataFrame) -> int:
    """Return the bytes of a piece, with which a part has at most SNAPSHOT_PART_ROWS on average.

    Spark counts the rows by the footers of Parquet, and reads CSV once for that. It does not divide
    a row group, so a part may have one more of them.
    """
    size = int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))
    fitting = size * SNAPSHOT_PART_ROWS // (SNAPSHOT_PART_PIECES * max(1, frame.count()))
    return max(1, min(SNAPSHOT_PIECE_BYTES, fitting))
