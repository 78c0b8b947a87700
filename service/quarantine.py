"""The quarantine of a job: messages that were not taken, with the reason and their bytes."""

from __future__ import annotations

import base64
import re
from datetime import datetime
from typing import Any

from service.problems import Problem
from service.table import QUARANTINE, Table

PREVIEW_BYTES = 1_024
_ID = re.compile(r"(\d{1,15})-([A-Za-z0-9._-]{1,249})-(\d{1,9})-(\d{1,18})", re.ASCII)
Place = tuple[int, str, int, int]  # epoch, topic, partition, offset

_COLUMNS = ["epoch", "topic", "partition", "offset"]


def place_of(identity: str) -> Place:
    """The place that an id names: EPOCH-TOPIC-PARTITION-OFFSET."""
    found = _ID.fullmatch(identity)
    if found is None:
        raise Problem("not-found", 404, "there is no such message in quarantine")
    epoch, topic, partition, offset = found.groups()
    return int(epoch), topic, int(partition), int(offset)


def messages(table: Table, after: Place | None, limit: int) -> list[dict[str, Any]]:
    """The oldest first, after a place; their bytes only begun."""
    found: list[dict[str, Any]] = []
    for file in table.of_part(QUARANTINE, -1 if after is None else after[0] - 1):
        if len(found) >= limit and file.epoch_min > _place(found[limit - 1])[0]:
            break  # files are in the order of their oldest epochs
        for row in table.read(file).to_pylist():
            if after is None or _place(row) > after:
                found.append(row)
        found.sort(key=_place)
        del found[limit:]
    return [_document(row, PREVIEW_BYTES) for row in found]


def message(table: Table, place: Place) -> dict[str, Any]:
    """One message, with all the bytes that were kept."""
    for file in table.of_part(QUARANTINE, place[0] - 1):
        if file.epoch_min <= place[0]:
            for row in table.read(file).to_pylist():
                if _place(row) == place:
                    return _document(row, None)
    raise Problem("not-found", 404, "there is no such message in quarantine")


def _place(row: dict[str, Any]) -> Place:
    return row["epoch"], row["topic"], row["partition"], row["offset"]


def _document(row: dict[str, Any], bytes_max: int | None) -> dict[str, Any]:
    raw: bytes | None = row["raw"]
    cut = raw
    if raw is not None and bytes_max is not None and len(raw) > bytes_max:
        cut = raw[:bytes_max]
    moment: datetime | None = row["time"]
    document = {
        "id": "-".join(str(part) for part in _place(row)),
        **{name: row[name] for name in _COLUMNS},
        "time": None if moment is None else int(moment.timestamp() * 1_000),
        "reason": row["reason"],
        "path": row["path"],
        "bytes": row["raw_bytes"],
        "cut": cut is not None and len(cut) < row["raw_bytes"],
    }
    if cut is None:
        return document | {"raw": None}
    try:
        return document | {"raw": cut.decode()}
    except UnicodeDecodeError as error:
        if raw is not cut and error.start >= len(cut) - 3:  # a character cut in two
            return document | {"raw": cut[: error.start].decode()}
        return document | {"raw_base64": base64.b64encode(cut).decode()}
