"""Changes of groups as arrays: from a fold, from the table, and in a file of this host.

fold of an uncommitted epoch ──records_of──► RecordArrays ──encode──► a file beside the state
files of the table           ──read_part───►     │        ◄─decode──
                                                 └──► apply to the arrays of the state
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.fold.columnar.bucket_fold import Folded
from jobs.core.fold.columnar.query import ColumnarQuery
from jobs.core.kernels.apply_records import RecordArrays
from jobs.core.kernels.compiled import Array
from jobs.edge.rows.word_columns import PackedKeys, cells_to_words, pack_keys, to_words
from jobs.edge.table.epoch_files import TableLayout
from jobs.reading.parts import ACCUMULATORS, MULTISETS
from schemas.types.arrow_values import to_list

ENTRY_WORDS = 4
_WORD = 8
_SIZES = 4


def records_of(folded: Folded, keys: PackedKeys) -> RecordArrays:
    """Return the changes of a fold as records; entries of a group have its number already."""
    taken = keys.take(folded.rows)
    return RecordArrays(taken.data, taken.ends, folded.new, folded.entries)


def read_part(
    query: ColumnarQuery, layout: TableLayout, part: str, rows: pa.Table
) -> RecordArrays | None:
    """Return rows of the table's state as records; None for a part without any."""
    if part not in (ACCUMULATORS, MULTISETS):
        return None
    keys = pack_keys([(rows[name], kind) for name, kind in layout.group], rows.num_rows)
    if part == ACCUMULATORS:
        values = _read_values(query, layout, rows)
        return RecordArrays(keys.data, keys.ends, values, np.zeros((0, ENTRY_WORDS), np.int64))
    # Each group once: the state makes room for as many groups as there are keys.
    keys, groups = keys.encode()
    values = np.zeros((0, query.values), np.int64)
    return RecordArrays(keys.data, keys.ends, values, _read_entries(layout, rows, groups))


def _read_values(query: ColumnarQuery, layout: TableLayout, rows: pa.Table) -> Array:
    """Return the words of groups; zeros for a group that is gone.

    A withheld row is of an earlier spec: before a job without the event clock folds, an epoch
    without data has released it, and its later row replaces this one.
    """
    values = np.zeros((rows.num_rows, query.values), np.int64)
    for cell, (_, word) in zip(layout.program.cells, query.cell_words, strict=True):
        words = cells_to_words(rows[cell.name])
        values[:, word : word + len(words)] = np.stack(words, axis=1)
    for rule, (name, _) in zip(query.results, layout.kept, strict=True):
        if rule.function == "EXTREME":
            extreme, valid = to_words(rows[name], rule.type)
            values[:, rule.word], values[:, rule.word + 1] = valid, np.where(valid, extreme, 0)
    closed = rows["window_closed"].fill_null(False).to_numpy(zero_copy_only=False)
    gone = pc.and_(rows["tombstone"], rows["withheld"].is_null())  # the others are below zero
    values[gone.to_numpy(zero_copy_only=False) | closed] = 0
    return values


def _read_entries(layout: TableLayout, rows: pa.Table, groups: Array) -> Array:
    arguments = layout.program.plan.arguments
    entries = np.zeros((rows.num_rows, ENTRY_WORDS), np.int64)
    entries[:, 0] = groups
    entries[:, 3] = rows["multiplicity"].to_numpy()
    names = np.array(to_list(rows["argument"]), object)
    for multiset, (argument, (column, kind)) in enumerate(
        zip(layout.program.multisets, layout.values, strict=True)
    ):
        own = names == arguments[argument].name
        entries[own, 1] = multiset
        entries[own, 2] = to_words(rows[column], kind)[0][own]
    return entries


def encode_records(records: RecordArrays) -> bytes:
    """Return records as bytes: sizes, numbers, and the bytes of keys."""
    sizes = [len(records.ends), *records.values.shape, len(records.entries)]
    arrays = np.array(sizes, np.int64), *records[1:], records.keys
    return b"".join(array.tobytes() for array in arrays)


def decode_records(data: bytes) -> RecordArrays:
    """Return the records that `encode_records` wrote."""
    ends, groups, words, entries = np.frombuffer(data, np.int64, _SIZES).tolist()
    values = ends + groups * words
    count = values + entries * ENTRY_WORDS
    # The kernels are compiled for arrays that can be written.
    body = np.frombuffer(bytearray(data), np.uint8)[_SIZES * _WORD :]
    numbers = body[: count * _WORD].view(np.int64)
    return RecordArrays(
        body[count * _WORD :],
        numbers[:ends],
        numbers[ends:values].reshape(groups, words),
        numbers[values:].reshape(entries, ENTRY_WORDS),
    )
