"""Write and read the part `rows` of a job with dedupe: the state of each primary key.

    (id,) -> (name, cnt, id)   ──►   bucket, epoch, tombstone, image_name, image_cnt, image_id,
                                     key_time_ms, key_partition, key_changes

The columns include the primary key. A key without a row is a tombstone with only its key. Where
`key_changes` is not NULL, the key is state even so: updates gave its row another key, or will. The
row with the newest epoch of a key counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import Booleans, Integers
from jobs.core.rows.dedupe import Key, key_indexes
from jobs.core.rows.key_history import KeyEnd, KeyState
from jobs.core.values.change import Row
from jobs.edge.rows.columns import conform
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, to_arrow, to_list

CHANGES = "key_changes"
KEY_TIME, KEY_PARTITION = "key_time_ms", "key_partition"
_STATE = ((KEY_TIME, pa.int64()), (KEY_PARTITION, pa.int64()), (CHANGES, pa.string()))


class _Changes(msgspec.Struct, frozen=True):
    """The column `key_changes`, as JSON: the last image if it left, and what may still meet."""

    left: int | None
    ends: tuple[KeyEnd, ...]


_encode_changes = msgspec.json.Encoder().encode
_decode_changes = msgspec.json.Decoder(_Changes).decode


class Images:
    """The columns of a plan's images."""

    def __init__(self, plan: Plan) -> None:
        self._columns = plan.image if plan.primary_key else ()
        self._indexes = key_indexes(plan)
        # Their names in the table.
        self.columns = [f"image_{column.name}" for column in self._columns]
        self.key_names = [self.columns[index] for index in self._indexes]

    @property
    def names(self) -> list[str]:
        """The columns that only this part has."""
        return [*self.columns, *(name for name, _ in _STATE)] if self._columns else []

    @property
    def schema(self) -> pa.Schema:
        """The schema of the part."""
        kinds = [arrow_type(column.type) for column in self._columns]
        own = [("epoch", pa.int64()), ("bucket", pa.int32()), ("tombstone", pa.bool_())]
        state = _STATE if self._columns else ()
        return pa.schema([*own, *zip(self.columns, kinds, strict=True), *state])

    def table(
        self, epoch: int, buckets: Sequence[int], states: Sequence[tuple[Key, KeyState | None]]
    ) -> pa.Table:
        """Return states as rows of the part; None is a deleted row."""
        known = [KeyState() if state is None else state for _, state in states]
        rows = [
            self._build_tombstone(key) if state.image is None else state.image
            for (key, _), state in zip(states, known, strict=True)
        ]
        columns = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        changes = [
            _encode_changes(_Changes(state.left, state.ends)).decode() if state.ends else None
            for state in known
        ]
        return pa.table(
            [
                pa.repeat(pa.scalar(epoch, pa.int64()), len(states)),
                pa.array(buckets, pa.int32()),
                pa.array([state.image is None for state in known], pa.bool_()),
                *(
                    to_arrow(values, column.type)
                    for values, column in zip(columns, self._columns, strict=True)
                ),
                pa.array([state.time for state in known], pa.int64()),
                pa.array([state.partition for state in known], pa.int64()),
                pa.array(changes, pa.string()),
            ],
            schema=self.schema,
        )

    def table_of_rows(
        self, epoch: int, buckets: Integers, removed: Booleans, states: Sequence[pa.Array]
    ) -> pa.Table:
        """Return keys that have a row and nothing else, or are removed, as rows of the part.

        `states` has times, partitions and then images, of which a removed key has its key only.
        """
        left = pa.array(np.arange(len(removed)), mask=removed)
        times, partitions, *images = states
        for index in set(range(len(images))).difference(self._indexes):
            images[index] = images[index].take(left)
        columns = [
            pa.repeat(pa.scalar(epoch, pa.int64()), len(removed)),
            pa.array(buckets, pa.int32()),
            pa.array(removed),
            *images,
            times.take(left),
            partitions.take(left),
            pa.nulls(len(removed), pa.string()),
        ]
        return pa.table(columns, schema=self.schema)

    def read(self, table: pa.Table) -> list[tuple[Key, KeyState | None]]:
        """Return keys and states in the order of the rows; tables of older versions have images."""
        if not self._columns:
            return []
        table = conform(table, self.schema)
        named = zip(self.columns, self._columns, strict=True)
        columns = [from_arrow(table[name], column.type) for name, column in named]
        own = [to_list(table[name]) for name in ("tombstone", KEY_TIME, KEY_PARTITION, CHANGES)]
        found: list[tuple[Key, KeyState | None]] = []
        for row, gone, time, partition, changes in zip(
            zip(*columns, strict=True), *own, strict=True
        ):
            key = tuple(row[index] for index in self._indexes)
            if gone and changes is None:
                found.append((key, None))
                continue
            known = _decode_changes(changes) if changes else _Changes(None, ())
            image = None if gone else row
            found.append((key, KeyState(image, time, partition, known.left, known.ends)))
        return found

    def _build_tombstone(self, key: Key) -> Row:
        """Return a row with only the columns of the key."""
        columns = dict(zip(self._indexes, key, strict=True))
        return tuple(columns.get(index) for index in range(len(self._columns)))
