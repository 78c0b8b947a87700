"""Read the values of a snapshot's rows as the decoder of the source would.

a column of Spark ─┬─ of the declared type, or a text ───► as it is
                   ├─ a text, as in CSV ─────────────────► as a text of the source's messages
                   └─ any other type ──► its text in SQL ─► as a text of Spark
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

from jobs.core.plan.tree import Column
from jobs.core.values.json_values import Converter, converter
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import to_arrow
from schemas.types.sql_types import Kind, SqlType


class SnapshotForm(IntEnum):
    """How Spark gives a column."""

    AS_DECLARED = 0
    SQL_TEXT = 1
    SOURCE_TEXT = 2


class SnapshotRefused(ValueError):
    """A row of a snapshot cannot be read; the job must stop."""


class SnapshotColumn(NamedTuple):
    """A column of a snapshot's rows, and how Spark gives it."""

    column: Column
    form: SnapshotForm

    def read(self, values: pa.Array, texts: Callable[[SqlType], Converter]) -> pa.Array:
        """Return the values as the rows of the source have them; raise SnapshotRefused."""
        kind = self.column.type
        if self.form is SnapshotForm.AS_DECLARED:
            return values.cast(arrow_type(kind))
        if kind.kind is Kind.STRING:
            return self._require_text(values.cast(arrow_type(kind)))
        convert = converter(kind) if self.form is SnapshotForm.SQL_TEXT else texts(kind)
        distinct = values.dictionary_encode()
        try:
            found = [convert(text) for text in distinct.dictionary.to_pylist()]
        except ValueError as error:
            raise SnapshotRefused(f"column {self.column.name}: {error}") from None
        return to_arrow(found, kind).take(distinct.indices)

    def _require_text(self, texts: pa.Array) -> pa.Array:
        """Return texts that are UTF-8: Spark does not check the bytes of a file."""
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid as error:
            raise SnapshotRefused(f"column {self.column.name}: {error}") from None
        return texts


def read_columns(
    batch: pa.RecordBatch,
    columns: Sequence[SnapshotColumn],
    keys: Sequence[int],
    texts: Callable[[SqlType], Converter],
) -> list[pa.Array]:
    """Return the columns of some rows; `keys` are the indexes of those that must not be NULL."""
    found = [each.read(batch.column(i), texts) for i, each in enumerate(columns)]
    for index in keys:
        if found[index].null_count:
            name = columns[index].column.name
            raise SnapshotRefused(f"a row has no {name}, which is a column of primary_key")
    return found
