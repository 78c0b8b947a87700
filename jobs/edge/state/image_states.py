"""The last images of rows in the hot state: one record of bytes a key, packed by columns.

    part `rows` ──read──► Records ──catch_up──► LMDB ──read_images──► Images: columns
                                                  └────read_states──► KeyStates, for few keys

    a row and nothing else     time, partition, image: see packed_rows
    anything else              0x02, and the state as MessagePack

Most keys have a row and nothing else, so their records are made and read by columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import lmdb
import numpy as np
import pyarrow as pa

from jobs.core.fold.state import Clock, Group, GroupTimer
from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import Booleans
from jobs.core.rows.dedupe import Key, key_indexes
from jobs.core.rows.key_history import KeyEnd, KeyState
from jobs.core.values.order_key import shorten_key
from jobs.edge.rows.columns import conform
from jobs.edge.rows.image_rows import CHANGES, KEY_PARTITION, KEY_TIME, Images
from jobs.edge.rows.packed_rows import RowPacker, canonical
from jobs.edge.state.bucket_states import CommittedState, StateFiles, StateSource
from jobs.edge.state.hot_records import Keys, Layout, Records, decode_group, pack_group
from jobs.edge.state.hot_state import HotState, open_shared
from jobs.edge.state.multiset_records import KEY_BYTES_MAX
from jobs.edge.table.epoch_files import TableLayout
from jobs.reading.parts import ROWS
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, to_arrow
from schemas.types.sql_types import Kind, SqlType

_OTHER = b"\x02"  # a packed row begins with 0 or 1
_FORGET = "forget"  # the namespace of timers
_BIGINT = SqlType(Kind.BIGINT)


class KnownImages(NamedTuple):
    """What the hot state has of some keys."""

    records: list[bytes | None]
    is_row: Booleans  # a row and nothing else
    times: pa.Array  # of these
    partitions: pa.Array
    images: list[pa.Array]


class ImageRecords:
    """Encodes the states of keys as records, and decodes them."""

    def __init__(self, plan: Plan, layout: Layout) -> None:
        self._keys = Keys(layout)
        self._types = (_BIGINT, _BIGINT, *(column.type for column in plan.image))
        self._packer = RowPacker([arrow_type(kind) for kind in self._types])
        self._image_at = self._packer.bytes_before(2)
        self._key_indexes = key_indexes(plan)
        self._key_types = [column.type for column in plan.primary_key]
        # Neighbours of a table are neighbours in LMDB.
        self._namer = RowPacker(list(map(arrow_type, self._key_types)), sorts=True)

    def keys_of(self, images: Sequence[pa.Array]) -> list[Key]:
        places = zip(self._key_indexes, self._key_types, strict=True)
        return list(zip(*(from_arrow(images[at], kind) for at, kind in places), strict=True))

    def names_of(self, images: Sequence[pa.Array]) -> list[bytes]:
        """Return the name of each image's key in the hot state."""
        return self._name([images[at] for at in self._key_indexes])

    def names_of_keys(self, keys: Sequence[Key]) -> list[bytes]:
        """Return the names of keys in the hot state."""
        columns = zip(*keys, strict=True) if keys else [()] * len(self._key_types)
        arrays = [to_arrow(each, kind) for each, kind in zip(columns, self._key_types, strict=True)]
        return self._name(list(map(canonical, arrays)))

    def _name(self, columns: Sequence[pa.Array]) -> list[bytes]:
        return [shorten_key(name, KEY_BYTES_MAX) for name in self._namer.pack(columns)]

    def same_image(self, one: bytes | None, other: bytes | None) -> bool:
        """Return whether two packed rows have one image."""
        return (
            one is not None
            and other is not None
            and (one[self._image_at :] == other[self._image_at :])
        )

    def pack(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """Return records of keys that have a row and nothing else: times, partitions, images."""
        return self._packer.pack(columns)

    def read_images(self, records: Sequence[bytes | None]) -> KnownImages:
        """Return stored images by columns; raise CorruptedError if these bytes are none."""
        is_row = [record is not None and record[:1] != _OTHER for record in records]
        rows = [record for record, each in zip(records, is_row, strict=True) if each and record]
        try:
            times, partitions, *images = self._packer.unpack(rows)
        except ValueError as error:
            raise lmdb.CorruptedError(f"the record of an image: {error}") from None
        return KnownImages(list(records), np.array(is_row, np.bool_), times, partitions, images)

    def read_states(self, records: Sequence[bytes | None]) -> list[KeyState | None]:
        known = self.read_images(records)
        columns = zip((known.times, known.partitions, *known.images), self._types, strict=True)
        rows = zip(*(from_arrow(column, kind) for column, kind in columns), strict=True)
        states: list[KeyState | None] = []
        for record, is_row in zip(records, known.is_row.tolist(), strict=True):
            if is_row:
                time, partition, *image = next(rows)
                states.append(KeyState(tuple(image), time, partition))
            else:
                states.append(None if record is None else _to_state(decode_group(record[1:])))
        return states

    def encode(
        self, states: Iterable[tuple[Key, KeyState | None]], unset: Sequence[GroupTimer] = ()
    ) -> Records:
        """Return states of any kind as records, with the times when keys are forgotten."""
        found = list(states)
        rows = [state for _, state in found if state is not None and state.is_row]
        columns = zip(*((row.time, row.partition, *(row.image or ())) for row in rows), strict=True)
        packed = iter(self._packer.pack(list(map(to_arrow, columns, self._types))) if rows else ())
        records = Records({}, {}, {}, {})
        if not found and not unset:
            return records
        timers = [(timer, False) for timer in unset]
        names = self.names_of_keys([key for key, _ in found])
        for name, (key, state) in zip(names, found, strict=True):
            record: bytes | None = None
            if state is not None:
                record = next(packed) if state.is_row else _OTHER + pack_group(_to_group(state))
                if (at := state.forget_at) is not None:
                    timers.append((GroupTimer(Clock.EVENT, at, _FORGET, key), True))
            records.groups[name] = record
        records.timers.update(self._keys.timer_records(timers))
        return records

    def read_table(self, images: Images, table: pa.Table) -> Records:
        """Return rows of the table as records; the last row of a key wins."""
        table = conform(table, images.schema)
        changed = table[CHANGES].is_valid().to_numpy()
        is_row = ~table["tombstone"].to_numpy() & ~changed
        columns = [canonical(table[name]) for name in (KEY_TIME, KEY_PARTITION, *images.columns)]
        names = self.names_of(columns[2:])
        rows = pa.array(np.flatnonzero(is_row))
        packed = iter(self._packer.pack([column.take(rows) for column in columns]))
        others = self.encode(images.read(table.filter(pa.array(changed))))
        odd = iter(others.groups.values())
        records = [
            next(packed) if row else next(odd) if other else None
            for row, other in zip(is_row.tolist(), changed.tolist(), strict=True)
        ]
        return Records(dict(zip(names, records, strict=True)), {}, others.timers, {})


class ImageStates:
    """The hot states of images for the buckets of a task."""

    def __init__(self, committed: CommittedState, plan: Plan, layout: TableLayout) -> None:
        key_types = tuple(column.type for column in plan.primary_key)
        self._layout = Layout(f"images of {plan.fingerprint}", key_types, ())
        self._images = layout.images
        self._source = StateSource(committed, (ROWS,), "rows")
        self.files = StateFiles(committed.root, layout, (ROWS,))
        self.records = ImageRecords(plan, self._layout)

    def catch_up(self, bucket: int) -> HotState:
        """Bring the state of a bucket to the task's base and return it."""
        state = open_shared(self._source.directory(bucket), self._layout)

        def read(named: Sequence[tuple[str, str]]) -> Iterator[Records]:
            for part, name in named:
                if part == ROWS:
                    rows = self.files.rows_of(bucket, name)
                    yield self.records.read_table(self._images, rows)

        self._source.catch_up(state, read)
        return state


def _to_group(state: KeyState) -> Group:
    cells = state.time, state.partition, state.left, *state.ends
    return Group(cells, () if state.image is None else state.image)


def _to_state(group: Group) -> KeyState:
    time, partition, left, *ends = group.cells
    return KeyState(group.result or None, time, partition, left, tuple(KeyEnd(*e) for e in ends))
