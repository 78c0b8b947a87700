"""Dedupe in an audit: only the row that each primary key has in the end counts.

    every signed row ──► by key, in the order of (topic, partition, offset, index)
                     ──► its last row, and whether the topic decides it ──► projected, as any rows

The job evaluates expressions on the images that are last when an epoch ends. So the bundles decide
which messages failed and are in quarantine; the audit takes these from the table.

The topic has no order across partitions. It decides the row of a key if the key's own changes are
in one partition; leaves may be anywhere, because they meet by image and time (`key_history`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from jobs.core.plan.tree import Plan
from jobs.core.rows.dedupe import (
    NO_CHANGE,
    NO_TRUNCATIONS,
    Key,
    find_kinds,
    fingerprint_of,
    key_reader,
    number_partition,
)
from jobs.core.rows.key_history import KeyHistory, KeyState, Kind
from jobs.core.rows.truncations import Fate, Truncations
from jobs.core.values.change import Row
from schemas.limits import DOUBTFUL_KEYS_NAMED_MAX
from schemas.types.arrow_values import from_arrow, to_arrow, to_list

MESSAGE, SIGN = "__message", "__sign"
POSITION, KIND, TIME = "__place", "__kind", "__time"
DOUBT = "__doubt"  # why the topic does not decide the row of a key
_REASON = "__reason"
_MOVED, _AMBIGUOUS = "keys_in_several_partitions", "ambiguous_keys"


@dataclass(frozen=True, slots=True)
class Doubts:
    """The keys whose row the topic does not decide: counts by reason, and some in words."""

    counts: dict[str, int]
    named: list[str]

    def __add__(self, other: Doubts) -> Doubts:
        counts = Counter(self.counts) + Counter(other.counts)
        return Doubts(dict(counts), [*self.named, *other.named])


NO_DOUBTS = Doubts({}, [])


def format_position(topic: str, partition: int, offset: int, index: int) -> str:
    """Return the position of a signed row as text that sorts like positions."""
    return f"{topic}/{partition:010d}/{offset:020d}/{index:08d}"


def describe_position(text: str) -> str:
    """Return a position for people."""
    topic, partition, offset, _ = text.rsplit("/", 3)
    return f"{topic}/{int(partition)} offset {int(offset)}"


def read_kinds(plan: Plan, changes: Sequence[tuple[int, Row]], *, keys_change: bool) -> list[int]:
    """Return what each signed row of a message says of its key."""
    if not keys_change:
        return [Kind.SET if sign > 0 else Kind.DELETE for sign, _ in changes]
    key_of, known = key_reader(plan), dict[Key, int]()
    numbers = np.array([known.setdefault(key_of(row), len(known)) for _, row in changes], np.int64)
    signs = np.array([sign for sign, _ in changes], np.int64)
    kinds: list[int] = find_kinds(numbers, signs, np.zeros(len(signs), np.int64)).tolist()
    return kinds


def select_last_rows(rows: DataFrame, plan: Plan, truncations: Truncations) -> DataFrame:
    """Return the last row of each key that has one or is in doubt; KIND is 1 for a row, else 0."""
    keys = [column.name for column in plan.primary_key]
    schema = StructType([field for field in rows.schema if field.name != TIME])
    shown = schema.add(DOUBT, "string").add(_REASON, "string")
    ordered = rows.repartition(*keys).sortWithinPartitions(POSITION)
    return ordered.mapInArrow(LastRows(plan, truncations), shown)


def count_doubts(last: DataFrame) -> Doubts:
    """Return the keys in doubt among the last rows."""
    doubtful = last.where(F.col(DOUBT).isNotNull()).select(DOUBT, _REASON)
    counts = {row[DOUBT]: row["count"] for row in doubtful.groupBy(DOUBT).count().collect()}
    named = doubtful.orderBy(_REASON).limit(DOUBTFUL_KEYS_NAMED_MAX).collect() if counts else []
    return Doubts(counts, [row[_REASON] for row in named])


class _Known:
    """A key while its changes are read in order."""

    __slots__ = ("at", "doubt", "fate", "history", "message")

    def __init__(self, history: KeyHistory) -> None:
        self.history = history
        self.at = self.message = ""  # the last own change
        self.doubt: str | None = None
        self.fate = Fate.STAYS  # of the row that it set

    def end(self) -> KeyState | None:
        self.history.truncate(self.fate)
        return self.history.end()


@dataclass(frozen=True, slots=True)
class LastRows:
    """Applies the changes of all keys of a Spark partition."""

    plan: Plan
    truncations: Truncations = NO_TRUNCATIONS

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys: dict[Key, _Known] = {}
        key_of, fingerprint = key_reader(self.plan), fingerprint_of(self.plan)
        schema = None
        for batch in batches:
            schema = batch.schema
            images = [from_arrow(batch[each.name], each.type) for each in self.plan.image]
            own = (to_list(batch[name]) for name in (MESSAGE, POSITION, KIND, TIME))
            for image, *facts in zip(zip(*images, strict=True), *own, strict=True):
                if facts[2] == NO_CHANGE:
                    continue
                key = key_of(image)
                if key not in keys:
                    keys[key] = _Known(KeyHistory(None, fingerprint))
                self._apply(keys[key], key, image, facts)
        if schema is not None:
            yield self._batch(keys, schema)

    def _batch(self, keys: dict[Key, _Known], schema: pa.Schema) -> pa.RecordBatch:
        found = [(key, known, known.end()) for key, known in keys.items()]
        shown = [each for each in found if _is_shown(each[1], each[2])]
        absent = (None,) * len(self.plan.image)
        images = [state.image if state and state.image else absent for _, _, state in shown]
        columns = zip(*images, strict=True) if images else [()] * len(self.plan.image)
        own: dict[str, list[Any]] = {
            MESSAGE: [known.message for _, known, _ in shown],
            POSITION: [known.at for _, known, _ in shown],
            SIGN: [int(state is not None and state.image is not None) for *_, state in shown],
            KIND: [0] * len(shown),
            DOUBT: [_name_doubt(known) for _, known, _ in shown],
            _REASON: [known.doubt or _name_key(key, known) for key, known, _ in shown],
        }
        arrays = {
            each.name: to_arrow(values, each.type)
            for values, each in zip(columns, self.plan.image, strict=True)
        }
        names = [name for name in schema.names if name != TIME]
        for name in (*names, DOUBT, _REASON):
            if name in own:
                kind = schema.field(name).type if name in schema.names else pa.string()
                arrays[name] = pa.array(own[name], kind)
        ordered = [*names, DOUBT, _REASON]
        return pa.RecordBatch.from_arrays([arrays[name] for name in ordered], ordered)

    def _apply(self, known: _Known, key: Key, image: Row, facts: Sequence[Any]) -> None:
        message, position, kind, time = facts
        topic, number, offset = message.rsplit("/", 2)
        partition = number_partition(topic, int(number))
        known.history.apply(kind, image, time, partition)
        if kind == Kind.LEAVE:
            return
        known.fate = Fate.STAYS
        if kind != Kind.DELETE:
            known.fate = self.truncations.fate(time, partition, int(offset))
        if known.fate is Fate.GONE:
            known.history.truncate(known.fate)
        if known.history.moved and known.doubt is None:
            known.doubt = f"key {key!r} is set at {known.message} and at {message}"
        known.at, known.message = position, message


def _is_shown(known: _Known, state: KeyState | None) -> bool:
    return _name_doubt(known) is not None or (state is not None and state.image is not None)


def _name_doubt(known: _Known) -> str | None:
    if known.history.moved:
        return _MOVED
    return _AMBIGUOUS if known.history.ambiguous else None


def _name_key(key: Key, known: _Known) -> str | None:
    if not known.history.ambiguous:
        return None
    what = "a change that may be a repeat"
    if known.fate is Fate.AMBIGUOUS:
        what = "a row that was set just before or just after a TRUNCATE"
    return f"key {key!r}, last set at {known.message}, has {what}"
