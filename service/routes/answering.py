"""What several routes share: their answers, tables, keys and headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from fastapi.responses import Response

from schemas.table.epoch import EpochRow
from service.live.follower import Follower
from service.live.results_index import no_epoch
from service.problems import Problem
from service.runtime import Runtime
from service.table.job_table import Key, Table, at_newest


def answer(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    headers = {"Cache-Control": "no-store"} | (headers or {})
    return Response(msgspec.json.encode(document), status, headers, "application/json")


Answer = TypeVar("Answer")


def read_table(runtime: Runtime, follower: Follower, look: Callable[[Table], Answer]) -> Answer:
    """Something from the table's newest version; not too many at once."""
    follower_has_epoch(follower)
    with runtime.table_reads.one():
        return at_newest(follower.places.table, look)


def follower_has_epoch(follower: Follower) -> None:
    with follower.index.reading():
        return


def newest_of(follower: Follower) -> EpochRow:
    if follower.newest is None:
        raise no_epoch()
    return follower.newest


def key_of(follower: Follower, raw: str) -> Key:
    """The group that the last part of an address names; the gate has kept it encoded."""
    try:
        text = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise Problem("key-invalid", 422, "the key is not UTF-8") from None
    return follower.shape.parse_key(text)


def of_epoch(epoch: int, watermark: int | None = None, **further: str) -> dict[str, str]:
    """The headers of what is true at an epoch."""
    headers = {"ETag": f'W/"{epoch}"', "X-Epoch": str(epoch), "Cache-Control": "no-cache"}
    if watermark is not None:
        headers["X-Watermark"] = str(watermark)
    return headers | further
