"""Recent changes: the changelog of the newest epochs, rendered once for all who follow.

    follower (thread) ──► EpochChanges ──► Recent (bounded by rows) ──► followers over HTTP
                                              └ who is behind it reads the table

An epoch is one piece: whoever sees a row of it can see all of it.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from schemas.limits import RECENT_CHANGES_ROWS_MAX
from schemas.table.epoch import EpochRow
from schemas.types.arrow_values import listed
from service.table.json_columns import as_bytes, joined
from service.table.row_shape import RowShape

# The seq of no row: a place with it is the end of its epoch. Seqs are below 2^45.
WHOLE = 2**53 - 1

_encode = msgspec.json.Encoder().encode


class Change(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A row of the changelog: its place, its group as bytes; itself as JSON, and in it the result,
    which the index keeps as well."""

    seq: int
    key: bytes
    document: bytes
    row_at: int  # where the result begins in the document, of which it is the last part
    ends: bool  # whether the group is gone after it

    @property
    def row(self) -> bytes:
        return self.document[self.row_at : -1]


@dataclass
class EpochChanges:
    """One epoch's changelog, complete."""

    epoch: int
    committed_at: int  # microseconds since 1970
    watermark: int | None
    status: str
    changes: list[Change]
    # What columns rows have from this epoch on, by name; None where they are those of before.
    columns: dict[str, str] | None = None
    _events: bytes | None = field(default=None, repr=False)
    _once: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @cached_property
    def _chains(self) -> tuple[dict[bytes, int], array[int]]:
        """Of each group the place of its last change, and of each change that of the one before it
        in its group, or -1. Made by the thread that announces the epoch, before anybody follows it.

        Numbers, and not a list a group: of those there would be so many in all recent epochs that
        the garbage collector, which looks into each, would stop every request for 40 ms.
        """
        last: dict[bytes, int] = {}
        before = array("q")
        for place, change in enumerate(self.changes):
            before.append(last.get(change.key, -1))
            last[change.key] = place
        return last, before

    def events(self, after: int = -1, key: bytes | None = None) -> bytes:
        """As server-sent events, rows after a seq, of one group or of all; the whole is kept, and
        made once however many ask for it at the same moment."""
        if after >= 0 or key is not None:
            return b"".join(self._event(change) for change in self.after(after, key))
        with self._once:
            if self._events is None:
                self._events = b"".join(self._event(change) for change in self.changes)
            return self._events

    def last(self) -> dict[bytes, int]:
        """Of each group the place of its last change, which says how it is now."""
        return self._chains[0]

    def documents(self) -> dict[bytes, bytes | None]:
        """Of each group how it is now, as JSON; None where it is gone."""
        last = ((key, self.changes[place]) for key, place in self.last().items())
        return {key: None if change.ends else change.row for key, change in last}

    def count(self, key: bytes | None) -> int:
        """How many rows those who follow this group have to be sent."""
        return len(self.changes if key is None else self._of(key))

    def after(self, seq: int, key: bytes | None) -> Iterator[Change]:
        for change in self.changes if key is None else self._of(key):
            if change.seq > seq:
                yield change

    def _of(self, key: bytes) -> list[Change]:
        last, before = self._chains
        place = last.get(key, -1)
        found = []
        while place >= 0:
            found.append(self.changes[place])
            place = before[place]
        return found[::-1]

    def _event(self, change: Change) -> bytes:
        return b"event: change\nid: %d:%d\ndata: %b\n\n" % (
            self.epoch, change.seq, change.document,
        )  # fmt: skip

    @cached_property
    def progress(self) -> bytes:
        """The same for everybody."""
        return _encode(
            {
                "epoch": self.epoch,
                "watermark": self.watermark,
                "status": self.status,
                "committed_at": self.committed_at // 1_000,
                "changes": len(self.changes),
            }
        )


def epoch_changes(row: EpochRow, changelog: pa.Table | None, shape: RowShape) -> EpochChanges:
    """An epoch's changelog rows, rendered."""
    return EpochChanges(
        row.epoch,
        row.committed_at,
        row.watermarks.get("combined"),
        str(row.watermarks.get("status", "active")),
        [] if changelog is None else list(_rendered(changelog, shape)),
        {name: str(kind) for name, kind in shape.types.items()} if row.kind == "evolve" else None,
    )


def _rendered(changelog: pa.Table, shape: RowShape) -> Iterator[Change]:
    rows = shape.json(changelog)
    ops, seqs = changelog["op"].combine_chunks(), changelog["seq"].combine_chunks()
    head = pc.cast(ops, rows.type), pc.cast(changelog["epoch"].combine_chunks(), rows.type)
    documents = joined(
        '{"op":"', head[0], '","epoch":', head[1], ',"seq":', pc.cast(seqs, rows.type),
        ',"row":', rows, "}",
    )  # fmt: skip
    before = pc.subtract(pc.binary_length(documents), pc.binary_length(rows))
    return map(
        Change, listed(seqs), shape.keys(changelog), as_bytes(documents),
        listed(pc.subtract(before, 1)), listed(pc.equal(ops, "-D")),
    )  # fmt: skip


class Recent:
    """The newest epochs, oldest first, without a gap."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: deque[EpochChanges] = deque()
        self._rows = 0

    def add(self, changes: EpochChanges) -> None:
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

    def epoch(self, number: int) -> EpochChanges | None:
        """One epoch, where it is still here."""
        with self._lock:
            if not self._epochs:
                return None
            index = number - self._epochs[0].epoch
            return self._epochs[index] if 0 <= index < len(self._epochs) else None
