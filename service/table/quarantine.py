"""The quarantine of a job: messages that were not taken, with the reason and their bytes."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

from jobs.core.job import refused_message as replaying
from jobs.core.job.refused_message import Place, identity_of
from schemas.table.replayed import read_replay
from service.moments import instant
from service.places import JobPlaces
from service.problems import Problem
from service.table.job_table import QUARANTINE, Table

PREVIEW_BYTES = 1_024
_COLUMNS = ["epoch", "topic", "partition", "offset"]


def place_of(identity: str) -> Place:
    """The place that an id names."""
    place = replaying.place_of(identity)
    if place is None:
        raise Problem("not-found", 404, "there is no such message in quarantine")
    return place


def with_replay(places: JobPlaces, document: dict[str, Any]) -> dict[str, Any]:
    """With what became of it: whether it was sent again, and as which offset."""
    sent = read_replay(places.replayed, document["id"])
    return document | {
        "replayed": None
        if sent is None
        else {
            "fixed": sent.fixed,
            "topic": sent.topic,
            "partition": sent.partition,
            "offset": sent.offset,
            "sent_at": instant(sent.sent_at),
        }
    }


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


def newest_messages(table: Table, before: Place | None, limit: int) -> list[dict[str, Any]]:
    """The newest first, before a place; their bytes only begun."""
    found: list[dict[str, Any]] = []
    files = sorted(table.of_part(QUARANTINE), key=lambda file: -file.epoch_max)
    for file in files:
        if before is not None and file.epoch_min > before[0]:
            continue
        if len(found) >= limit and file.epoch_max < _place(found[limit - 1])[0]:
            break
        for row in table.read(file).to_pylist():
            if before is None or _place(row) < before:
                found.append(row)
        found.sort(key=_place, reverse=True)
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
        "id": identity_of(_place(row)),
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
