"""The bucket of a group never changes, with no release, machine or engine.

The expected bytes are literals, so that another engine can be compared with them.
"""

from __future__ import annotations

import math
import zlib

import pytest

from jobs.core.plan.bucket import bucket_of
from jobs.core.values.change import Row
from schemas.types.sql_types import SqlType

BUCKETS = 4_096
CASES: list[tuple[tuple[str, ...], Row, bytes]] = [
    ((), (), b""),
    (("STRING",), ("a",), b"\x01a"),
    (("STRING",), ("",), b"\x01"),
    (("STRING",), (None,), b"\x00"),
    (("STRING",), ("é",), b"\x01\xc3\xa9"),
    (("STRING", "STRING"), ("a", None), b"\x01a\x00"),
    (("STRING", "INT"), (None, -7), b"\x00\x01-7"),
    (("BIGINT",), (-(2**63),), b"\x01-9223372036854775808"),
    (("BOOLEAN",), (True,), b"\x01true"),
    (("BOOLEAN",), (False,), b"\x01false"),
    (("DECIMAL(10, 2)",), (150,), b"\x011.50"),
    (("DECIMAL(10, 2)",), (-5,), b"\x01-0.05"),
    (("DECIMAL(10, 0)",), (-5,), b"\x01-5"),
    (("DECIMAL(38, 20)",), (0,), b"\x010.00000000000000000000"),
    (("DOUBLE",), (1.5,), b"\x010x1.8p0"),
    (("DOUBLE",), (0.0,), b"\x010x0.0p0"),
    (("DOUBLE",), (-0.1,), b"\x01-0x1.999999999999ap-4"),
    (("DOUBLE",), (5e-324,), b"\x010x0.0000000000001p-1022"),
    (("DOUBLE",), (math.nan,), b"\x01NaN"),
    (("DOUBLE",), (-math.inf,), b"\x01-Infinity"),
    (("FLOAT",), (0.10000000149011612,), b"\x010x1.99999ap-4"),
    (("DATE",), (18_395,), b"\x0118395"),
    (("TIME",), ("12:38:35",), b"\x0112:38:35"),
    (("TIMESTAMP(3)",), (1_589_373_515_477_000,), b"\x011589373515477000"),
    (("TIMESTAMP_LTZ(3)",), (-1,), b"\x01-1"),
    (("TIMESTAMP(9)",), ("2020-05-13 12:38:35.123456789",), b"\x012020-05-13 12:38:35.123456789"),
    (("BINARY",), (b"\x00\xff",), b"\x01\x00\xff"),
]


@pytest.mark.parametrize(("types", "group", "text"), CASES)
def test_a_bucket_is_the_crc_of_the_groups_text(
    types: tuple[str, ...], group: Row, text: bytes
) -> None:
    sql_types = [SqlType.parse(name) for name in types]
    assert bucket_of(group, sql_types, BUCKETS) == zlib.crc32(text) % BUCKETS
    assert bucket_of(group, sql_types, 1) == 0


def test_the_crc_is_the_one_of_zip_and_spark() -> None:
    """The definition of CRC-32 gives this check value for "123456789"."""
    assert zlib.crc32(b"123456789") == 0xCBF43926
    assert bucket_of(("a",), [SqlType.parse("STRING")], 4_096) == 0x62777270 % 4_096


def test_groups_spread_over_all_buckets() -> None:
    kinds = [SqlType.parse("STRING")]
    counts = [0] * 32
    for number in range(3_200):
        counts[bucket_of((f"name-{number}",), kinds, 32)] += 1
    assert min(counts) > 50
    assert max(counts) < 200
