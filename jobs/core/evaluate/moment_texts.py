"""Moments as texts of a format, and back: DATE_FORMAT, TO_DATE, TO_TIMESTAMP.

'dd.MM.yyyy HH:mm'  ◄──►  31.01.2026 12:34      what a format lacks is that of 1970-01-01 00:00
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from jobs.core.plan.scalar_functions import TIME_FORMAT_PART
from jobs.core.values.rounding import EvaluationError

_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_FIELDS = {"y": "year", "M": "month", "d": "day", "H": "hour", "m": "minute", "s": "second"}
_FRACTION = "microsecond"


def moment_printer(form: str) -> Callable[[int], str]:
    """Return a function from microseconds since 1970 to a text of this format."""
    pattern = "".join(map(_print_pattern, TIME_FORMAT_PART.findall(form)))

    def print_moment(micros: int) -> str:
        moment = _EPOCH + timedelta(microseconds=micros)
        return pattern.format(moment, f"{moment.microsecond:06}")

    return print_moment


def moment_reader(form: str) -> Callable[[str], int]:
    """Return a function from a text of this format to microseconds since 1970.

    It raises EvaluationError for a text without all digits of a part, or one of a fraction."""
    parts = TIME_FORMAT_PART.findall(form)
    match = re.compile("".join(map(_read_pattern, parts)), re.ASCII).fullmatch
    names = [name for part in parts if (name := _field(part)) is not None]

    def read_moment(text: str) -> int:
        if (found := match(text)) is None:
            raise EvaluationError("there is no such value")
        known: dict[str, int] = {}
        for name, digits in zip(names, found.groups(), strict=True):
            number = int(digits.ljust(6, "0") if name == _FRACTION else digits)
            if known.setdefault(name, number) != number:
                raise EvaluationError("there is no such value")
        try:
            moment = _EPOCH.replace(**known)  # type: ignore[arg-type]
        except ValueError:
            raise EvaluationError("there is no such value") from None
        return (moment - _EPOCH) // _MICROSECOND

    return read_moment


def _field(part: str) -> str | None:
    """Return the field of a part; None if the part is a separator."""
    return _FRACTION if part[0] == "S" else _FIELDS.get(part[0])


def _print_pattern(part: str) -> str:
    field = _field(part)
    if field is None:
        return part.strip("'")
    return f"{{1:.{len(part)}}}" if field == _FRACTION else f"{{0.{field}:0{len(part)}}}"


def _read_pattern(part: str) -> str:
    field = _field(part)
    if field is None:
        return "[Tt]" if part == "'T'" else re.escape(part)
    # A fraction takes as many digits as it can, whatever follows.
    return rf"(\d{{1,{len(part)}}}+)" if field == _FRACTION else rf"(\d{{{len(part)}}})"
