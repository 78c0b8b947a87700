"""Scan messages of canal-, maxwell- or debezium-json: from bytes to columns in one pass.

No value becomes an object on the way.

    messages   {"data":[{"id":"7","cnt":"3"}],"type":"INSERT",..} 0 {"data": ..} 0     bytes
        │ scan           finds the members; of each row one token a declared column
        ▼
    tokens     [row * columns + column]    what it is, where it starts, its size
        │ convert_rows   integers, decimals, times, truths; a text stays where it is
        ▼
    images     signs [image]    owners [image], the message of each
               numbers [column, image]   valid [column, image]   texts [column, byte] and ends

A message is unusual if anything in it is not as sources usually write it; the caller decodes
such a message in another way. So nothing here refuses, and every doubt ends in UNUSUAL.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jobs.core.kernels.codes import DEBEZIUM, FILTERED, GOOD, UNUSUAL
from jobs.core.kernels.compiled import Array, inlined, kernel
from jobs.core.kernels.debezium_members import read_debezium
from jobs.core.kernels.json_bytes import equal_bytes
from jobs.core.kernels.message_members import (
    DATABASE,
    DATABASE_AT,
    DATABASE_SIZE,
    ES,
    ID,
    MET,
    OLD_ROWS,
    OTHER_TYPE,
    ROWS,
    SEEN_SIZE,
    SIGN,
    TABLE,
    TABLE_AT,
    TABLE_SIZE,
    TS,
    TYPES_AT,
    TYPES_SIZE,
    read_message,
)
from jobs.core.kernels.row_objects import convert_rows, put_image

# Why `scan` stopped.
DONE, FULL, NEW_TABLE, NEW_LABELS = range(4)

RULES = np.dtype(  # of the source; an array of one
    [
        ("format", "i8"),
        ("missing_is_null", "i8"),
        ("last_images", "i8"),  # an update of Debezium needs no `before`
        ("has_texts", "i8"),  # whether a column is a STRING
        ("by_database", "i8"),  # whether the filter reads this name
        ("by_table", "i8"),
    ]
)
KNOWN_TABLE = (
    np.dtype(  # a name that the caller has checked; both parts in quotes among the known names
        [
            ("database_at", "i8"),
            ("database_size", "i8"),
            ("table_at", "i8"),
            ("table_size", "i8"),
            ("wanted", "i8"),
        ]
    )
)
LABELS = np.dtype([("at", "i8"), ("size", "i8")])  # the `mysqlType` of some labels


class Source(NamedTuple):
    """What the scanner knows of a source."""

    rules: Array  # RULES [1]
    columns: Array  # COLUMN [column]
    names: Array  # uint8: of the columns, in quotes, one after another
    used: Array  # int64: the index of each used column among the declared ones
    text_rows: Array  # int64: the row of each used column among the texts; -1 for numbers
    tables: Array  # KNOWN_TABLE [known table]
    known_names: Array  # uint8
    labels: Array  # LABELS [known labels]; the first are none
    label_maxima: Array  # int64 [known labels, column]: the number of the last label, or -1
    known_types: Array  # uint8: the `mysqlType` of each known labels, one after another


class Images(NamedTuple):
    """The output: row images, and what each message is."""

    signs: Array  # int8 [image]
    owners: Array  # int32 [image]
    numbers: Array  # int64 [column, image]
    valid: Array  # uint8 [column, image]
    texts: Array  # uint8 [text column, byte]
    ends: Array  # int32 [column, image + 1]
    outcomes: Array  # uint8 [message]
    es: Array  # int64 [message]
    ts: Array
    ids: Array
    labels: Array  # int32 [message]: which known labels it has


@inlined
def _find_labels(buffer: Array, message: Array, labels: Array, known_types: Array) -> int:
    """Return which known labels a message has, or -1 if the caller has to read them."""
    at, size = message[TYPES_AT], message[TYPES_SIZE]
    for index in range(len(labels)):
        known = labels[index]
        if known["size"] == size and equal_bytes(buffer, at, known_types, known["at"], size):
            return index
    return -1


@inlined
def _check_table(buffer: Array, message: Array, rules: Array, tables: Array, names: Array) -> int:
    """Return 1 if the message's table is wanted, 0 if not, -1 if the caller has to check it."""
    for index in range(len(tables)):
        table = tables[index]
        if rules[0]["by_database"]:
            at, size = message[DATABASE_AT], message[DATABASE_SIZE]
            if size != table["database_size"]:
                continue
            if not equal_bytes(buffer, at, names, table["database_at"], size):
                continue
        if rules[0]["by_table"]:
            at, size = message[TABLE_AT], message[TABLE_SIZE]
            if size != table["table_size"]:
                continue
            if not equal_bytes(buffer, at, names, table["table_at"], size):
                continue
        return np.int64(table["wanted"])  # type: ignore[return-value]
    return -1


@inlined
def _convert_message(
    buffer: Array,
    columns: Array,
    data: Array,
    old: Array,
    message: Array,
    rules: Array,
    label_maxima: Array,
    labels: int,
) -> bool:
    """Convert the tokens of a message; return False if it is unusual."""
    missing_is_null = rules[0]["missing_is_null"] != 0
    partial = rules[0]["format"] != DEBEZIUM  # whether `old` has the changed columns only
    sign, rows = message[SIGN], message[ROWS]
    if sign == OTHER_TYPE or rows < 0 or (sign == 0 and message[OLD_ROWS] < rows):
        return False
    if not convert_rows(buffer, columns, data, rows, missing_is_null, label_maxima, labels):
        return False
    return sign != 0 or convert_rows(buffer, columns, old, rows, partial, label_maxima, labels)


@inlined
def _put_images(
    buffer: Array,
    columns: Array,
    used: Array,
    text_rows: Array,
    old: Array,
    data: Array,
    number: int,
    sign: int,
    rows: int,
    image: int,
    images: Images,
) -> int:
    """Write the images of the rows of a message; return the next image."""
    for row in range(rows):
        for before in range(1 if sign == 0 else 0, -1, -1):
            images.signs[image] = sign if sign != 0 else 1 - 2 * before
            images.owners[image] = number
            put_image(
                buffer,
                columns,
                used,
                text_rows,
                old,
                data,
                row,
                before == 1,
                image,
                images.numbers,
                images.valid,
                images.texts,
                images.ends,
            )
            image += 1
    return image


@kernel
def scan(
    buffer: Array,
    starts: Array,
    first: int,
    image: int,
    source: Source,
    data: Array,
    old: Array,
    message: Array,
    images: Images,
) -> tuple[int, int, int]:
    """Scan messages from `first` on; return the next message and image, and why it stopped.

    `message` then has what was found in that message."""
    rules, columns, names, used, text_rows, tables, known_names, labels, maxima, types = source
    outcomes, es, ts, ids = images.outcomes, images.es, images.ts, images.ids
    seen = np.zeros((SEEN_SIZE, 2), np.int64)
    asked = rules[0]["by_table"] << TABLE | rules[0]["by_database"] << DATABASE
    format, last_images = rules[0]["format"], rules[0]["last_images"] != 0
    has_texts = rules[0]["has_texts"] != 0
    for number in range(first, len(starts) - 1):
        outcomes[number] = UNUSUAL
        start, end = starts[number], starts[number + 1] - 1
        if format == DEBEZIUM:
            known = read_debezium(
                buffer, start, end, last_images, columns, names, data, old, seen, message
            )
        else:
            known = read_message(
                buffer, start, end, format, has_texts, columns, names, data, old, seen, message
            )
        if not known:
            continue
        if asked:
            if message[MET] & asked != asked:
                continue
            wanted = _check_table(buffer, message, rules, tables, known_names)
            if wanted < 0:
                return number, image, NEW_TABLE
            if wanted == 0:
                outcomes[number] = FILTERED
                continue
        own = _find_labels(buffer, message, labels, types)
        if own < 0:
            return number, image, NEW_LABELS
        sign, rows = message[SIGN], message[ROWS]
        row_tokens = old if format == DEBEZIUM and sign == -1 else data
        if not _convert_message(buffer, columns, row_tokens, old, message, rules, maxima, own):
            continue
        if image + 2 * rows > len(images.signs):
            return number, image, FULL
        image = _put_images(
            buffer, columns, used, text_rows, old, row_tokens, number, sign, rows, image, images
        )
        outcomes[number], images.labels[number] = GOOD, own
        es[number], ts[number], ids[number] = message[ES], message[TS], message[ID]
    return len(starts) - 1, image, DONE
