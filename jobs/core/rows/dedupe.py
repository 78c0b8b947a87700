"""Dedupe: keep the last image of each row, and derive changes from it.

    signed rows of a range ── select_changes ──► the changes of each key that matter
         shuffle by primary key ── derive_changes ──► -1 the old image, +1 the new image
                                        ▲   └───────► new states of keys: the state of this stage
                              states of the previous epoch

The primary key identifies a row. An accumulate is the new image of the row; a retraction means that
the row is deleted, whatever image it has. The order of a key's changes is (topic, partition,
offset) within an epoch; between epochs it is arrival. A change that the source repeats has the
image that is already there, so it changes nothing. *Duplicates* are counted but not folded: a
change that leaves a row as it was, a retraction of a missing row, and a row that came and went
within an epoch.

So the results are exact for at-least-once sources, repeated snapshots, topics that start in the
middle of a table's life, and formats without old images: every folded retraction is an image that
was folded before. While a source repeats an old part of its history, the results go back until the
source has caught up; within one epoch this is invisible.

An update may give a row another key: it is an own change of the new key, and a *leave* of the old
one, from another partition (`key_history`). Own changes of a key must come in one partition,
because there is no order across partitions. A key that breaks this is counted and named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import Integers
from jobs.core.rows.key_history import Fingerprint, KeyHistory, KeyState, Kind
from jobs.core.rows.truncations import Fate, Truncation, Truncations
from jobs.core.values.change import Row, Value
from jobs.core.values.order_key import encoder
from schemas.limits import DOUBTFUL_KEYS_NAMED_MAX
from schemas.spec.source import MESSAGE_TIMES

NO_CHANGE = -1
NO_TRUNCATIONS = Truncations()
Key = tuple[Value, ...]
States = Callable[[Sequence[Key]], Sequence[KeyState | None]]  # returns the state of each key


def key_reader(plan: Plan) -> Callable[[Row], Key]:
    """Return a function from an image (a row of `plan.image`) to its primary key."""
    indexes = key_indexes(plan)
    if len(indexes) == 1:
        (index,) = indexes
        return lambda row: (row[index],)
    return itemgetter(*indexes)


def key_indexes(plan: Plan) -> tuple[int, ...]:
    """Return the indexes of the primary key's columns in `plan.image`."""
    return tuple(plan.image.index(column) for column in plan.primary_key)


@lru_cache(maxsize=8)
def fingerprint_of(plan: Plan) -> Fingerprint:
    """Return a function that gives an image a number of 64 bits; it is stored in tables.

    An update has the columns of the row before it, but not the times at which that row was set.
    """
    kept = [at for at, column in enumerate(plan.image) if column.name not in MESSAGE_TIMES]
    encode = encoder(tuple(plan.image[at].type for at in kept))

    def fingerprint(row: Row) -> int:
        content = encode([row[at] for at in kept])
        return int.from_bytes(blake2b(content, digest_size=8).digest(), "big", signed=True)

    return fingerprint


def number_partition(topic: str, partition: int) -> int:
    """Return a number of 31 bits for a partition of a topic; it is stored in tables."""
    return crc32(f"{topic}/{partition}".encode()) >> 1


# --- a range --------------------------------------------------------------------------------


class SelectedChanges(NamedTuple):
    """The changes of each key in a range that matter, as parallel arrays."""

    indexes: Integers  # among the signed rows, in order
    summaries: Integers  # of `pack_summary`


def pack_summary(kind: Any, rows: Any, led: Any) -> Any:
    """Return a change's kind, the number of rows of its key in the range, and their lead.

    `led` is whether the first of these rows was a retraction. It is an integer, or of arrays an
    array of integers.
    """
    return rows * 8 + led * 4 + kind


def select_changes(
    numbers: Integers, signs: Integers, messages: Integers | None = None
) -> SelectedChanges:
    """Return the changes that matter: of most keys the last one.

    Equal keys have equal `numbers`, which count from 0 without large gaps. `messages` numbers the
    message of each row, for formats in which an update may change a key.
    """
    if messages is not None:
        return _select_with_key_changes(numbers, signs, messages)
    indexes, rows, led = _find_last(numbers, signs)
    kinds = np.where(signs[indexes] > 0, int(Kind.SET), int(Kind.DELETE))
    return SelectedChanges(indexes, pack_summary(kinds, rows, led))


def _find_last(numbers: Integers, signs: Integers) -> tuple[Integers, Integers, Integers]:
    """Return of each key: the index of its last row, its rows, whether a retraction is first."""
    count = int(numbers.max(initial=-1)) + 1
    last, first = np.zeros(count, np.int64), np.zeros(count, np.int64)
    every = np.arange(len(numbers))
    last[numbers] = every  # for repeated indexes the last assignment wins
    first[numbers[::-1]] = every[::-1]
    seen = np.bincount(numbers, minlength=count).astype(np.int64)
    led = (signs[first] < 0).astype(np.int64)
    order = np.argsort(last, kind="stable")
    order = order[seen[order] > 0]
    return last[order], seen[order], led[order]


def _select_with_key_changes(
    numbers: Integers, signs: Integers, messages: Integers
) -> SelectedChanges:
    """Return the last change of each key, each leave, and what shows that a life was closed."""
    kinds = find_kinds(numbers, signs, messages)
    is_own = kinds != Kind.LEAVE
    counted = np.flatnonzero(is_own)
    at, rows, led = _find_last(numbers[counted], signs[counted])
    summaries = np.zeros(len(signs), np.int64)
    summaries[counted[at]] = pack_summary(0, rows, led)
    leaves = np.flatnonzero(~is_own)
    summaries[leaves] = pack_summary(0, 1, 0)
    is_own[kinds == NO_CHANGE] = False
    shown = _find_closing(numbers, kinds, np.flatnonzero(is_own))
    chosen = np.unique(np.concatenate([counted[at], leaves, shown]))
    return SelectedChanges(chosen, summaries[chosen] + kinds[chosen])


def find_kinds(numbers: Integers, signs: Integers, messages: Integers) -> Integers:
    """Return the kind of each row; NO_CHANGE for the -U of an update that keeps the key.

    An update is a -U and a +U after each other in one message.
    """
    pairs = (signs[:-1] < 0) & (signs[1:] > 0) & (messages[:-1] == messages[1:])
    before: Integers = np.nonzero(pairs)[0]
    moved = numbers[before] != numbers[before + 1]
    kinds = np.where(signs > 0, int(Kind.ARRIVE), int(Kind.DELETE))
    kinds[before] = np.where(moved, int(Kind.LEAVE), NO_CHANGE)
    kinds[before[~moved] + 1] = Kind.SET
    found: Integers = kinds
    return found


def _find_closing(numbers: Integers, kinds: Integers, own: Integers) -> Integers:
    """Return the arrivals that close a life, and the change before each of them.

    The first change of a key may close a life that began before the range. An arrival after a
    deletion closes none, so it becomes a SET.
    """
    ordered = own[np.argsort(numbers[own], kind="stable")]
    of, kind = numbers[ordered], kinds[ordered]
    arrives = np.flatnonzero(kind == Kind.ARRIVE)
    previous = np.maximum(arrives - 1, 0)
    first = (arrives == 0) | (of[previous] != of[arrives])
    after_deletion = ~first & (kind[previous] == Kind.DELETE)
    kinds[ordered[arrives[after_deletion]]] = Kind.SET
    closing = ~first & ~after_deletion
    shown: Integers = np.concatenate([arrives[first | closing], previous[closing]])
    found: Integers = ordered[shown]
    return found


# --- a bucket of keys -----------------------------------------------------------------------


class KeyChange(NamedTuple):
    """A change of a key, as a decode task sends it."""

    key: Key
    image: Row
    position: int
    summary: int  # of `pack_summary`
    time: int | None = None  # of the source
    partition: int | None = None  # see `number_partition`


class DerivedChanges(msgspec.Struct, gc=False):
    """The states that change, and the weighted rows to fold."""

    states: list[tuple[Key, KeyState | None]] = []  # None: nothing is known of the key
    rows: list[Row] = []  # to fold: their used columns
    positions: list[int] = []  # as `consolidate` has them: a retraction's is complemented
    weights: list[int] = []
    taken: int = 0  # signed rows
    duplicates: int = 0  # signed rows that changed nothing
    unknown_retractions: int = 0  # retracted keys without an image
    rows_delta: int = 0  # additional rows
    moved_keys: int = 0  # keys whose changes came from several partitions
    ambiguous_keys: int = 0  # keys with changes that repeats cannot be told from
    doubtful: list[Key] = []  # some of both


def derive_changes(
    changes: Iterable[KeyChange],
    states: States,
    used: int,
    fingerprint: Fingerprint,
    truncations: Truncations = NO_TRUNCATIONS,
) -> DerivedChanges:
    """Derive the changes of an epoch from those of each key; `changes` may have any order."""
    by_key: dict[Key, list[KeyChange]] = {}
    for change in changes:
        by_key.setdefault(change.key, []).append(change)
    found = DerivedChanges([], [], [], [], doubtful=[])
    for (key, own), before in zip(by_key.items(), states(list(by_key)), strict=True):
        if len(own) > 1:  # leaves first: nearly all of them wait for an own change, if for any
            own.sort(key=lambda change: (change.summary & 3 != Kind.LEAVE, change.position))
        if truncations and _are_concerned(truncations, own):
            after = _apply_truncated(found, key, before, own, fingerprint, truncations)
        else:
            after = _apply(found, before, own, fingerprint)
        _add(found, key, own, before, after, used)
    return found


def truncate(
    states: Mapping[Key, KeyState], used: int, fingerprint: Fingerprint, truncations: Truncations
) -> DerivedChanges:
    """Derive the changes of keys that an epoch with new TRUNCATEs does not change otherwise."""
    found = DerivedChanges([], [], [], [], doubtful=[])
    for key, before in states.items():
        if before.image is not None:
            after = _apply_truncated(found, key, before, (), fingerprint, truncations)
            _add(found, key, (), before, after, used)
    return found


def _apply(
    found: DerivedChanges,
    before: KeyState | None,
    changes: Sequence[KeyChange],
    fingerprint: Fingerprint,
) -> KeyState | None:
    """Return the state of a key after its changes; count it if there is a doubt."""
    if len(changes) == 1 and (before is None or (before.image is not None and not before.ends)):
        (change,) = changes
        kind = change.summary & 3
        usual = kind == Kind.SET or (kind == Kind.ARRIVE and before is None)
        if usual and (before is None or before.partition == change.partition):
            known = None if before is None else before.time
            time = (known or 0) if change.time is None else change.time
            return KeyState(change.image, time, change.partition)
    history = KeyHistory(before, fingerprint)
    for change in changes:
        history.apply(change.summary & 3, change.image, change.time, change.partition)
    return _end(found, changes[0].key, history)


def _are_concerned(truncations: Truncations, changes: Sequence[KeyChange]) -> bool:
    """Return whether a TRUNCATE may remove the row of a key with these changes."""
    until = truncations.until
    return bool(truncations.new) or any(
        change.time is None or change.time <= until for change in changes
    )


def _apply_truncated(
    found: DerivedChanges,
    key: Key,
    before: KeyState | None,
    changes: Sequence[KeyChange],
    fingerprint: Fingerprint,
    truncations: Truncations,
) -> KeyState | None:
    """Like `_apply`, where a TRUNCATE may delete the row before or after each change."""
    history = KeyHistory(before, fingerprint)
    if before is not None and before.image is not None:
        history.truncate(truncations.new.fate(before.time, before.partition))
    last = max((each.position for each in changes if each.summary & 3 != Kind.LEAVE), default=-1)
    for change in changes:
        kind = change.summary & 3
        history.apply(kind, change.image, change.time, change.partition)
        if kind in (Kind.SET, Kind.ARRIVE):
            fate = truncations.fate(change.time, change.partition, change.position)
            if fate is Fate.GONE or change.position == last:
                history.truncate(fate)
    return _end(found, key, history)


def _end(found: DerivedChanges, key: Key, history: KeyHistory) -> KeyState | None:
    """Return the state of a key after its changes; count it if there is a doubt."""
    after = history.end()
    found.moved_keys += history.moved
    found.ambiguous_keys += history.ambiguous
    in_doubt = history.moved or history.ambiguous
    if in_doubt and len(found.doubtful) < DOUBTFUL_KEYS_NAMED_MAX:
        found.doubtful.append(key)
    return after


def _add(
    found: DerivedChanges,
    key: Key,
    changes: Sequence[KeyChange],
    before: KeyState | None,
    after: KeyState | None,
    used: int,
) -> None:
    """Add what follows from the new state of a key."""
    old = None if before is None else before.image
    new = None if after is None else after.image
    rows = sum(change.summary >> 3 for change in changes)
    found.taken += rows
    first = next((each for each in changes if each.summary & 3 != Kind.LEAVE), None)
    if before is None and first is not None and first.summary & 4:
        found.unknown_retractions += 1
    if old != new or _must_store(before, after, changes):
        found.states.append((key, after))
    if old == new:
        found.duplicates += rows
        return
    found.rows_delta += (new is not None) - (old is not None)
    position = changes[-1].position if changes else 0
    for image, at, weight in ((old, ~position, -1), (new, position, 1)):
        if image is not None:
            found.rows.append(image[:used])
            found.positions.append(at)
            found.weights.append(weight)


def _must_store(
    before: KeyState | None, after: KeyState | None, changes: Sequence[KeyChange]
) -> bool:
    """Return whether a state with the same image must be stored: a repeated row does not."""
    if before is None or after is None:
        return before is not after
    if (before.ends, before.left, before.partition) != (after.ends, after.left, after.partition):
        return True
    # An arrival is a new life, even with the same image; leaves of earlier ones are over.
    return before.time != after.time and any(each.summary & 3 == Kind.ARRIVE for each in changes)


# --- in memory ------------------------------------------------------------------------------


class LastImages:
    """Derives changes message by message with all states in memory, for replays and audits."""

    def __init__(self, plan: Plan, *, keys_change: bool) -> None:
        """Start without rows; `keys_change`: an update of this format may change a key."""
        self._key_of = key_reader(plan)
        self._used = len(plan.used)
        self._fingerprint = fingerprint_of(plan)
        self._keys_change = keys_change
        self._states: dict[Key, KeyState] = {}
        self._truncations = NO_TRUNCATIONS
        self._newest_ms: int | None = None
        self.duplicates = 0
        self.moved_keys = 0
        self.ambiguous_keys = 0

    def derive(
        self,
        changes: Sequence[tuple[int, Row]],
        time: int | None = None,
        partition: int | None = None,
    ) -> list[tuple[int, Row]]:
        """Return the changes that follow from the signed rows of one message."""
        if not changes:
            return []
        keys: dict[Key, int] = {}
        numbers = np.array([keys.setdefault(self._key_of(row), len(keys)) for _, row in changes])
        signs = np.array([sign for sign, _ in changes], np.int64)
        one = np.zeros(len(changes), np.int64) if self._keys_change else None
        selected = select_changes(numbers, signs, one)
        sent = [
            KeyChange(self._key_of(row := changes[index][1]), row, index, packed, time, partition)
            for index, packed in zip(*map(np.ndarray.tolist, selected), strict=True)
        ]
        known = self._truncations
        found = derive_changes(sent, self._read, self._used, self._fingerprint, known)
        if time is not None:
            self._newest_ms = max(time, self._newest_ms or time)
        if known:
            self._truncations = known.forget_old(self._newest_ms)
        return self._take(found)

    def truncate(self, truncation: Truncation) -> list[tuple[int, Row]]:
        """Return the retractions of the rows that a TRUNCATE behind all rows removes."""
        known = self._truncations.add((truncation,))
        found = truncate(self._states, self._used, self._fingerprint, known)
        self._truncations = known.forget_old(self._newest_ms)
        return self._take(found)

    def _take(self, found: DerivedChanges) -> list[tuple[int, Row]]:
        for key, state in found.states:
            if state is None:
                self._states.pop(key, None)
            else:
                self._states[key] = state
        self.duplicates += found.duplicates
        self.moved_keys += found.moved_keys
        self.ambiguous_keys += found.ambiguous_keys
        return list(zip(found.weights, found.rows, strict=True))

    def _read(self, keys: Sequence[Key]) -> list[KeyState | None]:
        return [self._states.get(key) for key in keys]

    def live(self) -> list[Row]:
        """Return the used columns of all current rows."""
        images = (state.image for state in self._states.values())
        return [image[: self._used] for image in images if image is not None]
