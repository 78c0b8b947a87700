"""Request ids: one name for a request in its answer and in every line of the log about it.

    X-Request-Id, or a new one ─┐
    traceparent, if it is one  ─┴─► the context of the request ─┬─► headers of the answer
                                                                └─► each line of the log

Threads that work for a request have its context. An id of a client is taken only if it cannot break
a line of the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from uuid import uuid4

import msgspec
from starlette.datastructures import Headers

from schemas.limits import REQUEST_ID_CHARACTERS_MAX
from schemas.types.moments import format_instant

_SANE = re.compile(rf"[A-Za-z0-9._:=+/-]{{1,{REQUEST_ID_CHARACTERS_MAX}}}", re.ASCII)
# https://www.w3.org/TR/trace-context: neither id may be zero, and there is no version ff.
_TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

_NONE: Mapping[str, str] = MappingProxyType({})
_ids: ContextVar[Mapping[str, str]] = ContextVar("request_ids", default=_NONE)


def enter_request(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Set the ids of the current request; return them as headers of its answer."""
    given, trace = headers.get("x-request-id", ""), headers.get("traceparent", "")
    ids = {"request_id": given if _SANE.fullmatch(given) else uuid4().hex}
    if _TRACE.fullmatch(trace):
        ids["traceparent"] = trace
    _ids.set(ids)
    return [
        (name.replace("request_id", "x-request-id").encode(), ids[name].encode()) for name in ids
    ]


def current_id() -> str:
    return _ids.get().get("request_id", "")


class TextFormat(logging.Formatter):
    """A line for people; those of a request end with its ids."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line without a stack trace."""
        ids = "".join(f" {name}={text}" for name, text in _ids.get().items())
        return super().formatMessage(record) + ids


class JsonFormat(logging.Formatter):
    """An object for programs, on one line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": format_instant(int(record.created * 1_000)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_ids.get(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()
