"""The words that the spec editor completes: keys, their fixed values, types and functions."""

from __future__ import annotations

from functools import cache

from jobs.core.plan.scalar_functions import FUNCTIONS
from jobs.core.sql.select import AGGREGATES
from schemas.spec.file import list_keys
from schemas.spec.job import JobSpec
from schemas.types.json_types import JsonObject

_TYPES = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(10, 2)",
    "STRING",
    "DATE",
    "TIME",
    "TIMESTAMP(3)",
    "TIMESTAMP_LTZ(3)",
    "BINARY",
)
_WORDS = (
    "SELECT",
    "FROM",
    "JOIN",
    "LEFT JOIN",
    "RIGHT JOIN",
    "FULL JOIN",
    "ON",
    "USING",
    "EXISTS",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "AS",
    "AND",
    "OR",
    "NOT",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "IS NULL",
    "IS NOT NULL",
    "IN",
    "BETWEEN",
    "LIKE",
    "DISTINCT",
    "CAST",
    "FILTER",
    "INTERVAL",
    "TUMBLE",
    "HOP",
    "SESSION",
    "CUMULATE",
)


@cache
def make_vocabulary() -> JsonObject:
    """Return the words as JSON; keys and values are by the path of their section or key."""
    keys, values = list_keys(JobSpec)
    return {
        "keys": keys,
        "values": values,
        "types": _TYPES,
        "words": _WORDS,
        "functions": sorted({*FUNCTIONS, *AGGREGATES}),
    }
