"""Addresses: paths, keys, times and specs as the REST API writes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote as quote_all

from retally.http import encode_json

Spec = str | bytes | Mapping[str, Any] | Path
Key = Any  # the value of the group column, or a dict of all group columns
AsOf = int | datetime | str  # an epoch, a time, or epoch:N, time:T, watermark:T
Offset = str  # PARTITION:OFFSET or TOPIC/PARTITION:OFFSET


def quote(text: str) -> str:
    """Return text as one segment of a path; `.` and `..` would otherwise leave it."""
    return text.replace(".", "%2E") if text in (".", "..") else quote_all(text, safe="")


def job_path(name: str) -> str:
    return f"/v1/jobs/{quote(name)}"


def message_path(name: str, message: str) -> str:
    return f"{job_path(name)}/quarantine/{quote(message)}"


def group_path(name: str, key: Key) -> str:
    if key is None or key == "":  # as text it would be the group None, or another address
        raise ValueError(f"name the column of the key {key!r}, as in {{'name': {key!r}}}")
    return f"{job_path(name)}/results/{quote(format_key(key))}"


def format_key(key: Key) -> str:
    """Return a key as addresses write it: a single value as text, or an object as JSON."""
    if isinstance(key, Mapping):
        return encode_json(key).decode()
    return "true" if key is True else "false" if key is False else str(key)


def format_moment(
    as_of: AsOf | None = None,
    min_epoch: int | None = None,
    after_offset: Offset | None = None,
    wait: float | None = None,
) -> dict[str, Any]:
    if isinstance(as_of, datetime):
        if as_of.tzinfo is None:
            raise ValueError("a time needs a zone, such as datetime.now(UTC)")
        as_of = f"time:{as_of.isoformat()}"
    elif isinstance(as_of, int):
        as_of = f"epoch:{as_of}"
    return {"as_of": as_of, "min_epoch": min_epoch, "after_offset": after_offset, "wait": wait}


def encode_spec(spec: Spec) -> bytes:
    if isinstance(spec, Path):
        return spec.read_bytes()
    if isinstance(spec, bytes):
        return spec
    return spec.encode() if isinstance(spec, str) else encode_json(spec)
