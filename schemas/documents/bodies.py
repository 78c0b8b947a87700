"""Bodies: what requests of the service have."""

from __future__ import annotations

from typing import Annotated

import msgspec

from schemas.table.epoch import Offsets
from schemas.types.json_types import JsonObject


class LoginBody(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class TicketBody(msgspec.Struct, forbid_unknown_fields=True):
    job: str


_NAME = {"pattern": "^[A-Za-z0-9]*[A-Za-z][A-Za-z0-9._-]{0,30}$"}


class SavepointBody(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(extra_json_schema=_NAME)] | None = None


class RewindBody(msgspec.Struct, forbid_unknown_fields=True):
    to: str | int


class CloneBody(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    to: str | int | None = None
    spec: JsonObject | None = None


class OffsetsBody(msgspec.Struct, forbid_unknown_fields=True):
    offsets: Offsets


class ReplayBody(msgspec.Struct, forbid_unknown_fields=True):
    message: str | None = None
    message_base64: str | None = None
    again: bool = False


class ReplayAllBody(msgspec.Struct, forbid_unknown_fields=True):
    ids: list[str]
    again: bool = False
