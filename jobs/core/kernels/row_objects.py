"""Row objects for the kernels: a token a declared column, its value, and images in columns.

[{"id":"7","cnt":"3"},..]  find_rows ─► tokens [row * columns + column]
                        convert_rows ─► their values
                           put_image ─► numbers, texts [used column, image]
"""

from __future__ import annotations

from jobs.core.kernels.codes import TEXT
from jobs.core.kernels.compiled import Array, inlined, keep_apart
from jobs.core.kernels.field_values import convert, unescape
from jobs.core.kernels.json_bytes import (
    ABSENT,
    ESCAPED,
    NULL,
    STRING,
    U,
    byte_at,
    equal_bytes,
    scalar_end,
    skip_blanks,
    string_end,
    value_end,
)


@inlined
def find_column(buffer: Array, at: int, columns: Array, names: Array, expected: int) -> int:
    """Return the declared column with this quoted name, or -1; try the expected one first."""
    count = len(columns)
    column = expected
    for _ in range(count):
        start, size = columns[column]["name_at"], columns[column]["name_size"]
        if equal_bytes(buffer, at, names, start, size):
            return column
        column += 1
        if column == count:
            column = 0
    return -1


@keep_apart
def _row(buffer: Array, at: int, columns: Array, names: Array, tokens: Array, first: int) -> int:
    """Find the tokens of one row object; return its end, or -1."""
    count = len(columns)
    for position in range(first, first + count):
        tokens[position]["kind"] = ABSENT
    if byte_at(buffer, at) != 123:
        return -1
    at = skip_blanks(buffer, at + 1)
    if byte_at(buffer, at) == 125:
        return at + 1
    expected = 0
    while True:
        column = find_column(buffer, at, columns, names, expected) if count else -1
        if column < 0:
            if byte_at(buffer, at) != 34:
                return -1
            at, kind = string_end(buffer, at + 1)
            if at < 0 or kind == ESCAPED:  # an escaped name could be that of a column
                return -1
            at += 1
        else:
            at += columns[column]["name_size"]
        at = skip_blanks(buffer, at)
        if byte_at(buffer, at) != 58:
            return -1
        at = skip_blanks(buffer, at + 1)
        if column < 0:
            at = value_end(buffer, at)
            if at < 0:
                return -1
        else:
            position = first + column
            if tokens[position]["kind"] != ABSENT:
                return -1
            end, kind = scalar_end(buffer, at)
            if end < 0:
                return -1
            quotes = 1 if kind == STRING or kind == ESCAPED else 0
            tokens[position]["kind"] = kind
            tokens[position]["at"] = at + quotes
            tokens[position]["size"] = end - at - 2 * quotes
            at = end
            expected = column + 1 if column + 1 < count else 0
        at = skip_blanks(buffer, at)
        byte = byte_at(buffer, at)
        if byte == 125:
            return at + 1
        if byte != 44:
            return -1
        at = skip_blanks(buffer, at + 1)


@inlined
def find_rows(
    buffer: Array, at: int, columns: Array, names: Array, tokens: Array
) -> tuple[int, int]:
    """Find the tokens of an array of rows; return its end and their number, or twice -1."""
    if byte_at(buffer, at) != 91:
        return -1, -1
    at = skip_blanks(buffer, at + 1)
    if byte_at(buffer, at) == 93:
        return at + 1, 0
    width = len(columns)
    rows_max = len(tokens) // max(width, 1)
    rows = 0
    while rows < rows_max:
        at = _row(buffer, at, columns, names, tokens, rows * width)
        if at < 0:
            return -1, -1
        rows += 1
        at = skip_blanks(buffer, at)
        byte = byte_at(buffer, at)
        if byte == 93:
            return at + 1, rows
        if byte != 44:
            return -1, -1
        at = skip_blanks(buffer, at + 1)
    return -1, -1


@inlined
def find_row(
    buffer: Array, at: int, columns: Array, names: Array, tokens: Array
) -> tuple[int, int]:
    """Find the tokens of one row object; return its end and 1, or twice -1."""
    at = _row(buffer, at, columns, names, tokens, 0)
    return (at, 1) if at >= 0 else (-1, -1)


@keep_apart
def convert_rows(
    buffer: Array,
    columns: Array,
    tokens: Array,
    rows: int,
    missing_is_null: bool,
    label_maxima: Array,
    labels: int,
) -> bool:
    """Convert all tokens; return False if one is not usual, or lacks where it must not."""
    width = len(columns)
    for row in range(rows):
        for column in range(width):
            position = row * width + column
            if tokens[position]["kind"] == ABSENT:
                if not missing_is_null:
                    return False
            elif not convert(
                buffer, columns, tokens, column, position, label_maxima[labels, column]
            ):
                return False
    return True


@inlined
def put_image(
    buffer: Array,
    columns: Array,
    used: Array,
    text_rows: Array,
    old: Array,
    data: Array,
    row: int,
    before: bool,
    image: int,
    numbers: Array,
    valid: Array,
    texts: Array,
    ends: Array,
) -> None:
    """Write the used columns of an image; what `old` lacks of an image before is in `data`."""
    width = len(columns)
    for position in range(len(used)):
        column = used[position]
        token = row * width + column
        tokens = old if before and old[token]["kind"] != ABSENT else data
        kind = tokens[token]["kind"]
        null = kind == NULL or kind == ABSENT
        valid[position, image] = 0 if null else 1
        if columns[column]["kind"] >= TEXT:
            end = ends[position, image]
            if not null:
                at, size = tokens[token]["at"], tokens[token]["size"]
                if kind == ESCAPED:
                    end = unescape(buffer, at, size, texts, text_rows[position], end)
                else:
                    for index in range(size):
                        texts[text_rows[position], U(end + index)] = buffer[U(at + index)]
                    end += size
            ends[position, image + 1] = end
        numbers[position, image] = 0 if null else tokens[token]["value"]
