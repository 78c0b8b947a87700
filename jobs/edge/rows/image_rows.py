"""Write and read the part `rows` of a job with dedupe: the state of each primary key.

    (id,) -> (name, cnt, id)   ──►   bucket, epoch, tombstone, image_name, image_cnt, image_id,
                                     key_time_ms, key_partition, key_changes

The columns include the primary key. A key without a row is a tombstone with only its key. Where
`key_changes` is not NULL, the key is state even so: updates gave its row another key, or will. The
row with the newest epoch of a key counts. In memory a state is a Group whose result is the image,
so the hot state stores states like groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from jobs.core.fold.state import Clock, Group, GroupTimer, Upserts
from jobs.core.plan.tree import Plan
from jobs.core.rows.dedupe import Key, key_indexes
from jobs.core.rows.key_history import KeyEnd, KeyState
from jobs.core.values.change import Row
from jobs.edge.rows.columns import conform, to_arrow
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, to_list

CHANGES = "key_changes"
KEY_TIME, KEY_PARTITION = "key_time_ms", "key_partition"
_STATE = ((KEY_TIME, pa.int64()), (KEY_PARTITION, pa.int64()), (CHANGES, pa.string()))
_FORGET = "forget"  # the namespace of timers


class _Changes(msgspec.Struct, frozen=True):
    """The column `key_changes`, as JSON: the last image if it left, and what may still meet."""

    left: int | None
    ends: tuple[KeyEnd, ...]


_encode_changes = msgspec.json.Encoder().encode
_decode_changes = msgspec.json.Decoder(_Changes).decode


def to_group(state: KeyState) -> Group:
    """Return a state as the hot state stores it."""
    cells = state.time, state.partition, state.left, *state.ends
    return Group(cells, () if state.image is None else state.image)


def to_state(group: Group) -> KeyState:
    """Return the state of a group; hot states of older versions have only images."""
    time, partition, left, *ends = group.cells or (None, None, None)
    image = group.result or None
    return KeyState(image, time, partition, left, tuple(KeyEnd(*end) for end in ends))


def to_upserts(states: Sequence[tuple[Key, KeyState | None]]) -> Upserts:
    """Return states as the changes of a hot state, with the times when keys are forgotten."""
    groups = [(key, None if state is None else to_group(state)) for key, state in states]
    timers = [
        (GroupTimer(Clock.EVENT, at, _FORGET, key), True)
        for key, state in states
        if state is not None and (at := state.forget_at) is not None
    ]
    return Upserts(groups, [], timers)


class Images:
    """The columns of a plan's images."""

    def __init__(self, plan: Plan) -> None:
        self._columns = plan.image if plan.primary_key else ()
        self._indexes = key_indexes(plan)
        self._images = [f"image_{column.name}" for column in self._columns]
        self.key_names = [self._images[index] for index in self._indexes]

    @property
    def names(self) -> list[str]:
        """The columns that only this part has."""
        return [*self._images, *(name for name, _ in _STATE)] if self._columns else []

    @property
    def schema(self) -> pa.Schema:
        """The schema of the part."""
        kinds = [arrow_type(column.type) for column in self._columns]
        own = [("epoch", pa.int64()), ("bucket", pa.int32()), ("tombstone", pa.bool_())]
        state = _STATE if self._columns else ()
        return pa.schema([*own, *zip(self._images, kinds, strict=True), *state])

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

    def read(self, table: pa.Table) -> list[tuple[Key, KeyState | None]]:
        """Return keys and states in the order of the rows; tables of older versions have images."""
        if not self._columns:
            return []
        table = conform(table, self.schema)
        named = zip(self._images, self._columns, strict=True)
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
