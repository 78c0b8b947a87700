"""Write a Parquet file of the table, and describe it for the commit.

    rows ─► row groups: zstd, a checksum a page ─► file
              texts that differ from row to row and sequence numbers ─► delta encoding
              all other columns ─► dictionary

A task writes its files itself; a commit adds them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.limits import ENCODING_SAMPLE_ROWS, TASK_BYTES_MAX
from schemas.table.object_path import TablePath, sink
from schemas.table.parquet_file import WRITTEN
from schemas.table.view_path import place_name, place_part

_COMPRESSION = "zstd"
_ROWS_OF_A_TEXT_MAX = 4  # on average; a text that more rows have is shorter in a dictionary
_SEQUENCE = "seq"


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file for a commit to add."""

    path: str  # relative to the table, or to the root of a view
    part: str
    rows: int
    size: int
    stats: str

    def of_view(self, view: str) -> AddedFile:
        """Return the file of a view as a file of its table."""
        return replace(self, path=place_name(self.path, view), part=place_part(self.part, view))


def by_part(files: Iterable[AddedFile]) -> dict[str, list[str]]:
    """Return the paths of files by part, as an epoch row stores them."""
    paths: dict[str, list[str]] = {}
    for file in files:
        paths.setdefault(file.part, []).append(file.path)
    return paths


def file_name(part: str, epoch: int, uuid: str, writer: str) -> str:
    """Return a name unique to the attempt, so a zombie never overwrites a committed file."""
    return f"part={part}/{epoch:010d}-{uuid}-{writer}.parquet"


@dataclass(frozen=True, slots=True)
class EpochAttempt:
    """An attempt at an epoch; what all of its tasks get."""

    epoch: int
    uuid: str
    durable: bool = False
    bytes_max: int = TASK_BYTES_MAX  # of the rows of a task

    def write(self, root: TablePath, part: str, writer: str, table: pa.Table) -> AddedFile:
        """Write a file of a part; each writer of an attempt has another name."""
        name = file_name(part, self.epoch, self.uuid, writer)
        return write_file(root, name, table, durable=self.durable)

    def open(self, root: TablePath, part: str, writer: str, schema: pa.Schema) -> FileWriter:
        """Begin a file of a part, which is written by row groups."""
        name = file_name(part, self.epoch, self.uuid, writer)
        return FileWriter(root, name, schema, durable=self.durable)


def write_file(root: TablePath, name: str, table: pa.Table, *, durable: bool = False) -> AddedFile:
    """Write one file of the table and return its description for the commit."""
    with FileWriter(root, name, table.schema, durable=durable) as writer:
        writer.write(table)
    return writer.added


class FileWriter:
    """Writes one file of the table by row groups; `added` describes the closed file."""

    def __init__(
        self, root: TablePath, name: str, schema: pa.Schema, *, durable: bool = False
    ) -> None:
        self.path = root / name
        self.name = name
        self.rows = 0
        self._durable = durable and isinstance(root, Path)  # object storage is durable by itself
        self._size = 0
        self._extremes: dict[str, Extremes] = {}
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sink = sink(self.path)  # closed by __exit__
        self._schema = schema
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            (self._writer or self._open(self._schema.empty_table())).close()
            self._sink.flush()
            self._size = self._sink.tell()
            if self._durable and kind is None:
                os.fsync(self._sink.fileno())
        finally:
            self._sink.close()

    @property
    def bytes(self) -> int:
        """The number of bytes written so far."""
        return int(self._sink.tell())

    def write(self, table: pa.Table) -> None:
        """Write these rows as one row group."""
        if self._writer is None:
            self._writer = self._open(table)
        self._writer.write_table(table)
        self.rows += table.num_rows
        for name, extremes in find_extremes(table).items():
            known = self._extremes.get(name)
            self._extremes[name] = extremes if known is None else known.merge(extremes)

    def _open(self, first: pa.Table) -> pq.ParquetWriter:
        """Begin the file, encoded as its first rows are best encoded."""
        with_dictionary, encodings = _choose_encodings(first)
        return pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=_COMPRESSION,
            write_statistics=True,
            use_dictionary=with_dictionary,
            column_encoding=encodings,
            **WRITTEN,
        )

    @property
    def added(self) -> AddedFile:
        """The description of the file; complete after the writer has been closed."""
        part = self.name.split("/", 1)[0].removeprefix("part=")
        stats = format_statistics(self.rows, self._extremes)
        return AddedFile(self.name, part, self.rows, self._size, stats)


def _choose_encodings(rows: pa.Table) -> tuple[list[str], dict[str, str]]:
    """Return the columns for a dictionary, and delta encodings for those they make much shorter.

    The rows of a group follow each other, and their keys begin alike.
    """
    sample = rows.slice(0, ENCODING_SAMPLE_ROWS)
    delta = {
        field.name: "DELTA_BYTE_ARRAY"
        for field in rows.schema
        if pa.types.is_string(field.type)
        and pc.count_distinct(sample[field.name]).as_py() * _ROWS_OF_A_TEXT_MAX > len(sample)
    }
    if _SEQUENCE in rows.schema.names:
        delta[_SEQUENCE] = "DELTA_BINARY_PACKED"
    leaves = (leaf for field in rows.schema for leaf in _leaves(field.name, field.type))
    others = [leaf for leaf in leaves if leaf not in delta]
    return others, delta


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the paths of the columns of plain values that a column is stored as."""
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


STATISTICS = ("epoch", "seq", "bucket")  # integers only: nothing to truncate or to misorder


class Extremes(NamedTuple):
    """Least and greatest value and number of NULLs of one column."""

    low: int
    high: int
    nulls: int

    def merge(self, other: Extremes) -> Extremes:
        """Return the extremes of the rows of both."""
        nulls = self.nulls + other.nulls
        return Extremes(min(self.low, other.low), max(self.high, other.high), nulls)


def find_extremes(table: pa.Table) -> dict[str, Extremes]:
    """Return the extremes of each column that has statistics."""
    found = {}
    for name in STATISTICS:
        if name in table.column_names and table.num_rows:
            column = table[name]
            extremes = pc.min_max(column).as_py()
            found[name] = Extremes(extremes["min"], extremes["max"], column.null_count)
    return found


def compute_statistics(table: pa.Table) -> str:
    """Return the statistics of a file with these rows.

    Readers skip files by them, and wrong ones silently drop rows. So only integer columns have
    statistics, and tests compare them with the contents of files.
    """
    return format_statistics(table.num_rows, find_extremes(table))


def format_statistics(rows: int, columns: Mapping[str, Extremes]) -> str:
    """Return statistics as the JSON text of an add action."""
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {name: column.low for name, column in columns.items()},
            "maxValues": {name: column.high for name, column in columns.items()},
            "nullCount": {name: column.nulls for name, column in columns.items()},
        }
    )
