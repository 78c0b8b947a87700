"""Bucket: which part of a job's state a group belongs to, by a hash that never changes.

The CRC-32 of the group's canonical text, so that Spark computes the same number as a Column and
any other engine can too: per column \\x00 for NULL, else \\x01 and the value's text.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from jobs.core.change import Row, Value
from jobs.core.plan import Plan, WindowBound
from schemas.types import Kind, SqlType


def bucket_of(group: Row, types: Sequence[SqlType], buckets: int) -> int:
    parts = [_encoded(value, kind) for value, kind in zip(group, types, strict=True)]
    return zlib.crc32(b"".join(parts)) % buckets


def bucket_in(plan: Plan, group: Row, buckets: int) -> int:
    """The bucket of a plan's group. Sessions of one key lie together, for they merge and split:
    their bounds count as NULL."""
    types = [named.type for named in plan.group]
    if plan.instants is None:
        return bucket_of(group, types, buckets)
    bounds = [isinstance(named.expression, WindowBound) for named in plan.group]
    placed = [None if bound else value for value, bound in zip(group, bounds, strict=True)]
    return bucket_of(tuple(placed), types, buckets)


def _encoded(value: Value, sql_type: SqlType) -> bytes:
    if value is None:
        return b"\x00"
    return b"\x01" + _text(value, sql_type)


def _text(value: Value, sql_type: SqlType) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int) and sql_type.kind is Kind.DECIMAL:
        return _decimal_text(value, sql_type.scale or 0).encode()
    if isinstance(value, float):
        return _hexadecimal(value).encode()
    return str(value).encode()


def _decimal_text(units: int, scale: int) -> str:
    digits = str(abs(units)).rjust(scale + 1, "0")
    sign = "-" if units < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _hexadecimal(value: float) -> str:
    """As Java's %a prints a double, which is how Spark writes it too."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    mantissa, exponent = value.hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0")
        mantissa += "0" if mantissa.endswith(".") else ""
    else:
        mantissa += ".0"
    return f"{mantissa}p{int(exponent)}"
