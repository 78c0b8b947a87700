"""Turn the text of a number, or of a moment, into a typed constant.

DATE '2026-01-31'    TIMESTAMP '...'    TIME '08:30:00'    ts > '2026-01-31 12:00:00'
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

from jobs.core.plan.tree import Constant, Expression
from jobs.core.plan.typing_rules import INSTANTS, TypeProblem, integer_constant
from jobs.core.values.json_values import parse
from schemas.types.sql_types import (
    DECIMAL_PRECISION_MAX,
    DOUBLE,
    MICROSECOND_PRECISION,
    STRING,
    TIME,
    Kind,
    SqlType,
    decimal,
    timestamp,
)

EPOCH = datetime(1970, 1, 1)

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MINUTE = re.compile(r"\d{2}:\d{2}", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2})?)?)(?:(?<=:\d\d:\d\d)\.(\d+))?"
    r"( ?(?:Z|[+-]\d{2}(?::?\d{2})?))?",
    re.ASCII,
)
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
    if not _DATE.fullmatch(text):
        raise TypeProblem(f"{text!r} is not a date", "DATE '2024-12-31'")
    try:
        return Constant((date.fromisoformat(text) - EPOCH.date()).days, SqlType(Kind.DATE))
    except ValueError as error:
        raise TypeProblem(f"{text!r} is not a date: {error}") from None


def time_literal(text: str) -> Constant:
    try:
        whole = f"{text}:00" if _MINUTE.fullmatch(text) else text
        return Constant(str(parse(whole, TIME)), TIME)
    except ValueError as error:
        raise TypeProblem(str(error), "TIME '23:59:59'") from None


def timestamp_literal(text: str, *, local_zone: bool = False) -> Constant:
    """Return the constant of TIMESTAMP 'text', with the precision of its fraction.

    With a local zone, which is UTC, the text may end with an offset."""
    match = _TIMESTAMP.fullmatch(text)
    offset = "" if match is None else (match[3] or "").strip()
    if match is None or (offset and not local_zone):
        raise TypeProblem(f"{text!r} is not a timestamp", "TIMESTAMP '2024-12-31 23:59:59.123'")
    fraction = match[2] or ""
    if len(fraction) > MICROSECOND_PRECISION:
        raise TypeProblem("a timestamp literal can have at most 6 fraction digits")
    try:
        moment = datetime.fromisoformat(match[1] + offset).replace(microsecond=0)
        if offset:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        raise TypeProblem(f"{text!r} is not a timestamp: {error}") from None
    micros = (moment - EPOCH) // timedelta(microseconds=1)
    micros += int(fraction.ljust(MICROSECOND_PRECISION, "0"))
    return Constant(micros, timestamp(len(fraction), local_zone=local_zone))


def read_beside(operands: Sequence[Expression]) -> list[Expression]:
    """Return operands of one operation; a text beside a moment is a literal of its kind.

    So it is compared as a moment, and a text that is none is refused with its place."""
    kinds = (each.type.kind for each in operands)
    kind = next((each for each in kinds if each in (Kind.DATE, Kind.TIME, *INSTANTS)), None)
    return [
        _moment_literal(each.value, kind)
        if kind and isinstance(each, Constant) and each.type == STRING
        else each
        for each in operands
    ]


def _moment_literal(text: object, kind: Kind) -> Constant:
    assert isinstance(text, str)
    if kind is Kind.DATE:
        return date_literal(text)
    if kind is Kind.TIME:
        return time_literal(text)
    return timestamp_literal(text, local_zone=kind is Kind.TIMESTAMP_LTZ)
