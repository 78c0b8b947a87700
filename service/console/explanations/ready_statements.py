"""Statements for other engines that read a job's current results from its table.

The newest row of a key counts, unless it is a tombstone: see docs/tables.md. Names are quoted, so
that a column may have the name of a keyword.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from jobs.reading.parts import ACCUMULATORS
from jobs.reading.row_shape import RowShape

_SELECT = """\
SELECT {columns} FROM (
    SELECT *, row_number() OVER ({partition}ORDER BY epoch DESC) AS age
    FROM {table} WHERE part = '{part}'
) WHERE age = 1 AND NOT tombstone"""
_DUCKDB = """\
import duckdb
from deltalake import DeltaTable

epochs = DeltaTable({path}).to_pyarrow_dataset()
current = duckdb.sql({select})
print(current)
"""
_SPARK = """\
# In a session with Delta's package, its extension and its catalog.
spark.read.format("delta").load({path}).createOrReplaceTempView("epochs")
current = spark.sql({select})
current.show()
"""
_POLARS = """\
import polars as pl

current = (
    pl.scan_delta({path})
    .filter(pl.col("part") == "{part}")
    {newest}
    .filter(~pl.col("tombstone"))
    .select({columns})
    .collect()
)
print(current)
"""
_POLARS_NEWEST = """\
.group_by({group})
    .agg(pl.all().sort_by("epoch").last())"""
_TRINO = """\
-- Once, in the Delta Lake connector:
CALL delta.system.register_table(
    schema_name => '{schema}', table_name => 'epochs', table_location => {location});

{select};
"""


@dataclass(frozen=True, slots=True)
class Statement:
    engine: str
    language: str
    text: str


def write_statements(
    shape: RowShape, job: str, path: str, part: str = ACCUMULATORS
) -> list[Statement]:
    """Return the statements for a job or view: `part` of the table at `path`, a path or a URL."""
    group = [name for name, _ in shape.group]
    columns = list(shape.names)
    location = path if "://" in path else f"file://{path}"
    return [
        Statement("DuckDB", "Python", _write_python(_DUCKDB, group, columns, path, part, '"')),
        Statement("Spark", "Python", _write_python(_SPARK, group, columns, path, part, "`")),
        Statement(
            "Polars",
            "Python",
            _POLARS.format(
                path=json.dumps(path),
                part=part,
                newest=_POLARS_NEWEST.format(group=_list_names(group))
                if group
                else '.sort("epoch").tail(1)',
                columns=_list_names(columns),
            ),
        ),
        Statement(
            "Trino",
            "SQL",
            _TRINO.format(
                schema=job.replace("-", "_"),
                location="'" + location.replace("'", "''") + "'",
                select=_write_select(
                    group, columns, f"delta.{job.replace('-', '_')}.epochs", part, '"'
                ),
            ),
        ),
    ]


def _write_python(
    template: str, group: Sequence[str], columns: Sequence[str], path: str, part: str, quote: str
) -> str:
    select = _write_select(group, columns, "epochs", part, quote)
    indented = "\n".join(f"    {line}" for line in select.splitlines())
    return template.format(path=json.dumps(path), select=f'"""\n{indented}\n"""')


def _write_select(
    group: Sequence[str], columns: Sequence[str], table: str, part: str, quote: str
) -> str:
    names = ", ".join(quote + name + quote for name in group)
    return _SELECT.format(
        columns=", ".join(quote + name + quote for name in columns),
        partition=f"PARTITION BY {names} " if names else "",
        table=table,
        part=part,
    )


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(map(json.dumps, names))
