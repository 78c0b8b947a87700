"""Recent changes: the changelog of the newest epochs, rendered once for all clients.

    live table (thread) ──► EpochChanges ──► RecentChanges (bounded by rows) ──► streams over HTTP
                                              └ slower clients read the table

An epoch is one unit: if one of its rows is here, all of them are.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from jobs.reading.json_columns import encode_texts, join_texts
from jobs.reading.row_shape import RowShape
from schemas.limits import RECENT_CHANGES_ROWS_MAX
from schemas.table.epoch import EpochRow
from schemas.types.arrow_values import to_list
from schemas.types.moments import format_instant

# The position after the last row of an epoch. Seqs of rows are below 2^45.
END_OF_EPOCH = 2**53 - 1

_encode = msgspec.json.Encoder().encode


class Change(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A changelog row: its position, its key as bytes, and itself as JSON with the result row."""

    seq: int
    key: bytes
    document: bytes
    row_at: int  # the start of the result row, which is the end of the document
    ends: bool  # whether the change deletes the group

    @property
    def row(self) -> bytes:
        return self.document[self.row_at : -1]


@dataclass
class EpochChanges:
    """One epoch's changelog, complete."""

    epoch: int
    table: str  # the tag of the table that has the epoch
    committed_at: int  # microseconds since 1970
    watermark: int | None
    status: str
    changes: list[Change]
    # The columns of rows from this epoch on, by name; None if they did not change.
    columns: dict[str, str] | None = None

    def __post_init__(self) -> None:  # these do not travel with the epoch
        self._events: bytes | None = None
        self._once = threading.Lock()

    @cached_property
    def _chains(self) -> tuple[dict[bytes, int], array[int]]:
        """The index of each group's last change, and of each change's predecessor in its group.

        -1 is no predecessor. The thread that announces the epoch computes this. It uses numbers
        instead of one list for each group: the garbage collector would scan all of these lists and
        stop every request for 40 ms.
        """
        last: dict[bytes, int] = {}
        before = array("q")
        for index, change in enumerate(self.changes):
            before.append(last.get(change.key, -1))
            last[change.key] = index
        return last, before

    def render_events(self, after: int = -1, key: bytes | None = None) -> bytes:
        """Return server-sent events of the rows after a seq, of one group or of all.

        The events of the whole epoch are cached and rendered only once; thread-safe.
        """
        if after >= 0 or key is not None:
            return b"".join(self._render_event(change) for change in self.iterate_after(after, key))
        with self._once:
            if self._events is None:
                self._events = b"".join(self._render_event(change) for change in self.changes)
            return self._events

    def find_last(self) -> dict[bytes, int]:
        """Return the index of each group's last change, which has its current row."""
        return self._chains[0]

    def collect_rows(self) -> dict[bytes, bytes | None]:
        """Return the current row of each changed group as JSON; None for a deleted group."""
        last = ((key, self.changes[index]) for key, index in self.find_last().items())
        return {key: None if change.ends else change.row for key, change in last}

    def count_rows(self, key: bytes | None) -> int:
        """Return the number of changes of one group or of all."""
        return len(self.changes if key is None else self._find_changes(key))

    def iterate_after(self, seq: int, key: bytes | None) -> Iterator[Change]:
        """Yield the changes after a seq, of one group or of all."""
        for change in self.changes if key is None else self._find_changes(key):
            if change.seq > seq:
                yield change

    def _find_changes(self, key: bytes) -> list[Change]:
        last, before = self._chains
        index = last.get(key, -1)
        found = []
        while index >= 0:
            found.append(self.changes[index])
            index = before[index]
        return found[::-1]

    def _render_event(self, change: Change) -> bytes:
        return b"event: change\nid: %d:%d\ndata: %b\n\n" % (self.epoch, change.seq, change.document)

    @cached_property
    def progress(self) -> bytes:
        """The document of the progress event, encoded once."""
        return _encode(
            {
                "epoch": self.epoch,
                "watermark": self.watermark,
                "status": self.status,
                "committed_at": format_instant(self.committed_at // 1_000),
                "changes": len(self.changes),
            }
        )


def render_epoch(
    row: EpochRow, changelog: pa.Table | None, shape: RowShape, table: str
) -> EpochChanges:
    """Render the changelog rows of an epoch of the table with this tag."""
    return EpochChanges(
        row.epoch,
        table,
        row.committed_at,
        row.watermark,
        row.time.status,
        [] if changelog is None else list(_render_changes(changelog, shape)),
        {name: str(kind) for name, kind in shape.types.items()} if row.kind == "evolve" else None,
    )


def _render_changes(changelog: pa.Table, shape: RowShape) -> Iterator[Change]:
    rows = shape.render_safely(changelog)
    ops, seqs = changelog["op"].combine_chunks(), changelog["seq"].combine_chunks()
    head = pc.cast(ops, rows.type), pc.cast(changelog["epoch"].combine_chunks(), rows.type)
    documents = join_texts(
        '{"op":"',
        head[0],
        '","epoch":',
        head[1],
        ',"seq":',
        pc.cast(seqs, rows.type),
        ',"row":',
        rows,
        "}",
    )
    before = pc.subtract(pc.binary_length(documents), pc.binary_length(rows))
    return map(
        Change,
        to_list(seqs),
        shape.encode_keys(changelog),
        encode_texts(documents),
        to_list(pc.subtract(before, 1)),
        to_list(pc.equal(ops, "-D")),
    )


class RecentChanges:
    """The newest epochs without a gap; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: deque[EpochChanges] = deque()
        self._rows = 0

    def add(self, changes: EpochChanges) -> None:
        """Add the next epoch; drop the oldest ones beyond the limit."""
        with self._lock:
            if self._epochs and self._epochs[-1].epoch + 1 != changes.epoch:
                self._epochs.clear()
                self._rows = 0
            self._epochs.append(changes)
            self._rows += len(changes.changes) + 1
            while self._rows > RECENT_CHANGES_ROWS_MAX and len(self._epochs) > 1:
                self._rows -= len(self._epochs.popleft().changes) + 1

    def clear(self) -> None:
        with self._lock:
            self._epochs.clear()
            self._rows = 0

    def find_epoch(self, number: int) -> EpochChanges | None:
        """Return an epoch, or None if it is not in memory."""
        with self._lock:
            if not self._epochs:
                return None
            index = number - self._epochs[0].epoch
            return self._epochs[index] if 0 <= index < len(self._epochs) else None
