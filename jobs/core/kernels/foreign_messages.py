"""Copy messages out of the memory of librdkafka, Kafka's client, and give them back.

    addresses ─read_words─► [message, word]: error, partition, offset, where value and key are
        └───────take───────► values one after another, a zero after each │ keys one after another

The client keeps each message in memory of its own. An object in Python for each of them takes most
of the time of a read. The struct of a message, rd_kafka_message_t, is part of the client's stable
interface in C. Without numba, or with kernels that are not compiled, callers read objects.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from jobs.core.kernels.compiled import AVAILABLE, Array, kernel

# Words of rd_kafka_message_t; of the first and the third only the lower half is used.
ERROR, TOPIC, PARTITION, VALUE, VALUE_SIZE, KEY, KEY_SIZE, OFFSET = range(8)
MESSAGE_WORDS = 8
NO_STAMP = -1

# What the caller hands over: addresses of C's functions, and of the arrays to write to.
READ_TIME, DESTROY = range(2)
VALUES, KEYS, KIND_OF_TIME = range(3)

_WORD = 8


def _intrinsics() -> tuple[Any, Any, Any] | None:
    """Return functions for kernels: load a word, copy bytes, and call a function in C."""
    if not AVAILABLE:
        return None
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core import cgutils
    from numba.core.config import DISABLE_JIT  # type: ignore[attr-defined]
    from numba.extending import intrinsic

    if DISABLE_JIT:
        return None
    word = ir.IntType(64)

    @intrinsic
    def load(_: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.load(builder.inttoptr(given[0], word.as_pointer()))

        return types.int64(types.int64), generate

    @intrinsic
    def copy(_: Any, target: Any, source: Any, size: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            target, source = (builder.inttoptr(at, cgutils.voidptr_t) for at in given[:2])
            cgutils.raw_memcpy(builder, target, source, given[2], 1)  # type: ignore[no-untyped-call]
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), generate

    @intrinsic
    def call(_: Any, function: Any, first: Any, second: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            kind = ir.FunctionType(word, [word, word])
            return builder.call(builder.inttoptr(given[0], kind.as_pointer()), given[1:])

        return types.int64(types.int64, types.int64, types.int64), generate

    return load, copy, call


_found = _intrinsics()
_load, _copy, _call = _found or (None, None, None)


@kernel
def read_words(addresses: Array, count: int, words: Array) -> None:
    """Read the words of some messages."""
    for number in range(count):
        for word in range(MESSAGE_WORDS):
            words[number, word] = _load(addresses[number] + word * _WORD)  # type: ignore[misc]


@kernel
def take(
    addresses: Array,
    words: Array,
    order: Array,
    starts: Array,
    key_starts: Array,
    stamps: Array,
    targets: Array,
    functions: Array,
) -> None:
    """Copy values and keys of messages, in this order, and read their times.

    The value of message `order[i]` is copied to `starts[i]`, its key to `key_starts[i]`.
    """
    for row in range(len(order)):
        number = order[row]
        if words[number, VALUE] != 0:
            _copy(targets[VALUES] + starts[row], words[number, VALUE], words[number, VALUE_SIZE])  # type: ignore[misc]
        if words[number, KEY] != 0:
            _copy(targets[KEYS] + key_starts[row], words[number, KEY], words[number, KEY_SIZE])  # type: ignore[misc]
        stamps[row] = _call(functions[READ_TIME], addresses[number], targets[KIND_OF_TIME])  # type: ignore[misc]
        if _load(targets[KIND_OF_TIME]) == 0:  # type: ignore[misc]
            stamps[row] = NO_STAMP


@kernel
def give_back(addresses: Array, count: int, functions: Array) -> None:
    """Give the memory of all messages back to the client."""
    for number in range(count):
        _call(functions[DESTROY], addresses[number], 0)  # type: ignore[misc]


@cache
def load_foreign_messages() -> bool:
    """Compile the kernels or load them from their cache, once; return False if that fails."""
    if _found is None:
        return False
    nothing, words = np.zeros(0, np.int64), np.zeros((0, MESSAGE_WORDS), np.int64)
    try:
        read_words(nothing, 0, words)
        take(nothing, words, nothing, nothing, nothing, nothing, nothing, nothing)
        give_back(nothing, 0, nothing)
    except Exception:  # numba raises what it meets in a damaged cache
        return False
    return True
