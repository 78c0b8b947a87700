"""Scalar functions: the closed list of those that exist, what each takes and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.core.plan import Call, Constant, Expression
from jobs.core.typing_rules import (
    INSTANTS,
    UNTYPED,
    TypeProblem,
    coerced,
    computable,
    decimal_shape,
    together,
    typed,
)
from schemas.types import BIGINT, DECIMAL_PRECISION_MAX, INT, STRING, Kind, SqlType, decimal


@dataclass(frozen=True, slots=True)
class Signature:
    """A scalar function: what each argument must be, and what comes out."""

    example: str
    takes: tuple[str, ...]  # families, one per argument; the last repeats when `repeats`
    gives: Callable[[tuple[Expression, ...]], SqlType]
    optional: int = 0
    repeats: bool = False
    meet: bool = False  # arguments are brought to one type


FAMILIES: dict[str, Callable[[SqlType], bool]] = {
    "STRING": lambda each: each == STRING,
    "number": lambda each: each.numeric,
    "integer": lambda each: each.integer and each.kind is not Kind.BIGINT,
    "DATE or TIMESTAMP": lambda each: each.kind in (Kind.DATE, *INSTANTS),
    "TIMESTAMP": lambda each: each.kind in INSTANTS,
    "value": lambda each: True,
}


def _same(arguments: tuple[Expression, ...]) -> SqlType:
    return arguments[0].type


def _whole(arguments: tuple[Expression, ...]) -> SqlType:
    source = arguments[0].type
    return decimal(source.precision or 1, 0) if source.kind is Kind.DECIMAL else source


def _rounded(arguments: tuple[Expression, ...]) -> SqlType:
    source = arguments[0].type
    digits = 0
    if len(arguments) > 1:
        if not isinstance(arguments[1], Constant) or not isinstance(arguments[1].value, int):
            raise TypeProblem("the second argument of ROUND must be a whole number, written out")
        digits = arguments[1].value
    if abs(digits) > DECIMAL_PRECISION_MAX:
        raise TypeProblem(f"ROUND takes at most {DECIMAL_PRECISION_MAX} digits")
    if source.kind is not Kind.DECIMAL:
        return source
    precision, scale = decimal_shape(source)
    if digits >= scale:
        return source
    kept = max(digits, 0)
    return decimal(min(DECIMAL_PRECISION_MAX, precision - scale + 1 + kept), kept)


def _always(sql_type: SqlType) -> Callable[[tuple[Expression, ...]], SqlType]:
    return lambda _: sql_type


def _text(example: str, arguments: int = 1) -> Signature:
    return Signature(example, ("STRING",) * arguments, _always(STRING))


FUNCTIONS: dict[str, Signature] = {
    "UPPER": _text("UPPER(s)"),
    "LOWER": _text("LOWER(s)"),
    "TRIM": _text("TRIM(s)"),
    "LTRIM": _text("LTRIM(s)"),
    "RTRIM": _text("RTRIM(s)"),
    "REPLACE": _text("REPLACE(s, search, replacement)", 3),
    "SUBSTRING": Signature(
        "SUBSTRING(s, from, length)", ("STRING", "integer", "integer"), _always(STRING), optional=1
    ),
    "CONCAT": Signature("CONCAT(s, t)", ("STRING",), _always(STRING), repeats=True),
    "CHAR_LENGTH": Signature("CHAR_LENGTH(s)", ("STRING",), _always(INT)),
    "ABS": Signature("ABS(x)", ("number",), _same),
    "SIGN": Signature("SIGN(x)", ("number",), _whole),
    "FLOOR": Signature("FLOOR(x)", ("number",), _whole),
    "CEIL": Signature("CEIL(x)", ("number",), _whole),
    "ROUND": Signature("ROUND(x, digits)", ("number", "integer"), _rounded, optional=1),
    "GREATEST": Signature("GREATEST(x, y)", ("value",), _same, repeats=True, meet=True),
    "LEAST": Signature("LEAST(x, y)", ("value",), _same, repeats=True, meet=True),
    "COALESCE": Signature("COALESCE(x, y)", ("value",), _same, repeats=True, meet=True),
    **{
        part: Signature(f"{part}(d)", ("DATE or TIMESTAMP",), _always(BIGINT))
        for part in ("YEAR", "MONTH", "DAYOFMONTH")
    },
    **{
        part: Signature(f"{part}(t)", ("TIMESTAMP",), _always(BIGINT))
        for part in ("HOUR", "MINUTE", "SECOND")
    },
}

SYNONYMS = {
    "SUBSTR": "SUBSTRING",
    "LENGTH": "CHAR_LENGTH",
    "CHARACTER_LENGTH": "CHAR_LENGTH",
    "CEILING": "CEIL",
    "DAY": "DAYOFMONTH",
    "IFNULL": "COALESCE",
    "NVL": "COALESCE",
}


def call(function: str, arguments: Sequence[Expression]) -> Expression:
    """A call of a function of the list, by its own name or a synonym."""
    name = SYNONYMS.get(function, function)
    signature = FUNCTIONS[name]
    most = len(signature.takes)
    if len(arguments) < most - signature.optional or (
        len(arguments) > most and not signature.repeats
    ):
        raise TypeProblem(f"{function} does not take {len(arguments)} arguments", signature.example)
    checked = []
    for index, argument in enumerate(arguments):
        family = signature.takes[min(index, most - 1)]
        if name != "COALESCE" and argument.type != UNTYPED:
            computable(argument, function)
        if argument.type != UNTYPED and not FAMILIES[family](argument.type):
            hint = "CAST(x AS STRING)" if family == "STRING" else signature.example
            raise TypeProblem(f"{function} needs a {family}, this is {argument.type}", hint)
        if family == "STRING" and argument.type == UNTYPED:
            argument = Constant(None, STRING)
        if family == "integer":
            argument = coerced(argument, INT)
        checked.append(argument)
    ready = together(checked, function) if signature.meet else tuple(map(typed, checked))
    return Call(name, ready, signature.gives(ready))
