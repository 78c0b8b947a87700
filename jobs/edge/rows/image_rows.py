"""Write and read the part `rows` of a job with dedupe, which has the last image of each row.

    (id,) -> (name, cnt, id)   ──►   bucket, epoch, tombstone, image_name, image_cnt, image_id

The columns include the primary key. A deleted row is a tombstone with only its key. The row with
the newest epoch of a key counts. In memory an image is the result of a Group without cells, so the
hot state stores images like groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jobs.core.fold.state import Group
from jobs.core.plan.tree import Plan
from jobs.core.rows.dedupe import Key, key_indexes
from jobs.core.values.change import Row
from jobs.edge.rows.columns import to_arrow
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import from_arrow, to_list


class Images:
    """The columns of a plan's images."""

    def __init__(self, plan: Plan) -> None:
        self._columns = plan.image if plan.primary_key else ()
        self._indexes = key_indexes(plan)
        self.names = [f"image_{column.name}" for column in self._columns]
        self.key_names = [self.names[index] for index in self._indexes]

    @property
    def schema(self) -> pa.Schema:
        """The schema of the part."""
        kinds = [arrow_type(column.type) for column in self._columns]
        own = [("epoch", pa.int64()), ("bucket", pa.int32()), ("tombstone", pa.bool_())]
        return pa.schema([*own, *zip(self.names, kinds, strict=True)])

    def table(
        self, epoch: int, buckets: Sequence[int], images: Sequence[tuple[Key, Row | None]]
    ) -> pa.Table:
        """Return images as rows of the part; None is a deleted row."""
        rows = [self._build_tombstone(key) if image is None else image for key, image in images]
        columns = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        return pa.table(
            [
                pa.repeat(pa.scalar(epoch, pa.int64()), len(images)),
                pa.array(buckets, pa.int32()),
                pa.array([image is None for _, image in images], pa.bool_()),
                *(
                    to_arrow(values, column.type)
                    for values, column in zip(columns, self._columns, strict=True)
                ),
            ],
            schema=self.schema,
        )

    def read(self, table: pa.Table) -> list[tuple[Key, Group | None]]:
        """Return keys and images in the order of the rows."""
        if not self._columns:
            return []
        named = zip(self.names, self._columns, strict=True)
        columns = [from_arrow(table[name], column.type) for name, column in named]
        gone = to_list(table["tombstone"])
        indexes = self._indexes
        return [
            (tuple(row[index] for index in indexes), None if dead else Group((), row))
            for row, dead in zip(zip(*columns, strict=True), gone, strict=True)
        ]

    def _build_tombstone(self, key: Key) -> Row:
        """Return a row with only the columns of the key."""
        columns = dict(zip(self._indexes, key, strict=True))
        return tuple(columns.get(index) for index in range(len(self._columns)))
