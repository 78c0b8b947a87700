"""The partition of a key, as Java's producer chooses it: murmur2 of the key's bytes.

Every Java consumer and every join by partition expects this choice; librdkafka's own default is
another one. This is the reference, a key at a time; the publisher computes the same for whole
columns, and a test holds the two together.
"""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
_WORD = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """The hash as an unsigned 32-bit number; Java shows the same bits as a signed one."""
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
    return (murmur2(key) & _POSITIVE) % partitions
