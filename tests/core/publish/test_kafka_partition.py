"""A key has the partition that Java's producer computes."""

from __future__ import annotations

import pytest

from jobs.core.publish.kafka_partition import murmur2, partition_of

# From Kafka's UtilsTest.testMurmur2, which has signed numbers.
JAVA = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), JAVA.items())
def test_the_hash_is_javas(key: str, signed: int) -> None:
    assert murmur2(key.encode()) == signed % 2**32


def test_the_partition_takes_the_sign_away_and_not_the_absolute_value() -> None:
    assert partition_of(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10 == 0


def test_the_empty_key_has_a_partition() -> None:
    assert 0 <= partition_of(b"", 3) < 3
