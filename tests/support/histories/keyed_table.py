"""A table whose rows change their keys, sent as canal sends it, and the stage that dedupes it.

table ──► messages ──hash of the new key──► partitions ──read in any order, cut──► epochs ──► Stage
                                                 └── a part of each repeated, as after a crash
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from jobs.core.job.job_plan import plan_of
from jobs.core.rows.dedupe import (
    NO_TRUNCATIONS,
    DerivedChanges,
    Key,
    KeyChange,
    derive_changes,
    fingerprint_of,
    key_reader,
    select_changes,
    truncate,
)
from jobs.core.rows.key_history import KeyState
from jobs.core.rows.truncations import Truncation, Truncations
from jobs.core.values.change import Row
from schemas.spec.file import load_spec

PLAN = plan_of(
    load_spec(
        {
            "name": "j",
            "source": {"topic": "t"},
            "columns": {"id": "BIGINT", "name": "STRING", "cnt": "INT"},
            "query": "SELECT name, SUM(cnt) AS total, COUNT(*) AS n FROM t GROUP BY name",
            "primary_key": ["id"],
            "dedupe": "pk",
        }
    )
)
USED, FINGERPRINT, KEY_OF = len(PLAN.used), fingerprint_of(PLAN), key_reader(PLAN)
PARTITIONS, SPARE_KEY = 3, 9
Signed = tuple[int, Row]  # rows are (name, cnt, id)


@dataclass(frozen=True)
class Message:
    changes: tuple[Signed, ...]  # none: a TRUNCATE
    time: int
    until: int | None = None  # of a TRUNCATE that had to wait: when it took effect

    @property
    def partition(self) -> int:
        """The hash of the key in `data`; a TRUNCATE is in partition 0."""
        if not self.changes:
            return 0
        return int(str(self.changes[-1][1][2])) % PARTITIONS


@dataclass
class Table:
    """A table with few keys and few images, so that the same row comes back often."""

    rows: dict[int, tuple[str, int]] = field(default_factory=dict)
    sent: list[Message] = field(default_factory=list)
    time: int = 1_700_000_000_000

    def insert(self, key: int, row: tuple[str, int]) -> None:
        if key in self.rows:
            self.update(key, key, row)
        else:
            self.rows[key] = row
            self.send((1, (*row, key)))

    def update(self, key: int, new: int, row: tuple[str, int] | None = None) -> None:
        if key not in self.rows or (new != key and new in self.rows):
            return
        before = self.rows.pop(key)
        self.rows[new] = row or before
        self.send((-1, (*before, key)), (1, (*self.rows[new], new)))

    def delete(self, key: int) -> None:
        if key in self.rows:
            self.send((-1, (*self.rows.pop(key), key)))

    def rotate(self, keys: Sequence[int]) -> None:
        """Give each row the key of the next one, through a spare key."""
        if len(set(keys)) < 2 or not self.rows.keys() >= set(keys):
            return
        self.update(keys[-1], SPARE_KEY)
        for key, new in reversed(list(pairwise(keys))):
            self.update(key, new)
        self.update(SPARE_KEY, keys[0])

    def shift(self, by: int) -> None:
        """Change all keys by one statement, which comes as a message in each partition."""
        changes: dict[int, list[Signed]] = {}
        for key in sorted(self.rows, reverse=by > 0):
            row = self.rows[key + by] = self.rows.pop(key)
            pair = [(-1, (*row, key)), (1, (*row, key + by))]
            changes.setdefault((key + by) % PARTITIONS, []).extend(pair)
        for each in changes.values():
            self.send(*each)

    def truncate(self) -> None:
        self.rows.clear()
        self.send()

    def send(self, *changes: Signed) -> None:
        self.sent.append(Message(changes, self.time))

    def live(self) -> Counter[Row]:
        return Counter(self.rows.values())


KEYS = st.integers(0, 3)
ROWS = st.tuples(st.sampled_from("ab"), st.integers(0, 1))
STATEMENTS = st.one_of(
    st.tuples(st.just("insert"), KEYS, ROWS),
    st.tuples(st.just("update"), KEYS, KEYS, st.none() | ROWS),
    st.tuples(st.just("update"), KEYS, KEYS, st.none()),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("shift"), st.sampled_from([1, -1, PARTITIONS])),
    st.tuples(st.just("rotate"), st.lists(KEYS, min_size=2, max_size=3, unique=True)),
)
HISTORIES = st.lists(st.tuples(st.integers(0, 2), STATEMENTS), max_size=30)
READS = st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(1, 4), st.booleans()))


def table_of(history: Sequence[tuple[int, Any]], *, clock: int | None = None) -> Table:
    """Run statements; each takes 0 to 2 seconds, or each message takes `clock` milliseconds."""
    table = Table()
    for seconds, (name, *arguments) in history:
        table.time += seconds // 2 * 1000
        getattr(table, name)(*arguments)
    if clock is not None:
        sent = enumerate(table.sent)
        table.sent = [Message(each.changes, table.time + clock * n) for n, each in sent]
    return table


def by_partition(messages: Sequence[Message]) -> list[list[Message]]:
    return [[each for each in messages if each.partition == n] for n in range(PARTITIONS)]


def read(
    partitions: Sequence[Sequence[Message]], reads: Sequence[tuple[int, int, bool]]
) -> Iterator[list[tuple[int, list[Message]]]]:
    """Yield epochs: ranges of partitions, in any order and of any size, until all is read."""
    at = [0] * PARTITIONS
    epoch: list[tuple[int, list[Message]]] = []
    for partition, count, ends in [*reads, *((n, 1000, False) for n in range(PARTITIONS))]:
        taken = list(partitions[partition][at[partition] : at[partition] + count])
        at[partition] += len(taken)
        if taken:
            epoch.append((partition, taken))
        if ends:
            yield epoch
            epoch = []
    yield epoch


@dataclass
class Stage:
    """The stage over several epochs: states are its state, rows to fold its output."""

    states: dict[Key, KeyState] = field(default_factory=dict)
    folded: Counter[Row] = field(default_factory=Counter)
    found: list[DerivedChanges] = field(default_factory=list)
    truncations: Truncations = NO_TRUNCATIONS

    def epoch(self, ranges: Sequence[tuple[int, Sequence[Message]]]) -> None:
        ordered = sorted(ranges, key=lambda each: each[0])  # as the driver orders them
        sent = [each for n, (of, range_) in enumerate(ordered) for each in shipped(range_, n, of)]
        known = self.truncations.add(find_truncations(ordered))
        common = USED, FINGERPRINT, known
        parts = [
            derive_changes(reversed(sent), lambda keys: list(map(self.states.get, keys)), *common)
        ]
        if known.new:
            changed = {change.key for change in sent}
            others = {key: self.states[key] for key in self.states.keys() - changed}
            parts.append(truncate(others, *common))
        self.truncations = Truncations.of_json(known.forget_old(None).to_json())
        for found in parts:
            self.take(found)
        assert min(self.folded.values(), default=0) >= 0, "a row was taken away twice"

    def take(self, found: DerivedChanges) -> None:
        for key, state in found.states:
            if state is None:
                self.states.pop(key, None)
            else:
                self.states[key] = state
        for row, weight in zip(found.rows, found.weights, strict=True):
            self.folded[row] += weight
        self.found.append(found)

    def total(self, counter: str) -> int:
        return sum(getattr(found, counter) for found in self.found)

    def must_be(self, table: Table) -> None:
        assert +self.folded == table.live()
        live = [state.image for state in self.states.values() if state.image is not None]
        assert Counter(image[:USED] for image in live) == table.live()
        assert self.total("rows_delta") == len(live)
        assert self.total("moved_keys") == 0


def find_truncations(ranges: Sequence[tuple[int, Sequence[Message]]]) -> Iterator[Truncation]:
    for ordinal, (partition, messages) in enumerate(ranges):
        rows = 0
        for message in messages:
            if not message.changes:
                yield Truncation.of(partition, message.time, message.until, (ordinal << 40) + rows)
            rows += len(message.changes)


def shipped(messages: Sequence[Message], ordinal: int, partition: int) -> list[KeyChange]:
    """Return the changes that a decode task sends for a range."""
    rows = [row for message in messages for _, row in message.changes]
    signs = [sign for message in messages for sign, _ in message.changes]
    owners = [n for n, message in enumerate(messages) for _ in message.changes]
    numbers: dict[Key, int] = {}
    numbered = [numbers.setdefault(KEY_OF(row), len(numbers)) for row in rows]
    found = select_changes(*(np.array(each, np.int64) for each in (numbered, signs, owners)))
    return [
        KeyChange(
            KEY_OF(rows[at]),
            rows[at],
            (ordinal << 40) + at,
            packed,
            messages[owners[at]].time,
            partition,
        )
        for at, packed in zip(found.indexes.tolist(), found.summaries.tolist(), strict=True)
    ]


def repeated(
    messages: Sequence[Message], since: int, reached: Sequence[int]
) -> list[list[Message]]:
    """Return what a source sends that dies and begins again at message `since`.

    Of each partition it had sent all messages before `since`, and as many others as `reached`.
    """
    before, after = by_partition(messages[:since]), by_partition(messages[since:])
    return [
        [*old, *new[:count], *new] for old, new, count in zip(before, after, reached, strict=True)
    ]


CRASHES = st.tuples(st.integers(0, 60), st.lists(st.integers(0, 20), min_size=3, max_size=3))
