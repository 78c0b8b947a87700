"""The closed list of scalar functions: the arguments of each, and the type of its result.

The family of an argument is a type (`STRING`, `number`) or a literal. A literal determines the type
of the result, or is passed to Spark as it is. A function that can fail has no value for some
operands, and the row goes to quarantine; other functions have a value for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.core.plan.tree import Call, Constant, Expression
from jobs.core.plan.typing_rules import (
    INSTANTS,
    UNTYPED,
    TypeProblem,
    coerce,
    decimal_shape,
    require_computable,
    require_type,
    unify,
)
from schemas.limits import TEXT_CHARACTERS_MAX
from schemas.types.sql_types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DECIMAL_PRECISION_MAX,
    DOUBLE,
    INT,
    STRING,
    Kind,
    SqlType,
    decimal,
    timestamp,
)

# Units of time: some have a fixed length, others a number of months.
UNITS_US = {
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
UNITS_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
OF_DATES = ("DAY", "WEEK", *UNITS_MONTHS)

# JSON paths have members and elements, but no wildcards. Time formats have no words, zones or parts
# that depend on a locale.
_JSON_PATH = re.compile(r"\$(\.[A-Za-z_][A-Za-z0-9_]*|\[\d{1,9}\]|\['[^'\\]+'\])*")
TIME_FORMAT_PART = re.compile(
    r"yyyy(?!y)|MM(?!M)|dd(?!d)|HH(?!H)|mm(?!m)|ss(?!s)|S{1,6}(?!S)|'T'|[-/:., _]"
)
_TIME_FORMAT = re.compile(f"(?:{TIME_FORMAT_PART.pattern})+")


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of a scalar function, and the type of its result."""

    example: str
    families: tuple[str, ...]  # one for each argument; with `repeats` the last one repeats
    result_type: Callable[[tuple[Expression, ...]], SqlType]
    optional: int = 0  # arguments at the end that may be absent
    repeats: bool = False
    unify: bool = False  # convert the arguments to one type
    can_fail: bool = False  # for some operands; walk.node_can_fail has further cases


FAMILIES: dict[str, Callable[[SqlType], bool]] = {
    "STRING": lambda each: each == STRING,
    "number": lambda each: each.numeric,
    "TINYINT, SMALLINT or INT": lambda each: each.integer and each.kind is not Kind.BIGINT,
    "whole number": lambda each: each.integer,
    "DATE or TIMESTAMP": lambda each: each.kind in (Kind.DATE, *INSTANTS),
    "TIMESTAMP": lambda each: each.kind in INSTANTS,
    "value": lambda each: True,
    "number as DOUBLE": lambda each: each.numeric,
}

# Families of literals: the allowed values of a STRING or of a whole number.
CONSTANTS: dict[str, Callable[[object], bool]] = {
    "string literal": lambda value: isinstance(value, str),
    "non-empty string literal": lambda value: isinstance(value, str) and value != "",
    f"literal from 0 to {TEXT_CHARACTERS_MAX}": lambda value: (
        isinstance(value, int) and 0 <= value <= TEXT_CHARACTERS_MAX
    ),
    "unit of time, " + " ".join([*UNITS_US, *UNITS_MONTHS]): lambda value: (
        value in (*UNITS_US, *UNITS_MONTHS)
    ),
    "literal path such as '$.a.b[0]'": lambda value: (
        isinstance(value, str) and _JSON_PATH.fullmatch(value) is not None
    ),
    "literal format of yyyy MM dd HH mm ss S": lambda value: (
        isinstance(value, str) and _TIME_FORMAT.fullmatch(value) is not None
    ),
    "literal 0 (seconds) or 3 (milliseconds)": lambda value: value in (0, 3),
}
_TEXT, _SEPARATOR, _LENGTH, _UNIT, _PATH, _FORMAT, _PRECISION = CONSTANTS


def _first_type(arguments: tuple[Expression, ...]) -> SqlType:
    return arguments[0].type


def _whole_type(arguments: tuple[Expression, ...]) -> SqlType:
    source = arguments[0].type
    return decimal(source.precision or 1, 0) if source.kind is Kind.DECIMAL else source


def _rounded_type(arguments: tuple[Expression, ...]) -> SqlType:
    source = arguments[0].type
    digits = 0
    if len(arguments) > 1:
        if not isinstance(arguments[1], Constant) or not isinstance(arguments[1].value, int):
            raise TypeProblem("the second argument of ROUND must be a literal whole number")
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


def _truncated_type(arguments: tuple[Expression, ...]) -> SqlType:
    second = arguments[1] if len(arguments) > 1 else Constant(0, INT)
    kept = second.value if isinstance(second, Constant) else None
    if not isinstance(kept, int):
        raise TypeProblem("the second argument of TRUNCATE must be a literal whole number")
    source = arguments[0].type
    if source.floating:
        raise TypeProblem(
            "TRUNCATE needs a whole number or a DECIMAL, because the digits of a DOUBLE are not "
            "exact",
            "TRUNCATE(CAST(x AS DECIMAL(20, 6)), 2)",
        )
    precision, scale = decimal_shape(source)
    if source.integer or kept >= scale:
        return source
    kept = max(kept, 0)
    return decimal(max(precision - scale + kept, 1), kept)


def _moved_type(arguments: tuple[Expression, ...]) -> SqlType:
    """Return the type of a moment after arithmetic; a DATE has no unit finer than a day."""
    unit = arguments[0].value if isinstance(arguments[0], Constant) else None
    moment = arguments[-1].type
    if moment.kind is Kind.DATE:
        if unit not in OF_DATES:
            raise TypeProblem(f"a DATE has no {unit!r}", "CAST(d AS TIMESTAMP(3))")
        return moment
    if unit == "MILLISECOND" and (moment.precision or 0) < 3:
        return timestamp(3, local_zone=moment.kind is Kind.TIMESTAMP_LTZ)
    return moment


def _parsed_moment_type(arguments: tuple[Expression, ...]) -> SqlType:
    pattern = arguments[1].value if isinstance(arguments[1], Constant) else None
    return timestamp(6 if isinstance(pattern, str) and "SSSS" in pattern else 3)


def _always(sql_type: SqlType) -> Callable[[tuple[Expression, ...]], SqlType]:
    return lambda _: sql_type


def _text_function(example: str, arguments: int = 1) -> Signature:
    return Signature(example, ("STRING",) * arguments, _always(STRING))


FUNCTIONS: dict[str, Signature] = {
    "UPPER": _text_function("UPPER(s)"),
    "LOWER": _text_function("LOWER(s)"),
    "TRIM": _text_function("TRIM(s)"),
    "LTRIM": Signature("LTRIM(s, '0')", ("STRING", _SEPARATOR), _always(STRING), optional=1),
    "RTRIM": Signature("RTRIM(s, '0')", ("STRING", _SEPARATOR), _always(STRING), optional=1),
    "REPLACE": _text_function("REPLACE(s, search, replacement)", 3),
    "SUBSTRING": Signature(
        "SUBSTRING(s, from, length)",
        ("STRING", "TINYINT, SMALLINT or INT", "TINYINT, SMALLINT or INT"),
        _always(STRING),
        optional=1,
    ),
    "CONCAT": Signature("CONCAT(s, t)", ("STRING",), _always(STRING), repeats=True),
    "CHAR_LENGTH": Signature("CHAR_LENGTH(s)", ("STRING",), _always(INT)),
    "ABS": Signature("ABS(x)", ("number",), _first_type),
    "SIGN": Signature("SIGN(x)", ("number",), _whole_type),
    "FLOOR": Signature("FLOOR(x)", ("number",), _whole_type),
    "CEIL": Signature("CEIL(x)", ("number",), _whole_type),
    "ROUND": Signature(
        "ROUND(x, digits)", ("number", "TINYINT, SMALLINT or INT"), _rounded_type, optional=1
    ),
    "GREATEST": Signature("GREATEST(x, y)", ("value",), _first_type, repeats=True, unify=True),
    "LEAST": Signature("LEAST(x, y)", ("value",), _first_type, repeats=True, unify=True),
    "COALESCE": Signature("COALESCE(x, y)", ("value",), _first_type, repeats=True, unify=True),
    "LEFT": Signature("LEFT(s, 3)", ("STRING", "TINYINT, SMALLINT or INT"), _always(STRING)),
    "RIGHT": Signature("RIGHT(s, 3)", ("STRING", "TINYINT, SMALLINT or INT"), _always(STRING)),
    "BTRIM": Signature("BTRIM(s, 'xy')", ("STRING", _SEPARATOR), _always(STRING)),
    "REVERSE": _text_function("REVERSE(s)"),
    "REPEAT": Signature("REPEAT(s, 3)", ("STRING", _LENGTH), _always(STRING)),
    "LPAD": Signature("LPAD(s, 8, '0')", ("STRING", _LENGTH, _SEPARATOR), _always(STRING)),
    "RPAD": Signature("RPAD(s, 8, ' ')", ("STRING", _LENGTH, _SEPARATOR), _always(STRING)),
    "TRANSLATE": Signature("TRANSLATE(s, 'abc', 'xyz')", ("STRING", _TEXT, _TEXT), _always(STRING)),
    "SPLIT_INDEX": Signature(
        "SPLIT_INDEX(s, ',', 0)",
        ("STRING", _SEPARATOR, "TINYINT, SMALLINT or INT"),
        _always(STRING),
    ),
    "CONCAT_WS": Signature(
        "CONCAT_WS('-', s, t)", (_TEXT, "STRING"), _always(STRING), repeats=True
    ),
    "POSITION": Signature("POSITION(t IN s)", ("STRING", "STRING"), _always(INT)),
    "STARTSWITH": Signature("STARTSWITH(s, t)", ("STRING", "STRING"), _always(BOOLEAN)),
    "ENDSWITH": Signature("ENDSWITH(s, t)", ("STRING", "STRING"), _always(BOOLEAN)),
    "MD5": _text_function("MD5(s)"),
    "SHA256": _text_function("SHA256(s)"),
    "TRUNCATE": Signature(
        "TRUNCATE(x, 2)", ("number", "TINYINT, SMALLINT or INT"), _truncated_type, optional=1
    ),
    **{
        name: Signature(f"{name}(x)", ("number as DOUBLE",), _always(DOUBLE), can_fail=True)
        for name in ("SQRT", "EXP", "LN", "LOG10", "LOG2")
    },
    **{
        name: Signature(f"{name}(x, y)", ("number as DOUBLE",) * 2, _always(DOUBLE), can_fail=True)
        for name in ("POWER", "LOG")
    },
    # 1 if the grouping set lacks the key column; for several columns one bit each.
    "GROUPING": Signature("GROUPING(k)", ("value",), _always(BIGINT), repeats=True),
    **{
        part: Signature(f"{part}(d)", ("DATE or TIMESTAMP",), _always(BIGINT))
        for part in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAYOFYEAR", "DAYOFMONTH", "DAYOFWEEK")
    },
    **{
        part: Signature(f"{part}(t)", ("TIMESTAMP",), _always(BIGINT))
        for part in ("HOUR", "MINUTE", "SECOND")
    },
    "DATE_TRUNC": Signature("DATE_TRUNC('HOUR', t)", (_UNIT, "DATE or TIMESTAMP"), _moved_type),
    "TIMESTAMPADD": Signature(
        "TIMESTAMPADD(DAY, 1, t)",
        (_UNIT, "TINYINT, SMALLINT or INT", "DATE or TIMESTAMP"),
        _moved_type,
        can_fail=True,
    ),
    "TIMESTAMPDIFF": Signature(
        "TIMESTAMPDIFF(SECOND, t, u)",
        (_UNIT, "DATE or TIMESTAMP", "DATE or TIMESTAMP"),
        _always(BIGINT),
    ),
    "DATE_FORMAT": Signature(
        "DATE_FORMAT(t, 'yyyy-MM')", ("DATE or TIMESTAMP", _FORMAT), _always(STRING)
    ),
    "TO_DATE": Signature(
        "TO_DATE(s, 'dd.MM.yyyy')", ("STRING", _FORMAT), _always(DATE), can_fail=True
    ),
    "TO_TIMESTAMP": Signature(
        "TO_TIMESTAMP(s, 'yyyy-MM-dd HH:mm')",
        ("STRING", _FORMAT),
        _parsed_moment_type,
        can_fail=True,
    ),
    "TO_TIMESTAMP_LTZ": Signature(
        "TO_TIMESTAMP_LTZ(x, 3)",
        ("whole number", _PRECISION),
        _always(timestamp(3, local_zone=True)),
        can_fail=True,
    ),
    "JSON_VALUE": Signature("JSON_VALUE(s, '$.a')", ("STRING", _PATH), _always(STRING)),
    "JSON_QUERY": Signature("JSON_QUERY(s, '$.a')", ("STRING", _PATH), _always(STRING)),
    "JSON_EXISTS": Signature("JSON_EXISTS(s, '$.a')", ("STRING", _PATH), _always(BOOLEAN)),
}

SYNONYMS = {
    "SUBSTR": "SUBSTRING",
    "LENGTH": "CHAR_LENGTH",
    "LEN": "CHAR_LENGTH",
    "CHARACTER_LENGTH": "CHAR_LENGTH",
    "CEILING": "CEIL",
    "DAY": "DAYOFMONTH",
    "IFNULL": "COALESCE",
    "NVL": "COALESCE",
    "POW": "POWER",
    "GROUPING_ID": "GROUPING",
    "DOW": "DAYOFWEEK",
    "DOY": "DAYOFYEAR",
}


def make_call(function: str, arguments: Sequence[Expression]) -> Expression:
    """Return a call of a function, given by its name or a synonym."""
    name = SYNONYMS.get(function, function)
    signature = FUNCTIONS[name]
    most = len(signature.families)
    if len(arguments) < most - signature.optional or (
        len(arguments) > most and not signature.repeats
    ):
        message = f"wrong number of arguments ({len(arguments)}) for {function}"
        raise TypeProblem(message, signature.example)
    checked = [
        _check_argument(function, name, argument, signature.families[min(index, most - 1)])
        for index, argument in enumerate(arguments)
    ]
    typed = unify(checked, function) if signature.unify else tuple(map(require_type, checked))
    return Call(name, typed, signature.result_type(typed))


def _check_argument(function: str, name: str, argument: Expression, family: str) -> Expression:
    """Return an argument in the type that the function expects; raise TypeProblem if it fails."""
    if family in CONSTANTS:
        if not isinstance(argument, Constant) or not CONSTANTS[family](argument.value):
            raise TypeProblem(f"{function} needs a {family}", FUNCTIONS[name].example)
        return argument
    if argument.type == UNTYPED:
        types = {"STRING": STRING, "number as DOUBLE": DOUBLE, "TINYINT, SMALLINT or INT": INT}
        return Constant(None, types[family]) if family in types else argument
    if name not in ("COALESCE", "GROUPING"):
        require_computable(argument, function)
    if not FAMILIES[family](argument.type):
        hint = "CAST(x AS STRING)" if family == "STRING" else FUNCTIONS[name].example
        wanted = family.removesuffix(" as DOUBLE")
        raise TypeProblem(f"{function} needs a {wanted}, this is {argument.type}", hint)
    if family == "TINYINT, SMALLINT or INT":
        return coerce(argument, INT)
    return coerce(argument, DOUBLE) if family == "number as DOUBLE" else argument
