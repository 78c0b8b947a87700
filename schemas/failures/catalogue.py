"""The catalogue of failures: what each code means, and what a person does.

    catalogue.yaml ──► failure.json, the supervisor   whether a job starts again
                   ──► problem+json                   status, title, retryable, advice
                   ──► the console's pages, docs/troubleshooting.md

Programs decide by the code, which never changes. The texts are Markdown, with links to documents
beside docs/troubleshooting.md.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
UNKNOWN = "failed"  # the code of an exception without one


class FailureKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    meaning: str
    advice: str
    retryable: bool = False  # the same start or request may succeed later
    ends_job: bool = False
    status: tuple[int, ...] = ()  # of refused requests; the first is the usual one
    title: str = ""  # of refused requests

    @property
    def plain_advice(self) -> str:
        """The advice without Markdown."""
        return _LINK.sub(r"\1", self.advice).replace("`", "")

    @property
    def text(self) -> str:
        """Meaning and advice as sentences without Markdown."""
        meaning = _LINK.sub(r"\1", self.meaning).replace("`", "")
        return f"{meaning[0].upper()}{meaning[1:]}. {self.plain_advice}"


class CodedError(Exception):
    """An exception with a code of the catalogue: `class Fenced(CodedError, code="fenced")`."""

    code: str = UNKNOWN

    def __init_subclass__(cls, code: str | None = None) -> None:
        cls.code = code or cls.code


@cache
def failure_kinds() -> dict[str, FailureKind]:
    """Return the catalogue by code."""
    text = Path(__file__).with_name("catalogue.yaml").read_bytes()
    return msgspec.yaml.decode(text, type=dict[str, FailureKind])


def is_retryable(code: str) -> bool:
    """Return whether another attempt may succeed; an unknown code is of another version."""
    kind = failure_kinds().get(code)
    return kind is None or kind.retryable
