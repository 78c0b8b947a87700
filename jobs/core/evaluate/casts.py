"""Casts over a group's results, in plain Python, as in `jobs.edge.spark.expression_values`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from jobs.core.values.exact_numbers import FLOAT_UNIT_BITS, rounded_double, rounded_float
from jobs.core.values.rounding import Failed, fitted, in_range
from schemas.types.sql_types import BIGINT, BOOLEAN, STRING, Kind, SqlType, integer_range

Conversion = Callable[[Any], Any]
_DAY_US = 86_400_000_000
_INSTANTS = (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ)
_EPOCH = datetime(1970, 1, 1)


def no_conversion(source: SqlType, target: SqlType) -> str | None:
    """Why a cast that exists over rows does not exist here."""
    if source == STRING and target.kind is not Kind.BINARY:
        return "text is read by Spark alone; CAST inside the aggregate"
    if source.floating and target == STRING:
        return "the digits of a FLOAT are written by Spark alone"
    return None


def conversion(source: SqlType, target: SqlType) -> Conversion:
    """The cast between two types of a value that is not NULL; it raises Failed."""
    if target == STRING:
        return _to_text(source)
    if target.kind is Kind.BINARY:
        return lambda value: value.encode()
    if source.kind in (Kind.DATE, *_INSTANTS):
        return _moment(source, target)
    if target == BOOLEAN:
        return lambda value: value != 0
    if source == BOOLEAN:
        source = BIGINT  # as 1 and 0
        return lambda value: conversion(BIGINT, target)(int(value))
    if source.floating:
        return _from_float(source, target)
    return _from_exact(source.scale or 0, target)


def _from_exact(scale: int, target: SqlType) -> Conversion:
    unit = 10**scale
    if target.integer:
        return lambda value: in_range(value // unit if value >= 0 else -(-value // unit), target)
    if target.floating:
        nearest = rounded_float if target.kind is Kind.FLOAT else rounded_double
        return lambda value: nearest(value << FLOAT_UNIT_BITS, unit)
    return lambda value: fitted(value, scale, target)


def _from_float(source: SqlType, target: SqlType) -> Conversion:
    if target.floating:
        return _to_float if target.kind is Kind.FLOAT else float
    if target.integer:
        return lambda value: _truncated(value, target)

    def units(value: float) -> int:
        if value - value != 0:  # NaN or infinite
            raise Failed(f"does not fit {target}")
        _, digits, exponent = Decimal(repr(value)).as_tuple()
        assert isinstance(exponent, int)
        number = int("".join(map(str, digits))) * (-1 if value < 0 else 1)
        if exponent > 0:
            number, exponent = number * 10**exponent, 0
        return fitted(number, -exponent, target)

    return units


def _to_float(value: float) -> float:
    if value - value != 0:
        return value
    numerator, denominator = value.as_integer_ratio()
    rounded = rounded_float(numerator << FLOAT_UNIT_BITS, denominator)
    if rounded - rounded != 0:
        raise Failed("does not fit FLOAT")
    return rounded


def _truncated(value: float, target: SqlType) -> int:
    if value - value != 0:
        raise Failed(f"does not fit {target}")
    whole = int(value)
    high = integer_range(target)[1]
    if target == BIGINT and whole == high + 1:  # the double next to the largest BIGINT is above it
        return high
    return in_range(whole, target)


def _moment(source: SqlType, target: SqlType) -> Conversion:
    if target.kind is Kind.DATE:
        return lambda value: value // _DAY_US
    if source.kind is Kind.DATE:
        return lambda value: value * _DAY_US
    unit = 10 ** (6 - (target.precision or 0))
    return lambda value: value - value % unit


def _to_text(source: SqlType) -> Conversion:
    if source == BOOLEAN:
        return lambda value: "TRUE" if value else "FALSE"
    if source.kind is Kind.BINARY:
        return _decoded
    if source.kind is Kind.DATE:
        return lambda value: (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    if source.kind in _INSTANTS:
        return lambda value: stamp_text(value, source.precision or 0)
    if source.scale:
        return lambda value: _decimal_text(value, source.scale or 0)
    return str


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Failed("the bytes are no UTF-8 text") from None


def stamp_text(micros: int, precision: int) -> str:
    moment = _EPOCH + timedelta(microseconds=micros)
    fraction = f".{moment.microsecond:06}"[: precision + 1] if precision else ""
    return moment.isoformat(" ", "seconds") + fraction


def _decimal_text(units: int, scale: int) -> str:
    digits = str(abs(units)).rjust(scale + 1, "0")
    return f"{'-' if units < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"
