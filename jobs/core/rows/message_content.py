"""What a message says, without what differs when its source sends it again.

canal      {"data": [..], "es": .., "id": 12, "pkNames": ["id"], "ts": ..}       id and ts differ
Debezium   {"after": {..}, "source": {"pos": 4, "row": 0, ..}, "ts_ms": ..}      ts_.. differ
Maxwell    {"data": {..}, "ts": .., "type": "insert", "xid": 23}                 nothing differs
"""

from __future__ import annotations

import re
from hashlib import blake2b

# canal writes the values of rows as texts, so these numbers are those of the message.
_CANAL_KEYED = re.compile(rb'"pkNames"\s*:\s*\[')
_DEBEZIUM_PLACED = re.compile(rb'"(?:pos|lsn)"\s*:\s*\d')
_DIFFERS = {
    "canal-json": re.compile(rb'"(?:id|ts)"\s*:\s*\d+'),
    "debezium-json": re.compile(rb'"ts_(?:ms|us|ns)"\s*:\s*\d+'),
}


def number_content(format: str, key: bytes | None, value: bytes | None) -> int | None:
    """Return the number of a message that is one change; None if two changes may have it.

    The source may send two equal messages that are two changes, as of a table without a key.
    """
    if value is None or not _is_one_change(format, key, value):
        return None
    return number_message(format, value)


def number_message(format: str, value: bytes) -> int:
    """Return a number of 64 bits that messages with the same content have."""
    differs = _DIFFERS.get(format)
    content = value if differs is None else differs.sub(b"", value)
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big", signed=True)


def _is_one_change(format: str, key: bytes | None, value: bytes) -> bool:
    if format == "canal-json":
        return _CANAL_KEYED.search(value) is not None
    if format == "maxwell-json":
        return key is not None and b'"pk.' in key and b'"xid"' in value
    placed = format == "debezium-json" and _DEBEZIUM_PLACED.search(value) is not None
    return placed and key is not None
