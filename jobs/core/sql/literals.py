"""Turn the text of a number, date or timestamp literal into a typed constant."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

from jobs.core.plan.tree import Constant
from jobs.core.plan.typing_rules import TypeProblem, integer_constant
from schemas.types.sql_types import (
    DECIMAL_PRECISION_MAX,
    DOUBLE,
    MICROSECOND_PRECISION,
    Kind,
    SqlType,
    decimal,
    timestamp,
)

EPOCH = datetime(1970, 1, 1)

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIMESTAMP = re.compile(r"(\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2})(?:\.(\d+))?")
_NUMBER = re.compile(r"(\d*)(?:\.(\d*))?([eE][+-]?\d+)?")


def number_literal(text: str) -> Constant:
    """Return a number as INT, BIGINT, DECIMAL, or with an exponent as DOUBLE."""
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        raise TypeProblem(f"{text!r} is not a number")
    whole, fraction, exponent = match[1].lstrip("0"), match[2] or "", match[3]
    if len(whole) + len(fraction) > DECIMAL_PRECISION_MAX:
        raise TypeProblem(f"a number can have at most {DECIMAL_PRECISION_MAX} digits")
    if exponent:
        value = float(text)
        if value == float("inf"):
            raise TypeProblem(f"{text} is beyond the range of DOUBLE")
        return Constant(value, DOUBLE)
    if not fraction:
        return integer_constant(int(whole or "0"))
    precision = len(whole) + len(fraction)
    return Constant(int(whole + fraction), decimal(precision, len(fraction)))


def date_literal(text: str) -> Constant:
    """Return the constant of DATE 'text'."""
    if not _DATE.fullmatch(text):
        raise TypeProblem(f"{text!r} is not a date", "DATE '2024-12-31'")
    try:
        return Constant((date.fromisoformat(text) - EPOCH.date()).days, SqlType(Kind.DATE))
    except ValueError as error:
        raise TypeProblem(f"{text!r} is not a date: {error}") from None


def timestamp_literal(text: str) -> Constant:
    """Return the constant of TIMESTAMP 'text', with the precision of its fraction."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise TypeProblem(f"{text!r} is not a timestamp", "TIMESTAMP '2024-12-31 23:59:59.123'")
    fraction = match[2] or ""
    if len(fraction) > MICROSECOND_PRECISION:
        raise TypeProblem("a timestamp literal can have at most 6 fraction digits")
    try:
        moment = datetime.fromisoformat(match[1])
    except ValueError as error:
        raise TypeProblem(f"{text!r} is not a timestamp: {error}") from None
    micros = (moment - EPOCH) // timedelta(microseconds=1)
    micros += int(fraction.ljust(MICROSECOND_PRECISION, "0"))
    return Constant(micros, timestamp(len(fraction)))
