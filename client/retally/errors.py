"""Errors: what the service refuses, and a service that does not answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RETRYABLE_STATUSES = (429, 502, 503, 504)


class RetallyError(Exception):
    """Any failure of this client."""


class Unreachable(RetallyError, ConnectionError):
    """The service does not answer, or the connection was lost."""


class Refused(RetallyError):
    """The service refused a request, as its problem+json document says.

    Programs decide by `code`, which never changes. `detail` and `advice` are for people.
    """

    def __init__(self, document: Mapping[str, Any], retry_after: float | None = None) -> None:
        self.document = dict(document)
        self.status = int(document.get("status", 0))
        self.code = str(document.get("code", "unknown"))
        self.detail = str(document.get("detail", ""))
        self.advice = str(document.get("advice", ""))
        self.retryable = bool(document.get("retryable", self.status in RETRYABLE_STATUSES))
        self.retry_after = retry_after  # seconds
        self.errors: list[dict[str, Any]] = list(document.get("errors", ()))
        lines = [f"{self.code}: {self.detail}"]
        for each in self.errors:
            place = ":".join(str(each[name]) for name in ("line", "path") if each.get(name))
            lines.append(f"  {place}: {each.get('message', '')}")
        super().__init__("\n".join([*lines, *([self.advice] if self.advice else [])]))


class Gap(Refused):
    """Changes after a position are no longer kept, so a stream cannot continue without a gap.

    Start again with a snapshot. `oldest` is the first epoch whose changes are kept; it is None if
    the table of the position was dropped.
    """

    @property
    def oldest(self) -> int | None:
        found: int | None = self.document.get("oldest")
        return found
