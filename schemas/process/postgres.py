"""What a statement of a PostgreSQL client has besides, and the frame of its messages."""

from __future__ import annotations

import struct

import msgspec

_SIZE = struct.Struct(">I")


class PostgresCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters of a statement, and the formats of its answer: 0 is text, 1 binary."""

    user: str
    types: tuple[int, ...] = ()  # OIDs of parameters, as far as the client names them
    # None: only describe the statement
    values: tuple[bytes | None, ...] | None = ()
    value_formats: tuple[int, ...] = ()
    formats: tuple[int, ...] = ()


def pack_message(kind: bytes, content: bytes = b"") -> bytes:
    """Return a message of PostgreSQL's protocol, version 3."""
    return kind + _SIZE.pack(_SIZE.size + len(content)) + content


def spread_formats(formats: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return a format for each of `count` values; raise ValueError if they do not fit."""
    spread = (formats or (0,)) * count if len(formats) < 2 else formats
    if len(spread) != count or not {0, 1}.issuperset(spread):
        raise ValueError(f"{len(formats)} formats do not fit {count} values")
    return spread
