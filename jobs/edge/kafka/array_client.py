"""Read records into arrays: librdkafka by its interface in C, and a kernel that copies.

    rd_kafka_consume_batch_queue ─► addresses ─► jobs.core.kernels.foreign_messages ─► Records

The library is the one that confluent-kafka brings. A consumer of its own is made here, because that
of confluent-kafka returns objects only, which takes three quarters of the time of a read.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from confluent_kafka import KafkaError, KafkaException, cimpl

from jobs.core.formats.scanned import Array
from jobs.core.kernels import foreign_messages as kernel
from jobs.core.kernels.foreign_messages import (
    ERROR,
    KEY,
    KEY_SIZE,
    MESSAGE_WORDS,
    OFFSET,
    PARTITION,
    TOPIC,
    VALUE,
    VALUE_SIZE,
)
from jobs.core.kernels.json_bytes import PAD
from jobs.edge.kafka.offset_ranges import OffsetRange
from jobs.edge.kafka.records import VALUE_BYTES_READ, PollResult, Problem, Records
from schemas.limits import RANGE_RECORDS_AT_ONCE
from schemas.table.epoch import TopicPartition

_CONSUMER = 1  # RD_KAFKA_CONSUMER
_REASON_BYTES = 512
_WITHOUT_CLOSE = 8  # RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE: no group is joined
_LOWER_HALF = (1 << 32) - 1
_SIGN = 1 << 31

_POINTER, _TEXT, _NUMBER, _SIZE = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
_INTERFACE = {
    "conf_new": (_POINTER, ()),
    "conf_set": (_NUMBER, (_POINTER, _TEXT, _TEXT, _TEXT, _SIZE)),
    "conf_destroy": (None, (_POINTER,)),
    "new": (_POINTER, (_NUMBER, _POINTER, _TEXT, _SIZE)),
    "destroy_flags": (None, (_POINTER, _NUMBER)),
    "poll_set_consumer": (_NUMBER, (_POINTER,)),
    "queue_get_consumer": (_POINTER, (_POINTER,)),
    "queue_destroy": (None, (_POINTER,)),
    "topic_partition_list_new": (_POINTER, (_NUMBER,)),
    "topic_partition_list_add": (_POINTER, (_POINTER, _TEXT, ctypes.c_int32)),
    "topic_partition_list_set_offset": (_NUMBER, (_POINTER, _TEXT, ctypes.c_int32, ctypes.c_int64)),
    "topic_partition_list_destroy": (None, (_POINTER,)),
    "assign": (_NUMBER, (_POINTER, _POINTER)),
    "consume_batch_queue": (ctypes.c_ssize_t, (_POINTER, _NUMBER, _POINTER, _SIZE)),
    "topic_name": (_TEXT, (_POINTER,)),
    "message_timestamp": (ctypes.c_int64, (_POINTER, _POINTER)),
    "message_destroy": (None, (_POINTER,)),
}


@cache
def _library() -> dict[str, ctypes._FuncPointer] | None:
    """Return the functions of the client; None where a system does not show them."""
    library = ctypes.CDLL(cimpl.__file__)  # its dependencies are searched too
    found = {}
    for name, (result, arguments) in _INTERFACE.items():
        try:
            function = getattr(library, f"rd_kafka_{name}")
        except AttributeError:
            return None
        function.restype, function.argtypes = result, arguments
        found[name] = function
    return found


def can_read_arrays() -> bool:
    """Return whether this host has the kernels and the client's interface in C."""
    return _library() is not None and kernel.load_foreign_messages()


class ArrayClient:
    """Reads records into arrays; one thread at a time may use it."""

    def __init__(self, options: Mapping[str, str | int | bool]) -> None:
        functions = _library()
        assert functions is not None
        self._api = functions
        self._handle = self._new(options)
        self._api["poll_set_consumer"](self._handle)
        self._queue = self._api["queue_get_consumer"](self._handle)
        self._addresses = np.zeros(RANGE_RECORDS_AT_ONCE, np.int64)
        self._words = np.zeros((RANGE_RECORDS_AT_ONCE, MESSAGE_WORDS), np.int64)
        self._kind_of_time = np.zeros(1, np.int64)
        self._functions = np.array(
            [_address(functions["message_timestamp"]), _address(functions["message_destroy"])]
        )
        self._process = os.getpid()
        # The threads of the client must not go on while the process takes its libraries down.
        atexit.register(self.close)

    def close(self) -> None:
        """End the consumer, in the process that made it."""
        if self._handle is not None and self._process == os.getpid():
            self._api["queue_destroy"](self._queue)
            self._api["destroy_flags"](self._handle, _WITHOUT_CLOSE)
        self._handle = None

    def assign(self, planned: Sequence[OffsetRange]) -> None:
        partitions = self._api["topic_partition_list_new"](len(planned))
        try:
            for each in planned:
                topic = each.topic.encode()
                self._api["topic_partition_list_add"](partitions, topic, each.partition)
                self._api["topic_partition_list_set_offset"](
                    partitions, topic, each.partition, each.start
                )
            self._assign(partitions)
        finally:
            self._api["topic_partition_list_destroy"](partitions)

    def unassign(self) -> None:
        self._assign(None)

    def poll(self, count: int, seconds: float) -> PollResult:
        found = self._api["consume_batch_queue"](
            self._queue, int(seconds * 1_000), self._addresses.ctypes.data, count
        )
        if found <= 0:
            return PollResult((), ())
        try:
            kernel.read_words(self._addresses, found, self._words)
            return self._take(self._words[:found])
        finally:
            kernel.give_back(self._addresses, found, self._functions)

    def _take(self, words: Array) -> PollResult:
        topics = {each: self._name(each) for each in np.unique(words[:, TOPIC]).tolist()}
        errors = words[:, ERROR] & _LOWER_HALF
        problems = [
            self._problem(topics, words[number]) for number in np.flatnonzero(errors).tolist()
        ]
        good = np.flatnonzero(errors == 0)
        # Records of a partition come together, in order.
        order = good[np.lexsort((words[good, PARTITION] & _LOWER_HALF, words[good, TOPIC]))]
        if not len(order):
            return PollResult((), problems)
        records, chosen = self._copy(words, order), words[order]
        of_topic, of_partition = chosen[:, TOPIC], chosen[:, PARTITION] & _LOWER_HALF
        changes = (np.diff(of_topic) != 0) | (np.diff(of_partition) != 0)
        edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(order)]
        return PollResult(
            [
                (
                    TopicPartition(topics[int(of_topic[start])], int(of_partition[start])),
                    records.between(start, end),
                )
                for start, end in pairwise(edges)
            ],
            problems,
        )

    def _copy(self, words: Array, order: Array) -> Records:
        value_bytes = words[order, VALUE_SIZE]
        words[order, VALUE_SIZE] = np.minimum(value_bytes, VALUE_BYTES_READ)
        starts = np.zeros(len(order) + 1, np.int64)
        np.cumsum(words[order, VALUE_SIZE] + 1, out=starts[1:])
        key_starts = np.zeros(len(order) + 1, np.int64)
        np.cumsum(words[order, KEY_SIZE], out=key_starts[1:])
        values = np.empty(starts[-1] + PAD, np.uint8)
        values[starts[1:] - 1], values[-PAD:] = 0, 0
        keys = np.empty(key_starts[-1], np.uint8)
        stamps = np.zeros(len(order), np.int64)
        arrays = (values, keys, self._kind_of_time)
        targets = np.array([array.ctypes.data for array in arrays])
        kernel.take(
            self._addresses, words, order, starts, key_starts, stamps, targets, self._functions
        )
        # The scanner is compiled for read-only bytes; for others a task would compile it again.
        values.flags.writeable = False
        return Records(
            values,
            starts,
            keys,
            key_starts,
            words[order, OFFSET],
            stamps,
            words[order, VALUE] != 0,
            words[order, KEY] != 0,
            value_bytes,
        )

    def _problem(self, topics: Mapping[int, str], words: Array) -> Problem:
        code = int(words[ERROR] & _LOWER_HALF)
        code -= (code & _SIGN) << 1  # its lower half is signed
        text = None
        if words[VALUE]:
            text = ctypes.string_at(int(words[VALUE]), int(words[VALUE_SIZE])).decode(
                "utf-8", "replace"
            )
        partition = TopicPartition(topics[int(words[TOPIC])], int(words[PARTITION] & _LOWER_HALF))
        return Problem(partition, KafkaError(code, text), int(words[OFFSET]))

    def _name(self, topic: int) -> str:
        return self._api["topic_name"](topic).decode() if topic else ""

    def _assign(self, partitions: int | None) -> None:
        code = self._api["assign"](self._handle, partitions)
        if code:
            raise KafkaException(KafkaError(code))

    def _new(self, options: Mapping[str, str | int | bool]) -> int | None:
        reason = ctypes.create_string_buffer(_REASON_BYTES)
        configuration = self._api["conf_new"]()
        for name, value in options.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if self._api["conf_set"](
                configuration, name.encode(), text.encode(), reason, _REASON_BYTES
            ):
                self._api["conf_destroy"](configuration)
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG, reason.value.decode()))
        handle: int | None = self._api["new"](_CONSUMER, configuration, reason, _REASON_BYTES)
        if not handle:
            self._api["conf_destroy"](configuration)
            raise KafkaException(KafkaError(KafkaError._FAIL, reason.value.decode()))
        return handle


def _address(function: ctypes._FuncPointer) -> int:
    return ctypes.cast(function, _POINTER).value or 0
