"""What a message says, without what differs when its source sends it again.

canal      {"data": [..], "es": .., "id": 12, "pkNames": ["id"], "ts": ..}       id and ts differ
Debezium   {"after": {..}, "source": {"pos": 4, "row": 0, ..}, "ts_ms": ..}      ts_.. differ
"""

from __future__ import annotations

import re
from hashlib import blake2b

# canal writes the values of rows as texts, so these numbers are those of the message.
_CANAL_KEYED = re.compile(rb'"pkNames"\s*:\s*\[')
_CANAL_DIFFERS = re.compile(rb'"(?:id|ts)"\s*:\s*\d+')
_DEBEZIUM_PLACED = re.compile(rb'"(?:pos|lsn)"\s*:\s*\d')
_DEBEZIUM_DIFFERS = re.compile(rb'"ts_(?:ms|us|ns)"\s*:\s*\d+')


def number_content(format: str, key: bytes | None, value: bytes | None) -> int | None:
    """Return a number of 64 bits that messages with the same content have.

    None: the source may send two such messages that are two changes, as of a table without a key.
    """
    if value is None:
        return None
    if format == "canal-json" and _CANAL_KEYED.search(value):
        content = _CANAL_DIFFERS.sub(b"", value)
    elif format == "debezium-json" and key is not None and _DEBEZIUM_PLACED.search(value):
        content = _DEBEZIUM_DIFFERS.sub(b"", value)
    else:
        return None
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big", signed=True)
