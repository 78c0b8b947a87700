"""The time of a table's rows: WATERMARK FOR, and the computed or metadata column it is over.

ts AS TO_TIMESTAMP_LTZ(at, 3)    ──►  time: {column: at}, windows over at; elsewhere the expression
ts TIMESTAMP_LTZ(3) METADATA     ──►  time: kafka, es or ts; no windows
WATERMARK FOR ts AS ts - INTERVAL '5' SECOND  ──►  delay: 5s, exact: true
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from sqlglot import exp

from jobs.core.sql.dialect import Refusal
from jobs.migrating.dialect import FLINK, call, cast, column, place, write
from jobs.migrating.problems import Note
from jobs.migrating.statements import Table, TableColumn
from schemas.spec.duration import duration_text
from schemas.types.json_types import JsonObject

_UNITS_MS = {"SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
METADATA = {
    "timestamp": "kafka",
    "event-timestamp": "es",
    "source.timestamp": "es",
    "ingestion-timestamp": "ts",
}
# How an expression over the column x makes a time of it; without the format that is the default.
_SHAPES = {
    "TO_TIMESTAMP_LTZ(x, 3)": "milliseconds",
    "TO_TIMESTAMP_LTZ(x, 0)": "seconds",
    "TO_TIMESTAMP(FROM_UNIXTIME(x))": "seconds",
    "TO_TIMESTAMP(FROM_UNIXTIME(x / 1000))": "cut milliseconds",
    "TO_TIMESTAMP(x)": "sql",
    "TO_TIMESTAMP(x, 'yyyy-MM-dd''T''HH:mm:ss')": "iso",
    "CAST(x AS TIMESTAMP)": "sql",
}
_DIGITS = re.compile(r"AS TIMESTAMP\s*(\(\s*[0-6]\s*\))?\)$", re.I)
_NUMBER = re.compile(r"\d+(\.\d+)?")
_NOT_AN_INTERVAL = "write INTERVAL 'n' SECOND, MINUTE, HOUR or DAY"


@dataclass(slots=True)
class RowTimes:
    """The watermark section of a table, and what its time column is in the spec."""

    section: JsonObject
    name: str  # of the column in Flink
    column: str | None = None  # of the spec, if windows are possible
    value: exp.Expr | None = None  # the time, if the column has it in milliseconds
    retyped: dict[str, str] = field(default_factory=dict)  # columns whose texts are times
    timestamp_format: str | None = None
    notes: dict[str, Note] = field(default_factory=dict)  # by key of the section


def row_times(table: Table, types: Mapping[str, str]) -> RowTimes | None:
    """Return the times of a table's rows; None without WATERMARK FOR."""
    if table.watermark is None:
        return None
    name, delay, offset = table.watermark
    found = table.column(name)
    if found is None:
        raise Refusal(f"{name} is not a column of {table.name}", offset)
    times = RowTimes({}, name)
    if found.metadata is not None:
        times.section["time"] = _of_metadata(found)
    elif found.expression is not None:
        _of_expression(times, found, found.expression, types)
    else:
        times.section["time"] = {"column": name}
        times.column = name
    times.section |= {"delay": duration_text(_delay(delay, name)), "exact": True}
    return times


def _of_metadata(column: TableColumn) -> str:
    key = (column.metadata or "").removeprefix("value.")
    if key not in METADATA:
        raise Refusal(f"the metadata {key!r} is no time of a message", column.offset)
    return METADATA[key]


def _of_expression(
    times: RowTimes, computed: TableColumn, tree: exp.Expr, types: Mapping[str, str]
) -> None:
    base = tree.find(exp.Column)
    shape, name = _shape_of(tree), base.name if base is not None else ""
    if shape in ("milliseconds", "cut milliseconds") and types.get(name) == "BIGINT":
        times.column, times.section["time"], times.value = name, {"column": name}, tree
        if shape == "cut milliseconds":
            note = "Flink cuts this time to seconds, in the time zone of the session"
            times.notes["time"] = Note(note, True, computed.offset)
            seconds = exp.Div(this=column(name), expression=exp.Literal.number(1000))
            times.value = cast(call("TO_TIMESTAMP_LTZ", seconds, 0), "TIMESTAMP(3)")
    elif shape in ("seconds", "cut milliseconds"):
        times.section["time"] = {"expression": f"{write(column(name))} * 1000"}
    elif shape in ("sql", "iso") and types.get(name) == "STRING":
        times.column, times.timestamp_format = name, shape
        times.retyped[name] = "TIMESTAMP(3)"
        times.section["time"] = {"column": name}
        note = (
            f"in Flink a STRING, read by {write(tree)}; here a text that is no time is a bad "
            "message"
        )
        times.notes["column"] = Note(note, offset=computed.offset)
    else:
        times.section["time"] = {"expression": write(tree)}


def _shape_of(tree: exp.Expr) -> str | None:
    """Return how an expression makes a time of one column, if it is a known one."""
    shape = tree.transform(lambda each: exp.Var(this="x") if isinstance(each, exp.Column) else each)
    text = shape.sql(dialect=FLINK, comments=False).replace(", 'yyyy-MM-dd HH:mm:ss'", "")
    return _SHAPES.get(_DIGITS.sub("AS TIMESTAMP)", text))


def _delay(expression: exp.Expr, name: str) -> int:
    """Return the milliseconds of `ts - INTERVAL '5' SECOND - ..`, or 0 for `ts`."""
    total, left = 0, expression
    while isinstance(left, exp.Sub | exp.Add) and isinstance(left.expression, exp.Interval):
        if isinstance(left, exp.Add):
            first = min(map(place, expression.find_all(exp.Interval)))
            raise Refusal(_NOT_AN_INTERVAL, first)
        total, left = total + interval_ms(left.expression), left.this
    if isinstance(left, exp.Column) and left.name == name:
        return total
    reason = (
        "a watermark is the time column, or this column minus an INTERVAL; for others use "
        "watermark.generator"
    )
    raise Refusal(reason, place(expression))


def interval_ms(interval: exp.Interval) -> int:
    """Return the milliseconds of INTERVAL '5' SECOND."""
    unit, value = interval.args.get("unit"), interval.this
    # The precision of a unit, as in SECOND(3), changes no value.
    word = unit.name.upper().removesuffix("S") if isinstance(unit, exp.Var | exp.Anonymous) else ""
    if word not in _UNITS_MS or not _NUMBER.fullmatch(value.name if value else ""):
        raise Refusal(_NOT_AN_INTERVAL, place(interval))
    milliseconds = Decimal(value.name) * _UNITS_MS[word]
    if milliseconds != int(milliseconds):
        raise Refusal("an interval is whole milliseconds here", place(interval))
    return int(milliseconds)
