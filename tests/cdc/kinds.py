"""A table with a column of each type, values at their bounds, and the query that reads all of it.

Each row is a group of its own, so that the results are the table, value by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.cdc.workload import Query

ROWS = 24


@dataclass(frozen=True, slots=True)
class Kind:
    """A column: its type in the database and in the job, and values as SQL."""

    name: str
    definition: str
    declared: str
    values: tuple[str, ...]
    truth: str = "{}"  # how the database prints the value as the job does


KINDS = (
    Kind("tiny", "TINYINT", "TINYINT", ("-128", "127", "NULL")),
    Kind("utiny", "TINYINT UNSIGNED", "SMALLINT", ("0", "128", "255")),
    Kind("small", "SMALLINT", "SMALLINT", ("-32768", "32767")),
    Kind("usmall", "SMALLINT UNSIGNED", "INT", ("0", "65535")),
    Kind("medium", "MEDIUMINT", "INT", ("-8388608", "8388607")),
    Kind("umedium", "MEDIUMINT UNSIGNED", "INT", ("16777215", "0")),
    Kind("whole", "INT", "INT", ("-2147483648", "2147483647", "NULL")),
    Kind("uwhole", "INT UNSIGNED", "BIGINT", ("4294967295", "2147483648", "0")),
    Kind("big", "BIGINT", "BIGINT", ("-9223372036854775808", "9223372036854775807")),
    Kind("ubig", "BIGINT UNSIGNED", "DECIMAL(20, 0)", ("18446744073709551615", "0")),
    Kind("yes", "TINYINT(1)", "BOOLEAN", ("0", "1", "NULL")),
    Kind("price", "DECIMAL(20,4)", "DECIMAL(20, 4)", ("-1234567890123456.7891", "0.0001", "NULL")),
    Kind(
        "broad",
        "DECIMAL(38,10)",
        "DECIMAL(38, 10)",
        ("9999999999999999999999999999.9999999999", "0"),
    ),
    Kind("floating", "FLOAT", "FLOAT", ("1.5", "-0.25", "NULL")),
    Kind("real8", "DOUBLE", "DOUBLE", ("0.1", "-1e300", "2.2250738585072014e-308")),
    Kind("bits", "BIT(8)", "SMALLINT", ("b'11111111'", "b'0'", "b'101'"), "{} + 0"),
    Kind("day", "DATE", "DATE", ("'0001-01-01'", "'9999-12-31'", "NULL")),
    Kind("hour", "TIME", "TIME", ("'00:00:00'", "'23:59:59'", "NULL")),
    Kind("hour6", "TIME(6)", "TIME", ("'12:00:00.000001'", "'23:59:59.999999'")),
    Kind("moment", "DATETIME", "TIMESTAMP(0)", ("'2026-02-28 23:59:59'", "NULL")),
    Kind(
        "moment6",
        "DATETIME(6)",
        "TIMESTAMP(6)",
        ("'2026-03-29 02:30:00.123456'", "'1000-01-01 00:00:00'"),
    ),
    Kind("stamp", "TIMESTAMP NULL", "TIMESTAMP(0)", ("'2026-03-29 02:30:00'", "NULL")),
    Kind(
        "stamp3",
        "TIMESTAMP(3) NULL",
        "TIMESTAMP(3)",
        ("'2038-01-19 03:14:07.999'", "'1970-01-01 00:00:01'"),
    ),
    Kind("anno", "YEAR", "INT", ("1901", "2155", "0"), "{} + 0"),
    Kind("fixed", "CHAR(10)", "STRING", ("'a'", "'Zoë'", "''")),
    Kind(
        "words",
        "VARCHAR(100)",
        "STRING",
        ("'李雷 😀'", "'say \"hi\" \\\\ O''Neil'", "'tab\\there\\nline'", "NULL"),
    ),
    Kind("long_text", "MEDIUMTEXT", "STRING", ("REPEAT('ä', 3000)", "'x '", "NULL")),
    Kind(
        "label", "ENUM('new','paid','it''s, sent')", "STRING", ("'paid'", "'it''s, sent'", "NULL")
    ),
    Kind("flags", "SET('red','green','blue')", "STRING", ("'red,blue'", "''", "'green'", "NULL")),
    Kind(
        "bytes",
        "VARBINARY(300)",
        "BINARY",
        ("x'00FF80FE'", "'abcd'", "''", "NULL"),
        "REPLACE(TO_BASE64({}), '\\n', '')",
    ),
    Kind(
        "blob",
        "BLOB",
        "BINARY",
        ("x'C3A4'", "x'EFBFBD'", "NULL"),
        "REPLACE(TO_BASE64({}), '\\n', '')",
    ),
)
_INSTANT = "CONCAT(TRIM(TRAILING '.000' FROM {}), 'Z')"
_CAPTURED: dict[str, dict[str, Any]] = {
    "stamp": {"declared": "TIMESTAMP_LTZ(0)", "truth": _INSTANT},
    "stamp3": {"declared": "TIMESTAMP_LTZ(3)", "truth": _INSTANT},
    "anno": {"values": ("1901", "2155")},  # its snapshot of a MariaDB fails at the year 0
    # In its changes, not in its snapshot, a comma in a label has a backslash before it.
    "label": {"values": ("'paid'", "'new'", "NULL")},
}
# As Debezium sends them: not BIT, of which it sends the bytes.
CAPTURED = tuple(
    replace(kind, **_CAPTURED.get(kind.name, {})) for kind in KINDS if kind.name != "bits"
)


def columns_of(kinds: Sequence[Kind]) -> dict[str, str]:
    """Return the columns of a job over the table."""
    return {"id": "INT"} | {kind.name: kind.declared for kind in kinds}


def definition(table: str, kinds: Sequence[Kind]) -> str:
    columns = ", ".join(f"`{kind.name}` {kind.definition}" for kind in kinds)
    return f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns})"


def changes(table: str, kinds: Sequence[Kind]) -> str:
    """Insert rows, give half of them the values of others, delete some: each row is seen."""
    rows = [
        f"({number}, {', '.join(_value(kind, number) for kind in kinds)})" for number in range(ROWS)
    ]
    names = ", ".join(f"{table}.`{kind.name}` = other.`{kind.name}`" for kind in kinds)
    return (
        f"INSERT INTO {table} VALUES {', '.join(rows)};"
        f"UPDATE {table} JOIN {table} AS other ON other.id = {table}.id + 1 SET {names} "
        f"WHERE {table}.id % 2 = 0;"
        f"UPDATE {table} SET id = id + 100 WHERE id % 5 = 0;"
        f"DELETE FROM {table} WHERE id % 7 = 1;"
    )


def query(table: str, kinds: Sequence[Kind]) -> Query:
    """Return the job's query over all columns; `truth` has the database's."""
    columns = ", ".join(columns_of(kinds))
    return Query(
        ["id"],
        f"SELECT {columns}, COUNT(*) AS n FROM {table} GROUP BY {columns}",
        f"SELECT id, {', '.join(_printed(kind) for kind in kinds)}, 1 AS n FROM {table}",
    )


def _value(kind: Kind, number: int) -> str:
    # Different lengths of the tuples pair the values differently in each row.
    return kind.values[number % len(kind.values)]


def _printed(kind: Kind) -> str:
    return f"{kind.truth.format(f'`{kind.name}`')} AS `{kind.name}`"
