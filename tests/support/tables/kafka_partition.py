"""Compute the partition of a key as Java's producer does, by murmur2 of the key's bytes.

The reference for single keys; the publisher computes the same for whole columns.
"""

from __future__ import annotations

_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_WORD = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """Return the hash as an unsigned 32-bit number; Java has the same bits as a signed one."""
    size = len(key)
    whole = size & ~3
    state = _SEED ^ size
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        state = (state * _MULTIPLIER & _WORD) ^ word
    if size > whole:
        state = (state ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _WORD
    state = (state ^ state >> 13) * _MULTIPLIER & _WORD
    return state ^ state >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key."""
    return (murmur2(key) & _POSITIVE) % partitions
