"""Generate a reproducible stream of canal-json changes of a table, and its correct results.

    Shape ──► ShopTable ──► changes ──► one file of lines per partition ──► topic
                  │            └──────► steady: paced by the clock, with probes in it
                  └──► truth: name -> (SUM(cnt), MAX(cnt), COUNT(*))

Equal shapes give byte-equal streams, so a run can be repeated years later. The loop over changes is
the hot path: numpy draws the random numbers for thousands of changes at once, and filling the
template of a message takes about 3 us.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

# name -> (SUM(cnt), MAX(cnt), COUNT(*)) of the live rows.
Truth = dict[str, tuple[int, int, int]]

# Lines of messages per partition, in order.
Batches = list[list[bytes]]

# Event time of the first change (2026-01-01), and how many changes share a millisecond.
STREAM_BEGIN_MS = 1_767_225_600_000
CHANGES_PER_MS = 50

# Changes drawn at once, and consecutive lines of one partition.
CHUNK_CHANGES = 20_000
INTERLEAVE_LINES = 2_000

TICK_SECONDS = 0.01

# Raised when the bytes of a stream change, so that old files on disk are not reused.
STREAM_VERSION = 1

COLUMNS = {
    "id": "BIGINT",
    "name": "STRING",
    "cnt": "INT",
    "price": "DECIMAL(10,2)",
    "description": "STRING",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters of a stream; shares are fractions of all changes unless noted."""

    changes: int = 2_000_000
    partitions: int = 4
    live_rows: int = 300_000
    groups: int = 100_000
    skew: float | None = 1.16  # Pareto's alpha, 80/20; None: every group is equally likely
    hot_share: float = 0.0  # of new rows: in group 0, independent of the skew
    update_share: float = 0.6
    regroup_share: float = 0.1  # of updates: move the row to another group
    wide_bytes: int = 0  # additional length of every description
    extra_columns: int = 0  # text columns that no query reads
    growing_share: float = 0.9  # of non-updates: inserts while there are too few rows
    own_group: bool = False  # every new row has a group of its own
    timed: bool = False  # every row has a time of its own, which windows can use
    seed: int = 20_260

    @property
    def columns(self) -> dict[str, str]:
        """The columns of the table with their types."""
        timed = {"at": "TIMESTAMP(3)"} if self.timed else {}
        return COLUMNS | timed | {f"extra{at:02d}": "STRING" for at in range(self.extra_columns)}

    @property
    def digest(self) -> str:
        text = json.dumps([STREAM_VERSION, dataclasses.asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


# The complete envelope of canal; %-formatting of bytes fills it fastest.
_MESSAGE = (
    b'{"data":[{"id":"%d","name":"%s","cnt":"%d","price":"%d.%02d","description":"%s"}],'
    b'"database":"shop","es":%d,"id":%d,"isDdl":false,"mysqlType":{"id":"bigint",'
    b'"name":"varchar(64)","cnt":"int","price":"decimal(10,2)","description":"varchar(255)"},'
    b'"old":%s,"pkNames":["id"],"sql":"","sqlType":{"id":-5,"name":12,"cnt":4,"price":3,'
    b'"description":12},"table":"product","ts":%d,"type":"%s"}'
)


@lru_cache(maxsize=4)
def _message_of(extra: int, timed: bool) -> bytes:
    """Return the envelope of a table with so many additional columns."""
    if timed:
        return (
            _message_of(extra, False)
            .replace(b'"description":"%s"', b'"description":"%s","at":"%s"')
            .replace(
                b'"description":"varchar(255)"', b'"description":"varchar(255)","at":"datetime"'
            )
            .replace(b'"description":12', b'"description":12,"at":93')
        )
    if not extra:
        return _MESSAGE
    data = b"".join(b',"extra%02d":"of no use, %02d"' % (at, at) for at in range(extra))
    kinds = b"".join(b',"extra%02d":"varchar(32)"' % at for at in range(extra))
    numbers = b"".join(b',"extra%02d":12' % at for at in range(extra))
    return (
        _MESSAGE.replace(b'"description":"%s"', b'"description":"%s"' + data)
        .replace(b'"description":"varchar(255)"', b'"description":"varchar(255)"' + kinds)
        .replace(b'"description":12', b'"description":12' + numbers)
    )


_DESCRIPTION = b"batch %010d, hall %02d"
_CANAL_DELAY_MS = 120


def group_name(group: int) -> bytes:
    return b"product-%06d" % group


def _moment_of(row: int) -> bytes:
    """Return the time of a row: a thousand rows share a second."""
    minutes, second = divmod(row // 1_000, 60)
    return b"2026-01-01 %02d:%02d:%02d" % (*divmod(minutes, 60), second)


def one_row_each(groups: int) -> Shape:
    """Return the shape of a stream that fills so many groups with one row each."""
    return Shape(
        changes=groups,
        live_rows=groups,
        groups=groups,
        skew=None,
        update_share=0.0,
        growing_share=1.0,
        own_group=True,
    )


def in_motion(groups: int) -> Shape:
    """Return the shape of later changes: random groups, and a constant number of rows."""
    return Shape(live_rows=groups, groups=groups, skew=None)


class Changing(Protocol):
    """What a steady stream needs of a table; `sequence` is the number of its changes so far."""

    sequence: int

    def changes(self, count: int, now_ms: int | None = None) -> Batches: ...

    def probe(self, now_ms: int) -> tuple[str, int, bytes]: ...


@dataclass(slots=True)
class ShopTable:
    """The table behind a stream: its live rows, and the generator of further changes."""

    shape: Shape
    ids: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    probes: list[int] = field(default_factory=list)  # counts of probe rows, by their number
    next_id: int = 1
    sequence: int = 0

    def changes(self, count: int, now_ms: int | None = None) -> Batches:
        """Return the next messages by partition; without `now_ms`, event time advances evenly."""
        shape = self.shape
        ids, groups, counts = self.ids, self.groups, self.counts
        batches: Batches = [[] for _ in range(shape.partitions)]
        padding = b"." * shape.wide_bytes
        regroup_from = shape.update_share * (1 - shape.regroup_share)
        grow_below = shape.update_share + shape.growing_share * (1 - shape.update_share)
        shrink_from = shape.update_share + 0.1 * (1 - shape.update_share)
        for fate, place, group, cnt in self._draws(count):
            live = len(ids)
            old = b"null"
            if fate < shape.update_share and live:
                kind = b"UPDATE"
                at = int(place * live)
                row = ids[at]
                if fate >= regroup_from and group != groups[at]:
                    old = b'[{"name":"%s"}]' % group_name(groups[at])
                    groups[at] = group
                    cnt = counts[at]
                else:
                    old = b'[{"cnt":"%d"}]' % counts[at]
                    cnt += cnt == counts[at]
                    counts[at] = cnt
                    group = groups[at]
            # The choice between INSERT and DELETE tends to the wanted number of live rows.
            elif live == 0 or fate < (grow_below if live < shape.live_rows else shrink_from):
                kind = b"INSERT"
                row = self.next_id
                self.next_id += 1
                if shape.own_group:
                    group = row - 1
                ids.append(row)
                groups.append(group)
                counts.append(cnt)
            else:
                kind = b"DELETE"
                at = int(place * live)
                row, group, cnt = ids[at], groups[at], counts[at]
                ids[at], groups[at], counts[at] = ids[-1], groups[-1], counts[-1]
                del ids[-1], groups[-1], counts[-1]
            name = group_name(group)
            batches[row % shape.partitions].append(
                self._message(row, name, cnt, old, kind, now_ms, padding)
            )
        return batches

    def probe(self, now_ms: int) -> tuple[str, int, bytes]:
        """Return name, partition and message of a new row in a group of its own.

        Only this change can cause the first result of the group, so the latency of a single change
        can be measured from outside of any engine.
        """
        name = b"probe-%06d" % len(self.probes)
        row = self.next_id
        self.next_id += 1
        self.probes.append(1)
        message = self._message(row, name, 1, b"null", b"INSERT", now_ms, b"")
        return name.decode(), row % self.shape.partitions, message

    def truth(self) -> Truth:
        truth: Truth = {}
        for group, cnt in zip(self.groups, self.counts, strict=True):
            name = group_name(group).decode()
            total, top, rows = truth.get(name, (0, cnt, 0))
            truth[name] = (total + cnt, max(top, cnt), rows + 1)
        truth |= {f"probe-{at:06d}": (cnt, cnt, 1) for at, cnt in enumerate(self.probes)}
        return truth

    def save(self, path: Path) -> None:
        np.savez(
            path,
            clock=np.array([self.next_id, self.sequence]),
            ids=np.array(self.ids, np.int64),
            groups=np.array(self.groups, np.int64),
            counts=np.array(self.counts, np.int64),
            probes=np.array(self.probes, np.int64),
        )

    @classmethod
    def load(cls, shape: Shape, path: Path) -> ShopTable:
        with np.load(path) as saved:
            next_id, sequence = saved["clock"].tolist()
            ids, groups, counts, probes = (
                saved[name].tolist() for name in ("ids", "groups", "counts", "probes")
            )
        return cls(shape, ids, groups, counts, probes, next_id, sequence)

    def _draws(self, count: int) -> Iterator[tuple[float, float, int, int]]:
        """Return fate, row, group and count of each change, from seed and position only."""
        shape = self.shape
        random = np.random.default_rng([shape.seed, self.sequence])
        if shape.skew is None:
            groups = random.integers(0, shape.groups, count)
        else:
            # The scale is a twentieth of the groups, for a hot head and a long tail.
            ranks = random.pareto(shape.skew, count) * (shape.groups / 20)
            groups = ranks.astype(np.int64) % shape.groups
        if shape.hot_share:
            groups[random.random(count) < shape.hot_share] = 0
        return zip(
            random.random(count).tolist(),
            random.random(count).tolist(),
            groups.tolist(),
            random.integers(1, 1_000, count).tolist(),
            strict=True,
        )

    def _message(
        self,
        row: int,
        name: bytes,
        cnt: int,
        old: bytes,
        kind: bytes,
        now_ms: int | None,
        padding: bytes,
    ) -> bytes:
        es = STREAM_BEGIN_MS + self.sequence // CHANGES_PER_MS if now_ms is None else now_ms
        ts = es + _CANAL_DELAY_MS if now_ms is None else now_ms
        self.sequence += 1
        whole, cents = divmod(row * 37 % 1_000_000, 100)
        description = _DESCRIPTION % (row, row % 97) + padding
        at = (_moment_of(row),) if self.shape.timed else ()
        values = (row, name, cnt, whole, cents, description, *at, es, self.sequence, old, ts, kind)
        return _message_of(self.shape.extra_columns, self.shape.timed) % values


@dataclass(frozen=True, slots=True)
class Stream:
    """A generated stream on disk: one file of lines per partition, and the final table."""

    shape: Shape
    directory: Path

    @property
    def files(self) -> list[Path]:
        return [self.directory / f"partition-{at}.jsonl" for at in range(self.shape.partitions)]

    def table(self) -> ShopTable:
        return ShopTable.load(self.shape, self.directory / "table.npz")

    def batches(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield partition and lines; the partitions alternate as in a live topic."""
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("rb")) for path in self.files]
            remaining = dict(enumerate(files))
            while remaining:
                for partition, file in list(remaining.items()):
                    lines = [line[:-1] for line in itertools.islice(file, INTERLEAVE_LINES)]
                    if lines:
                        yield partition, lines
                    else:
                        del remaining[partition]


def stored_stream(shape: Shape, directory: Path) -> Stream:
    """Return the stream of this shape, from disk if an earlier run generated it."""
    stream = Stream(shape, directory / shape.digest)
    if stream.directory.exists():
        return stream
    unfinished = stream.directory.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    table = ShopTable(shape)
    with ExitStack() as stack:
        files = [stack.enter_context((unfinished / path.name).open("wb")) for path in stream.files]
        for begin in range(0, shape.changes, CHUNK_CHANGES):
            batches = table.changes(min(CHUNK_CHANGES, shape.changes - begin))
            for file, lines in zip(files, batches, strict=True):
                if lines:
                    file.write(b"\n".join(lines) + b"\n")
    table.save(unfinished / "table.npz")
    (unfinished / "shape.json").write_text(json.dumps(dataclasses.asdict(shape), indent=2))
    unfinished.rename(stream.directory)
    return stream


@dataclass(frozen=True, slots=True)
class Tick:
    """The messages of one moment of a steady stream, and the names of its probe rows."""

    at: float  # seconds after the start
    batches: Batches
    probes: list[str]


def steady(table: Changing, *, rate: float, seconds: float, probe_rate: float = 0.0) -> list[Tick]:
    """Return the ticks of a steady stream.

    All of them are generated in advance: at 20,000 changes a second this takes half of a core,
    which the measured engine would lack."""
    ticks = []
    begin_ms = int(time.time() * 1_000)
    sent = probed = 0
    for number in range(1, round(seconds / TICK_SECONDS) + 1):
        at = number * TICK_SECONDS
        now_ms = begin_ms + int(at * 1_000)
        due, probes_due = round(rate * at) - sent, round(probe_rate * at) - probed
        batches = table.changes(due, now_ms)
        names = []
        for _ in range(probes_due):
            name, partition, message = table.probe(now_ms)
            batches[partition].append(message)
            names.append(name)
        sent += due
        probed += probes_due
        ticks.append(Tick(at, batches, names))
    return ticks


def pace(
    ticks: Iterable[Tick],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Tick]:
    """Yield each tick when it is due, or at once if it is late, so that the rate stays."""
    begin = clock()
    for tick in ticks:
        early = begin + tick.at - clock()
        if early > 0:
            sleep(early)
        yield tick
