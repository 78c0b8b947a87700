"""Dedupe: keep the last image of each row, and derive changes from it.

    signed rows of a range ── find_latest ──► the last change of each key, and a summary of all
         shuffle by primary key ── derive_changes ──► -1 the old image, +1 the new image
                                        ▲   └───────► new images: the state of this stage
                              images of the previous epoch

The primary key identifies a row. An accumulate is the new image of the row; a retraction means that
the row is deleted, whatever image it has. Within an epoch the last change in (topic, partition,
offset) counts, and between epochs the later one. A change that the source repeats has the image
that is already there, so it changes nothing. *Duplicates* are counted but not folded: a change that
leaves a row as it was, a retraction of a missing row, and a row that came and went within an epoch.

So the results are exact for at-least-once sources, repeated snapshots, topics that start in the
middle of a table's life, and formats without old images: every folded retraction is an image that
was folded before. While a source repeats an old part of its history, the results go back until the
source has caught up; within one epoch this is invisible. All rows of a key must be in one
partition, or in different epochs, because there is no order across partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec
import numpy as np

from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import Integers
from jobs.core.values.change import Row, Value

Key = tuple[Value, ...]
Images = Callable[[Sequence[Key]], Sequence[Row | None]]  # returns the last image of each key


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


# --- a range --------------------------------------------------------------------------------


class LatestChanges(NamedTuple):
    """The last change of each key in a range, as parallel arrays."""

    indexes: Integers  # among the signed rows, in order
    summaries: Integers  # packed ChangeSummary: sign * (2 * rows + led_by_retraction)


def find_latest(numbers: Integers, signs: Integers) -> LatestChanges:
    """Return the last change of each key.

    Equal keys have equal `numbers`, which count from 0 without large gaps."""
    count = int(numbers.max(initial=-1)) + 1
    last, first = np.zeros(count, np.int64), np.zeros(count, np.int64)
    every = np.arange(len(numbers))
    last[numbers] = every  # for repeated indexes the last assignment wins
    first[numbers[::-1]] = every[::-1]
    seen = np.bincount(numbers, minlength=count).astype(np.int64)
    led = (signs[first] < 0).astype(np.int64)
    order = np.argsort(last, kind="stable")
    order = order[seen[order] > 0]
    indexes = last[order]
    return LatestChanges(indexes, signs[indexes] * (2 * seen[order] + led[order]))


class ChangeSummary(NamedTuple):
    """The changes of one key in a range: the last sign, their number, and the first sign."""

    sign: int
    rows: int
    led_by_retraction: bool


def unpack_summary(packed: int) -> ChangeSummary:
    """Return the summary of a packed integer."""
    return ChangeSummary(1 if packed > 0 else -1, abs(packed) >> 1, bool(abs(packed) & 1))


# --- a bucket of keys -----------------------------------------------------------------------


class DerivedChanges(msgspec.Struct, gc=False):
    """The images that change, and the weighted rows to fold."""

    images: list[tuple[Key, Row | None]] = []  # changed images; None: the row is deleted
    rows: list[Row] = []  # to fold: their used columns
    positions: list[int] = []  # as `consolidate` has them: a retraction's is complemented
    weights: list[int] = []
    taken: int = 0  # signed rows
    duplicates: int = 0  # signed rows that changed nothing
    unknown_retractions: int = 0  # retracted keys without an image
    rows_delta: int = 0  # additional rows


def derive_changes(
    changes: Iterable[tuple[Key, Row, int, int]],  # key, image, position, summary
    images: Images,
    used: int,
) -> DerivedChanges:
    """Derive the changes from the last change of each key; `changes` may have any order."""
    newest: dict[Key, tuple[int, Row, int]] = {}  # position, image, sign
    oldest: dict[Key, tuple[int, bool]] = {}  # position, whether a retraction led
    rows: dict[Key, int] = {}
    for key, row, position, packed in changes:
        sign, count, led = unpack_summary(packed)
        rows[key] = rows.get(key, 0) + count
        known = newest.get(key)
        if known is None or position > known[0]:
            newest[key] = (position, row, sign)
        earlier = oldest.get(key)
        if earlier is None or position < earlier[0]:
            oldest[key] = (position, led)
    found = DerivedChanges([], [], [], [])
    keys = list(newest)
    for key, before in zip(keys, images(keys), strict=True):
        position, row, sign = newest[key]
        after = row if sign > 0 else None
        found.taken += rows[key]
        if before is None and oldest[key][1]:
            found.unknown_retractions += 1
        if before == after:
            found.duplicates += rows[key]
            continue
        found.images.append((key, after))
        found.rows_delta += (after is not None) - (before is not None)
        for image, at, weight in ((before, ~position, -1), (after, position, 1)):
            if image is not None:
                found.rows.append(image[:used])
                found.positions.append(at)
                found.weights.append(weight)
    return found


# --- in memory ------------------------------------------------------------------------------


class LastImages:
    """Derives changes one by one with all images in memory, for replays and audits."""

    def __init__(self, plan: Plan) -> None:
        self._key_of = key_reader(plan)
        self._used = len(plan.used)
        self._images: dict[Key, Row] = {}
        self.duplicates = 0

    def derive(self, sign: int, row: Row) -> list[tuple[int, Row]]:
        """Return the changes that follow from one signed row of `plan.image`."""
        key = self._key_of(row)
        before = self._images.get(key)
        after = row if sign > 0 else None
        if before == after:
            self.duplicates += 1
            return []
        if after is None:
            del self._images[key]
        else:
            self._images[key] = after
        images = ((-1, before), (1, after))
        return [(weight, image[: self._used]) for weight, image in images if image is not None]

    def live(self) -> list[Row]:
        """Return the used columns of all current rows."""
        return [row[: self._used] for row in self._images.values()]
