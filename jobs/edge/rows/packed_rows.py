"""Rows of Arrow columns as one value of bytes each, for a store of keys and values.

    columns ──pack──► [bytes of row 0, bytes of row 1, ...] ──unpack──► columns

    is 0 valid │ value of column 0 │ is 1 valid │ size of text 1 │ ... │ text 1 │ ...

Equal rows are equal bytes, once `canonical` has made equal floats one. All rows are moved together:
a row costs a few slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.types.arrow_values import one_chunk, to_list

Array = np.ndarray[Any, Any]
_SIGN = np.array([128, *[0] * 15], np.uint8)  # of a number, whose first byte is its highest one


def canonical(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column with one NaN and without -0.0, so that equal floats are one value."""
    array = one_chunk(column)
    if not pa.types.is_floating(array.type):
        return array
    numbers = array.fill_null(0.0).to_numpy() + array.type.to_pandas_dtype()(0)
    numbers[np.isnan(numbers)] = np.nan
    absent = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(numbers, array.type, mask=absent, from_pandas=False)


class RowPacker:
    """Packs rows of columns with these types, which are those of a source's columns.

    With `sorts`, rows of whole numbers sort as the numbers do, but cannot be unpacked.
    """

    def __init__(self, types: Sequence[pa.DataType], *, sorts: bool = False) -> None:
        self._types = types
        self._sorts = sorts
        fields: list[tuple[Any, ...]] = []
        for index, kind in enumerate(types):
            fields.append((f"valid{index}", np.uint8))
            if is_text(kind):
                fields.append((f"value{index}", np.int32))
            else:
                fields.append((f"value{index}", np.uint8, (max(1, kind.bit_width // 8),)))
        self._head = np.dtype(fields)
        self._has_texts = any(map(is_text, types))

    def bytes_before(self, index: int) -> int:
        """Return where the first column that is compared begins, if those before are not texts."""
        fields = self._head.fields
        assert fields is not None
        return int(fields[f"valid{index}"][1])

    def pack(self, columns: Sequence[pa.Array]) -> list[bytes]:
        head = np.zeros(len(columns[0]), self._head)
        texts: list[list[bytes]] = []
        for index, (column, kind) in enumerate(zip(columns, self._types, strict=True)):
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            head[f"valid{index}"] = valid
            if is_text(kind):
                present = column.fill_null("" if pa.types.is_string(kind) else b"")
                head[f"value{index}"] = pc.binary_length(present).to_numpy()
                texts.append(to_list(present.cast(pa.binary())))
            else:
                octets = octets_of(column) * valid[:, None]
                if self._sorts:
                    octets = octets[:, ::-1] ^ _SIGN[: octets.shape[1]]
                head[f"value{index}"] = octets
        data, size = head.tobytes(), self._head.itemsize
        heads = [data[at : at + size] for at in range(0, len(data), size)]
        return list(map(b"".join, zip(heads, *texts, strict=True))) if texts else heads

    def unpack(self, rows: Sequence[bytes]) -> list[pa.Array]:
        """Return the columns of packed rows; raise ValueError if these bytes are none."""
        data = np.frombuffer(b"".join(rows), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)))
        at = np.concatenate([[0], ends[:-1]])[: len(rows)]
        if len(rows) and (ends - at).min() < self._head.itemsize:
            raise ValueError("a packed row is too short")
        octets = data[at[:, None] + np.arange(self._head.itemsize)]
        head = octets.reshape(-1).view(self._head)
        at = at + self._head.itemsize
        sizes = [head[f"value{i}"] for i, kind in enumerate(self._types) if is_text(kind)]
        if any((each < 0).any() for each in sizes) or (sum(sizes, at) != ends).any():
            raise ValueError("a packed row has another length than its texts")
        columns = []
        for index, kind in enumerate(self._types):
            valid, values = head[f"valid{index}"] != 0, head[f"value{index}"]
            absent = None if valid.all() else pa.array(valid).buffers()[1]
            if is_text(kind):
                edges = np.concatenate([[0], np.cumsum(values)]).astype(np.int64)
                texts = data[np.repeat(at - edges[:-1], values) + np.arange(edges[-1])]
                buffers = [absent, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(texts)]
                at = at + values
            elif pa.types.is_boolean(kind):
                buffers = [absent, pa.array(values[:, 0] != 0).buffers()[1]]
            else:
                buffers = [absent, pa.py_buffer(np.ascontiguousarray(values))]
            column = pa.Array.from_buffers(kind, len(rows), buffers)
            column.validate(full=True)
            columns.append(column)
        return columns


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind)) or is_wide(kind)


def is_wide(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def octets_of(column: pa.Array) -> Array:
    """Return the bytes of each value; those of NULL are any."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    octets = np.frombuffer(column.buffers()[1] or b"", np.uint8)
    octets = octets[column.offset * width : (column.offset + len(column)) * width]
    return octets.reshape(-1, width)
