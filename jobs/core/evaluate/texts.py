"""Texts of numbers, and upper and lower case, by rules that no version of Python changes.

1.0E10  0.001  NaN    a number as Java prints it, with the fewest digits that are the number
ß ─► SS, Σ ─► ς       Unicode's full case mapping, without rules of a language
'dd.MM.yyyy HH:mm'  ◄──►  31.01.2026 12:34      what a format lacks is that of 1970-01-01 00:00
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from jobs.core.plan.scalar_functions import TIME_FORMAT_PART
from jobs.core.values.float_values import shortest_float
from jobs.core.values.rounding import EvaluationError

# Cased letters that Unicode got after version 14, which Python 3.11 has: (upper, lower) ranges.
_LATER_LETTERS = (
    (0x1C89, 0x1C8A, 1),
    (0xA7CC, 0xA7CD, 1),
    (0xA7CE, 0xA7CF, 1),
    (0xA7D2, 0xA7D3, 1),
    (0xA7D4, 0xA7D5, 1),
    (0xA7DA, 0xA7DB, 1),
    (0x10D50, 0x10D70, 22),
    (0x16EA0, 0x16EBB, 25),
)
_TO_LOWER = {0xA7CB: 0x264, 0xA7DC: 0x19B} | {
    upper + i: lower + i for upper, lower, count in _LATER_LETTERS for i in range(count)
}
_TO_UPPER = {lower: upper for upper, lower in _TO_LOWER.items()}
_PLAIN_FROM, _PLAIN_UNTIL = -3, 7  # exponents of ten without an E


def upper(text: str) -> str:
    return text.upper() if text.isascii() else text.translate(_TO_UPPER).upper()


def lower(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_TO_LOWER).lower()


def double_text(value: float) -> str:
    """Return a DOUBLE as Java prints it since version 19: shortest, with at least two digits."""
    if value - value != 0:
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    if sum(map(str.isdigit, text.partition("e")[0].strip("-0."))) <= 1 and value:
        text = f"{value:.1e}"
    return _java_form(text)


def float_text(value: float) -> str:
    """Return a FLOAT, as a double, in the same form."""
    if value - value != 0 or not value:
        return double_text(value)
    short = shortest_float(value)
    digits = repr(short).partition("e")[0].strip("-0.").replace(".", "")
    return _java_form(f"{value:.1e}" if len(digits) <= 1 else repr(short))


def _java_form(text: str) -> str:
    """Return a decimal number in Java's notation: plain from 0.001 to 10,000,000, else with E."""
    sign = "-" if text.startswith("-") else ""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return f"{sign}0.0"
    zeros = len(whole + fraction) - len(digits)
    power = int(exponent or 0) + len(whole) - 1 - zeros  # of the first digit
    digits = digits.rstrip("0")
    if not _PLAIN_FROM <= power < _PLAIN_UNTIL:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    digits = digits.ljust(power + 1, "0")
    return f"{sign}{digits[: power + 1]}.{digits[power + 1 :] or '0'}"


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
