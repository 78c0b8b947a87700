"""Compute the bucket of a group (its part of the job's state) by a hash that never changes.

The hash is the CRC-32 of the group's canonical text: for each column \\x00 if it is NULL, else
\\x01 and the value's text. Spark computes the same number as a Column, and any other engine can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from typing import Any
from zlib import crc32

from jobs.core.plan.tree import Plan, WindowBound
from jobs.core.values.change import Row, Value
from schemas.types.sql_types import Kind, SqlType


def bucket_of(group: Row, types: Sequence[SqlType], buckets: int) -> int:
    (bucket,) = buckets_of([[value] for value in group], types, 1, buckets)
    return bucket


def buckets_of(
    columns: Sequence[Sequence[Value]], types: Sequence[SqlType], count: int, buckets: int
) -> list[int]:
    """Return the buckets of `count` groups. `columns` has one sequence for each group column."""
    hashes = [crc32(b"")] * count
    for values, kind in zip(columns, types, strict=True):
        text = _text_encoder(kind)
        texts = [b"\x00" if value is None else b"\x01" + text(value) for value in values]
        hashes = list(starmap(crc32, zip(texts, hashes, strict=True)))
    return [crc % buckets for crc in hashes]


def bucket_of_group(plan: Plan, group: Row, buckets: int) -> int:
    """Return the bucket of a plan's group.

    Sessions of one key can merge and split, so they share a bucket: their bounds count as NULL."""
    types = [named.type for named in plan.group]
    if plan.instants_argument is None:
        return bucket_of(group, types, buckets)
    bounds = [isinstance(named.expression, WindowBound) for named in plan.group]
    hashed = [None if bound else value for value, bound in zip(group, bounds, strict=True)]
    return bucket_of(tuple(hashed), types, buckets)


def _text_encoder(sql_type: SqlType) -> Callable[[Any], bytes]:
    """Return a function from values of a type to their canonical text."""
    kind = sql_type.kind
    if kind is Kind.STRING:
        return str.encode
    if kind is Kind.BINARY:
        return bytes
    if kind is Kind.BOOLEAN:
        return lambda value: b"true" if value else b"false"
    if kind is Kind.DECIMAL:
        return partial(_decimal_text, scale=sql_type.scale or 0)
    if sql_type.floating:
        return _hexadecimal
    return _plain_text


def _plain_text(value: object) -> bytes:
    return str(value).encode()


def _decimal_text(units: int, scale: int) -> bytes:
    digits = str(abs(units)).rjust(scale + 1, "0")
    sign = "-" if units < 0 else ""
    text = f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"
    return text.encode()


def _hexadecimal(value: float) -> bytes:
    """Return a double as Java's %a prints it, and Spark too."""
    if value != value:
        return b"NaN"
    if value in (float("inf"), float("-inf")):
        return b"Infinity" if value > 0 else b"-Infinity"
    mantissa, exponent = value.hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0")
        mantissa += "0" if mantissa.endswith(".") else ""
    else:
        mantissa += ".0"
    return f"{mantissa}p{int(exponent)}".encode()
