"""Print the expressions of a plan as SQL that parses to the same expressions."""

from __future__ import annotations

import re
from datetime import date, timedelta

from jobs.core.plan import tree
from jobs.core.sql.aggregate_printer import call_text
from jobs.core.sql.grouping_sets import split_set_key
from jobs.core.sql.literals import EPOCH
from schemas.types.sql_types import Kind

# Largest first: `interval_sql` uses the largest unit that divides the length exactly.
INTERVAL_UNITS_MS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000}
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_PRECEDENCE = {"OR": 1, "AND": 2, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_NOT, _PREDICATE, _SIGN, _LEAF = 3, 4, 7, 9


def expression_sql(expression: tree.Expression, of: tree.Plan | None = None) -> str:
    """Return an expression as SQL that parses to the same expression.

    An expression over a plan's results needs the plan as `of`."""
    return _sql(expression, of)[0]


def _parenthesize(expression: tree.Expression, least: int, of: tree.Plan | None) -> str:
    text, precedence = _sql(expression, of)
    return text if precedence >= least else f"({text})"


def _sql(expression: tree.Expression, of: tree.Plan | None) -> tuple[str, int]:
    """Return the text, and the precedence of its outermost operator."""
    match expression:
        case tree.Column():
            return ".".join(map(identifier_sql, expression.name.split("."))), _LEAF
        case tree.Constant():
            return _constant_sql(expression)
        case tree.Cast():
            word = "TRY_CAST" if expression.lenient else "CAST"
            return f"{word}({expression_sql(expression.operand, of)} AS {expression.type})", _LEAF
        case tree.Arithmetic() | tree.Logical():
            strength = _PRECEDENCE[expression.op]
            left = _parenthesize(expression.left, strength, of)
            return (
                f"{left} {expression.op} {_parenthesize(expression.right, strength + 1, of)}",
                strength,
            )
        case tree.Negate():
            return f"-{_parenthesize(expression.operand, _LEAF, of)}", _SIGN
        case tree.Compare():
            left = _parenthesize(expression.left, _PREDICATE + 1, of)
            right = _parenthesize(expression.right, _PREDICATE + 1, of)
            return f"{left} {expression.op} {right}", _PREDICATE
        case tree.Not():
            return f"NOT {_parenthesize(expression.operand, _PREDICATE, of)}", _NOT
        case tree.IsNull():
            return f"{_parenthesize(expression.operand, _PREDICATE + 1, of)} IS NULL", _PREDICATE
        case tree.In():
            choices = ", ".join(expression_sql(each, of) for each in expression.choices)
            return (
                f"{_parenthesize(expression.operand, _PREDICATE + 1, of)} IN ({choices})",
                _PREDICATE,
            )
        case tree.Like():
            escape = f" ESCAPE {string_sql(expression.escape)}" if expression.escape else ""
            operand = _parenthesize(expression.operand, _PREDICATE + 1, of)
            return f"{operand} LIKE {string_sql(expression.pattern)}{escape}", _PREDICATE
        case tree.Case() if (in_some := split_set_key(expression)) is not None:
            return _sql(in_some[1], of)
        case tree.Case():
            whens = "".join(
                f" WHEN {expression_sql(when, of)} THEN {expression_sql(value, of)}"
                for when, value in expression.branches
            )
            rest = expression.otherwise
            last = "" if rest is None else f" ELSE {expression_sql(rest, of)}"
            return f"CASE{whens}{last} END", _LEAF
        case tree.Call(function="GROUP_ID"):
            return "GROUP_ID()", _LEAF
        case tree.Call():
            arguments = ", ".join(expression_sql(each, of) for each in expression.arguments)
            return f"{expression.function}({arguments})", _LEAF
        case tree.Composite():
            return f"ROW({', '.join(map(expression_sql, expression.parts))})", _LEAF
        case tree.WindowBound():
            return window_sql(expression.window, "_END" if expression.end else "_START"), _LEAF
        case tree.SetNumber():
            raise AssertionError("SQL has no name for the number of a grouping set")
        case tree.KeyValue():
            return _sql(of.group[expression.index].expression, None) if of else ("key", _LEAF)
        case tree.AggregateValue():
            return (aggregate_sql(of, of.aggregates[expression.index]) if of else "?"), _LEAF


def window_sql(window: tree.Window, bound: str = "") -> str:
    """Return a window as in GROUP BY, or with `bound` one of its bounds as in SELECT."""
    several = window.function in ("HOP", "CUMULATE")
    lengths = [window.slide_ms, window.size_ms] if several else [window.size_ms]
    lengths += [window.offset_ms] if window.offset_ms else []
    arguments = ", ".join([identifier_sql(window.time.name), *map(interval_sql, lengths)])
    return f"{window.function}{bound}({arguments})"


def interval_sql(milliseconds: int) -> str:
    """Return a length of time in the largest unit that divides it exactly, else in seconds."""
    for unit, length in INTERVAL_UNITS_MS.items():
        if milliseconds % length == 0:
            return f"INTERVAL '{milliseconds // length}' {unit}"
    return f"INTERVAL '{milliseconds // 1000}.{milliseconds % 1000:03}' SECOND"


def identifier_sql(name: str) -> str:
    """Return a name, in backticks unless it is a plain word."""
    plain = PLAIN_NAME.fullmatch(name) and name.upper() not in _WORDS
    return name if plain else "`" + name.replace("`", "``") + "`"


# Words that the parser does not accept as names.
_KEYWORDS = """
    ALL AND ANY AS ASC BETWEEN BY CASE CAST CROSS CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP
    CURRENT_USER DATE DESC DISTINCT ELSE END ESCAPE EXCEPT EXISTS EXTRACT FALSE FETCH FILTER FOR
    FROM FULL GROUP HAVING IF IN INNER INTERSECT INTERVAL INTO IS ISNULL JOIN LATERAL LEFT LIKE
    LIMIT LOCALTIME LOCALTIMESTAMP MAP NATURAL NOT NOTNULL NULL OFFSET ON OR ORDER OUTER OVER
    PARTITION QUALIFY RIGHT ROW ROWS SELECT SET SOME STRUCT TABLE THEN TIME TIMESTAMP TIMESTAMPTZ
    TIMESTAMP_LTZ TRUE UNION UNNEST USING VALUES WHEN WHERE WINDOW WITH XOR DIV ILIKE RLIKE
    REGEXP GLOB OVERLAPS SIMILAR
"""
_WORDS = frozenset(_KEYWORDS.split()) | {*Kind, "TEXT", "JSON", "ARRAY"}


def string_sql(text: str) -> str:
    """Return a string literal."""
    return "'" + text.replace("'", "''") + "'"


def _constant_sql(constant: tree.Constant) -> tuple[str, int]:
    value, sql_type = constant.value, constant.type
    if value is None:
        return f"CAST(NULL AS {sql_type})", _LEAF
    if isinstance(value, bool):
        return str(value).upper(), _LEAF
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'", _LEAF
    if isinstance(value, str):
        return ("TIME " if sql_type.kind is Kind.TIME else "") + string_sql(value), _LEAF
    if isinstance(value, float):
        text = repr(value)
        return text if "e" in text else text + "e0", _LEAF if value >= 0 else _SIGN
    if sql_type.kind is Kind.DATE:
        return f"DATE '{date(1970, 1, 1) + timedelta(days=value)}'", _LEAF
    if sql_type.kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_LTZ):
        moment = EPOCH + timedelta(microseconds=value)
        fraction = f"{moment.microsecond:06}"[: sql_type.precision]
        stamp = moment.isoformat(" ", "seconds") + (f".{fraction}" if fraction else "")
        return f"{sql_type.kind} '{stamp}'", _LEAF
    digits = str(abs(value)).rjust((sql_type.scale or 0) + 1, "0")
    if sql_type.scale:
        digits = f"{digits[: -sql_type.scale]}.{digits[-sql_type.scale :]}"
    return ("-" + digits, _SIGN) if value < 0 else (digits, _LEAF)


def aggregate_sql(plan: tree.Plan, aggregate: tree.Aggregate) -> str:
    """Return an aggregate as the query calls it."""
    index = aggregate.argument
    argument = None if index is None else plan.arguments[index].expression
    return call_text(aggregate, argument, expression_sql)


def aggregate_label(plan: tree.Plan, aggregate: tree.Aggregate, suffix: str = "") -> str:
    """Return an aggregate for people, with the name of a plain argument instead of its text."""
    if aggregate.argument is None:
        return call_text(aggregate, None, expression_sql, suffix=suffix)
    named = plan.arguments[aggregate.argument]
    return call_text(aggregate, named.expression, expression_sql, name=named.name, suffix=suffix)
