"""Compute the partition of a key as Java's producer does, by murmur2 of the key's bytes.

Java consumers and joins by partition expect this partition; librdkafka has another default. This is
the reference for single keys. The publisher computes the same for whole columns, and a test
compares the two.
"""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
_WORD = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Return the hash as an unsigned 32-bit number; Java has the same bits as a signed one."""
    size = len(key)
    whole = size & ~3
    state = SEED ^ size
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * MULTIPLIER & _WORD
        word = (word ^ word >> 24) * MULTIPLIER & _WORD
        state = (state * MULTIPLIER & _WORD) ^ word
    if size > whole:
        state = (state ^ int.from_bytes(key[whole:], "little")) * MULTIPLIER & _WORD
    state = (state ^ state >> 13) * MULTIPLIER & _WORD
    return state ^ state >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key."""
    return (murmur2(key) & _POSITIVE) % partitions
