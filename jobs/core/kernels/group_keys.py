"""Group keys as bytes: equal for equal groups, and in their order.

    column by column     sizes ─► offsets ─► 01 80..07 │ 01 62 6f 6c 74 00 00 │ 00
                                            the number 7, the text "bolt", NULL

Numbers are eight bytes with the highest first and the sign turned. A text has a 00 as 00 ff and
ends with 00 00, so no key begins another one. `jobs.core.values.order_key` has the same order.
"""

from __future__ import annotations

import numpy as np

from jobs.core.kernels.compiled import Array, kernel

NUMBER_BYTES = 9
_SIGN = np.uint64(1 << 63)
_BYTE = np.uint64(0xFF)


@kernel
def add_text_sizes(data: Array, ends: Array, valid: Array, sizes: Array) -> None:
    """Add to `sizes` the bytes that each text needs in its key."""
    for row in range(len(valid)):
        sizes[row] += 1
        if valid[row]:
            for at in range(ends[row], ends[row + 1]):
                sizes[row] += 2 if data[at] == 0 else 1
            sizes[row] += 2


@kernel
def put_texts(data: Array, ends: Array, valid: Array, offsets: Array, keys: Array) -> None:
    """Write a column of texts at `offsets`, which move behind them."""
    for row in range(len(valid)):
        offset = offsets[row]
        keys[offset] = valid[row]
        offset += 1
        if valid[row]:
            for at in range(ends[row], ends[row + 1]):
                keys[offset] = data[at]
                offset += 1
                if data[at] == 0:
                    keys[offset] = 255
                    offset += 1
            keys[offset] = 0
            keys[offset + 1] = 0
            offset += 2
        offsets[row] = offset


@kernel
def put_numbers(values: Array, valid: Array, offsets: Array, keys: Array) -> None:
    """Write a column of numbers at `offsets`, which move behind them."""
    for row in range(len(valid)):
        offset = offsets[row]
        keys[offset] = valid[row]
        offset += 1
        if valid[row]:
            word = np.uint64(values[row]) ^ _SIGN
            for byte in range(8):
                keys[offset + byte] = np.uint8((word >> np.uint64(56 - 8 * byte)) & _BYTE)
            offset += 8
        offsets[row] = offset
