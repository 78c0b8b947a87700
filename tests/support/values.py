"""Values of every SQL type."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from schemas.types.sql_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIME,
    TINYINT,
    SqlType,
    decimal,
    integer_range,
    timestamp,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


def floats(width: int) -> st.SearchStrategy[float]:
    return st.floats(width=width).map(lambda value: value + 0.0)  # type: ignore[arg-type]


def units(precision: int) -> st.SearchStrategy[int]:
    most = 10**precision - 1
    edges = [most, -most, 0, 1, -1, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**63) - 1, -(2**64)]
    return st.integers(-most, most) | st.sampled_from([u for u in edges if abs(u) <= most])


def whole(sql_type: SqlType) -> st.SearchStrategy[int]:
    low, high = integer_range(sql_type)
    return st.integers(low, high) | st.sampled_from([low, high])


LTZ = timestamp(6, local_zone=True)
VALUES: dict[SqlType, st.SearchStrategy[Any]] = {
    BOOLEAN: st.booleans(),
    **{kind: whole(kind) for kind in (TINYINT, SMALLINT, INT, BIGINT)},
    FLOAT: floats(32),
    DOUBLE: floats(64),
    **{
        decimal(precision, scale): units(precision)
        for precision, scale in [(1, 0), (9, 2), (18, 18), (19, 0), (28, 4), (38, 0), (38, 38)]
    },
    STRING: TEXTS,
    DATE: st.integers(-719_162, 2_932_896),  # the years 1 to 9999
    TIME: st.sampled_from(["00:00:00", "23:59:59"]),
    timestamp(0): st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    timestamp(6): st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    LTZ: st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    timestamp(9): st.sampled_from(["2026-01-02 03:04:05.123456789"]),
    timestamp(9, local_zone=True): st.sampled_from(["1969-12-31 23:59:59.999999999"]),
    BINARY: st.binary(),
}
