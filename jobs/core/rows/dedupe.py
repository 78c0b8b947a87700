"""Dedupe: the last image of each row, and the changes that follow from it.

    signed rows of a range ── latest ──► the last one of each key, and how many it stands for
            shuffle by primary key ── derived ──► -1 the image that was, +1 the image that is
                                        ▲   └───► new images: the state of this stage
                                 images of the epoch before

A row is known by its primary key. An accumulate says what it is now; a retraction says that it is
gone, whatever image it carries. In an epoch the last change in (topic, partition, offset) counts,
between epochs the later one; what a source repeats is the image that is there already, and so no
change at all. A change of a row that leaves it as it was, a retraction of a row that is not there,
and what came and went within an epoch are *duplicates*: counted, and not folded.

So at-least-once sources, repeated snapshots, topics that begin in the middle of a table's life
and formats without an image before give exact results: all that is folded is derived from images
that were folded before. While a source tells an old part of its history again, results go back
with it until it has caught up; within one epoch nobody sees that. Rows of one key have to come in
one partition, or in epochs of their own: across partitions there is no order to go by.
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
Images = Callable[[Sequence[Key]], Sequence[Row | None]]  # the last ones of these keys, by key


def key_reader(plan: Plan) -> Callable[[Row], Key]:
    """How to read the primary key off an image, which is a row of `plan.image`."""
    places = key_places(plan)
    if len(places) == 1:
        (place,) = places
        return lambda row: (row[place],)
    return itemgetter(*places)


def key_places(plan: Plan) -> tuple[int, ...]:
    return tuple(plan.image.index(column) for column in plan.primary_key)


# --- a range --------------------------------------------------------------------------------


class Latest(NamedTuple):
    """The last change of each key in a range, side by side."""

    places: Integers  # among the signed rows, in their order
    standing: Integers  # the sign of the last one; how many there were; whether a retraction led


def latest(numbers: Integers, signs: Integers) -> Latest:
    """`numbers` are equal where keys are, and count from 0 without large gaps."""
    count = int(numbers.max(initial=-1)) + 1
    last, first = np.zeros(count, np.int64), np.zeros(count, np.int64)
    every = np.arange(len(numbers))
    last[numbers] = every  # of repeated places the last assignment stays
    first[numbers[::-1]] = every[::-1]
    seen = np.bincount(numbers, minlength=count).astype(np.int64)
    led = (signs[first] < 0).astype(np.int64)
    order = np.argsort(last, kind="stable")
    order = order[seen[order] > 0]
    places = last[order]
    return Latest(places, signs[places] * (2 * seen[order] + led[order]))


class Standing(NamedTuple):
    """What one shipped row stands for."""

    sign: int
    rows: int
    led_by_retraction: bool


def standing(packed: int) -> Standing:
    return Standing(1 if packed > 0 else -1, abs(packed) >> 1, bool(abs(packed) & 1))


# --- a bucket of keys -----------------------------------------------------------------------


class Derived(msgspec.Struct, gc=False):
    """What follows from the changes of some keys."""

    images: list[tuple[Key, Row | None]] = []  # those that changed; None: the row is gone
    rows: list[Row] = []  # to be folded: used columns ...
    positions: list[int] = []  # ... as `consolidated` has them: a retraction's is complemented
    weights: list[int] = []
    taken: int = 0  # signed rows
    duplicates: int = 0  # of these, those that changed nothing
    unknown_retractions: int = 0  # keys that were taken away without being there
    rows_delta: int = 0  # rows more than before


def derived(
    changes: Iterable[tuple[Key, Row, int, int]],  # key, image, position, standing
    images: Images,
    used: int,
) -> Derived:
    """The changes that follow from the last one of each key, whatever order they come in."""
    newest: dict[Key, tuple[int, Row, int]] = {}  # position, image, sign
    oldest: dict[Key, tuple[int, bool]] = {}  # position, whether a retraction led
    rows: dict[Key, int] = {}
    for key, row, position, packed in changes:
        sign, count, led = standing(packed)
        rows[key] = rows.get(key, 0) + count
        known = newest.get(key)
        if known is None or position > known[0]:
            newest[key] = (position, row, sign)
        earlier = oldest.get(key)
        if earlier is None or position < earlier[0]:
            oldest[key] = (position, led)
    found = Derived([], [], [], [])
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
    """The images of all rows, change by change: the way of replays and audits."""

    def __init__(self, plan: Plan) -> None:
        self._key_of = key_reader(plan)
        self._used = len(plan.used)
        self._images: dict[Key, Row] = {}
        self.duplicates = 0

    def derive(self, sign: int, row: Row) -> list[tuple[int, Row]]:
        """What one signed row of kept columns changes."""
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
        """The rows that are there now, by their used columns."""
        return [row[: self._used] for row in self._images.values()]
