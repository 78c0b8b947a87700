"""Helpers of several routes: small bodies, responses, tables, keys and headers."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.responses import Response
from fastapi.routing import APIRoute

from jobs.reading.group_key import parse_key_text
from jobs.reading.version import Key
from schemas.directory.quarantine import MessagePosition, parse_message_id
from service.answers.history import raise_problems
from service.live.table import LiveTable
from service.problems import Problem

Body = TypeVar("Body", bound=msgspec.Struct)


def answer(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response."""
    headers = {"Cache-Control": "no-store"} | (headers or {})
    return Response(msgspec.json.encode(document), status, headers, "application/json")


def parse_key(live_table: LiveTable, raw: str) -> Key:
    """Return the key in the last segment of an address, which the gate has kept encoded."""
    try:
        text = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise Problem("key-invalid", "the key is not UTF-8") from None
    return parse_decoded_key(live_table, text)


def parse_decoded_key(live_table: LiveTable, text: str) -> Key:
    """Return the key that a text names; raise a Problem if it names none."""
    try:
        return parse_key_text(text, live_table.shape.group)
    except ValueError as error:
        raise Problem("key-invalid", str(error)) from None


def parse_message(identity: str) -> MessagePosition:
    """Return the position of a message from its id; raise a Problem if it is none."""
    with raise_problems():
        return parse_message_id(identity)


def make_epoch_headers(
    table_tag: str, epoch: int, watermark: int | None = None, **others: str
) -> dict[str, str]:
    """Return the headers of a response that is valid at an epoch of a table.

    A table that is made anew counts its epochs from 0 again.
    """
    tag = f'W/"{epoch}-{table_tag}"'
    headers = {"ETag": tag, "X-Epoch": str(epoch), "Cache-Control": "no-cache"}
    if watermark is not None:
        headers["X-Watermark"] = str(watermark)
    return headers | others


async def parse_body(request: Request, form: type[Body], empty: bytes = b"{}") -> Body:
    """Return the body as a struct; a missing body is an empty object."""
    try:
        return msgspec.json.decode(await request.body() or empty, type=form)
    except (msgspec.DecodeError, RecursionError) as error:
        reason = str(error)[:300]
        if "unknown field" in reason:
            reason = f"{reason}; known: {', '.join(form.__struct_fields__)}"
        raise make_body_problem("body", reason) from None


def make_body_problem(path: str, reason: str) -> Problem:
    """Return the problem of one field of a body."""
    return Problem("body-invalid", reason, errors={path: reason})


_SHOWN = 80  # characters of an unknown name in the message


async def require_known(request: Request) -> None:  # async: avoids a thread for it
    """Raise a Problem for a query parameter that the route does not have.

        GET /v1/jobs/items/results?asof=epoch:3 ──► 422: asof is unknown; known: as_of, cursor, ...

    An ignored parameter would silently change the meaning of a request.
    """
    if not request.scope["query_string"]:
        return
    route: APIRoute = request.scope["route"]
    known = sorted(_list_names(route.dependant))
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        detail = f"unknown parameter {unknown[0][:_SHOWN]!r}; known: {', '.join(known) or 'none'}"
        errors = {f"query.{name[:_SHOWN]}": "is unknown" for name in unknown}
        raise Problem("parameter-unknown", detail, errors=errors)


def _list_names(dependant: Dependant) -> set[str]:
    own = {each.alias for each in dependant.query_params}
    return own.union(*map(_list_names, dependant.dependencies))
