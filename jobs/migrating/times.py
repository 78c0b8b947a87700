"""The time of a table's rows: WATERMARK FOR, and the computed or metadata column it is over.

ts AS TO_TIMESTAMP_LTZ(at, 3)    ──►  time: {column: at}, windows over at; elsewhere the expression
ts TIMESTAMP_LTZ(3) METADATA     ──►  time: kafka, es or ts; no windows
WATERMARK FOR ts AS ts - INTERVAL '5' SECOND  ──►  delay: 5s, exact: true
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from jobs.migrating.problems import Note, NotTakenError
from jobs.migrating.select_parts import quote_name, split_at, write
from jobs.migrating.statements import Table, TableColumn
from jobs.migrating.tokens import Token
from schemas.spec.duration import duration_text
from schemas.types.json_types import JsonObject

_UNITS_MS = {"SECOND": 1_000, "MINUTE": 60_000, "HOUR": 3_600_000, "DAY": 86_400_000}
METADATA = {
    "timestamp": "kafka",
    "event-timestamp": "es",
    "source.timestamp": "es",
    "ingestion-timestamp": "ts",
}
_TEXT_FORMATS = {"": "sql", "yyyy-MM-dd HH:mm:ss": "sql", "yyyy-MM-dd'T'HH:mm:ss": "iso"}
# The precision of a unit, as in SECOND(3), changes no value.
_INTERVAL = re.compile(
    rf"INTERVAL\s*'?(\d+(?:\.\d+)?)'?\s*({'|'.join(_UNITS_MS)})S?"
    r"\s*(?:\(\s*\d+\s*(?:,\s*\d+\s*)?\))?",
    re.I,
)
_NAME = r"(?:`([^`]+)`|(\w+))"
_FROM_MILLISECONDS = re.compile(rf"TO_TIMESTAMP_LTZ\s*\(\s*{_NAME}\s*,\s*3\s*\)", re.I)
_FROM_SECONDS = re.compile(rf"TO_TIMESTAMP_LTZ\s*\(\s*{_NAME}\s*,\s*0\s*\)", re.I)
_FROM_UNIXTIME = re.compile(
    rf"TO_TIMESTAMP\s*\(\s*FROM_UNIXTIME\s*\(\s*{_NAME}\s*(/\s*1000)?\s*"
    r"(?:,\s*'yyyy-MM-dd HH:mm:ss'\s*)?\)\s*(?:,\s*'yyyy-MM-dd HH:mm:ss'\s*)?\)",
    re.I,
)
_FROM_TEXT = re.compile(rf"TO_TIMESTAMP\s*\(\s*{_NAME}\s*(?:,\s*'((?:[^']|'')*)'\s*)?\)", re.I)
_CAST = re.compile(rf"CAST\s*\(\s*{_NAME}\s+AS\s+TIMESTAMP\s*(?:\(\s*[0-6]\s*\)\s*)?\)", re.I)


@dataclass(slots=True)
class RowTimes:
    """The watermark section of a table, and what its time column is in the spec."""

    section: JsonObject
    name: str  # of the column in Flink
    column: str | None = None  # of the spec, if windows are possible
    value: str = ""  # the time as an expression, if the column has it in milliseconds
    retyped: dict[str, str] = field(default_factory=dict)  # columns whose texts are times
    timestamp_format: str | None = None
    notes: dict[str, Note] = field(default_factory=dict)  # by key of the section
    offset: int = 0


def row_times(table: Table, types: Mapping[str, str]) -> RowTimes | None:
    """Return the times of a table's rows; None without WATERMARK FOR."""
    if table.watermark is None:
        return None
    name, expression, offset = table.watermark
    column = table.column(name)
    if column is None:
        raise NotTakenError(f"{name} is not a column of {table.name}", offset)
    times = RowTimes({}, name, offset=offset)
    if column.metadata is not None:
        times.section["time"] = _of_metadata(column)
    elif column.expression:
        _of_expression(times, column, types)
    else:
        times.section["time"] = {"column": name}
        times.column = name
    times.section |= {"delay": duration_text(_delay(expression, name, offset)), "exact": True}
    return times


def _of_metadata(column: TableColumn) -> str:
    key = (column.metadata or "").removeprefix("value.")
    if key not in METADATA:
        raise NotTakenError(f"the metadata {key!r} is no time of a message", column.offset)
    return METADATA[key]


def _of_expression(times: RowTimes, column: TableColumn, types: Mapping[str, str]) -> None:
    text = write(column.expression)
    found = _FROM_MILLISECONDS.fullmatch(text)
    unix = _FROM_UNIXTIME.fullmatch(text)
    if found is None and unix is not None and unix[3]:
        found = unix
        note = "Flink cuts this time to seconds, in the time zone of the session"
        times.notes["time"] = Note(note, True, column.offset)
    if found is not None and types.get(found[1] or found[2]) == "BIGINT":
        times.column = found[1] or found[2]
        times.section["time"] = {"column": times.column}
        base = quote_name(times.column)
        times.value = (
            f"TO_TIMESTAMP_LTZ({base}, 3)"
            if found.re is _FROM_MILLISECONDS
            else f"CAST(TO_TIMESTAMP_LTZ({base} / 1000, 0) AS TIMESTAMP(3))"
        )
        return
    seconds = _FROM_SECONDS.fullmatch(text) or unix
    if seconds is not None:
        times.section["time"] = {"expression": f"{seconds[1] or seconds[2]} * 1000"}
        return
    as_text = _FROM_TEXT.fullmatch(text) or _CAST.fullmatch(text)
    if as_text is not None:
        base = as_text[1] or as_text[2]
        pattern = as_text[3] if as_text.re is _FROM_TEXT else ""
        form = _TEXT_FORMATS.get((pattern or "").replace("''", "'"))
        if types.get(base) == "STRING" and form is not None:
            times.column, times.timestamp_format = base, form
            times.retyped[base] = "TIMESTAMP(3)"
            times.section["time"] = {"column": base}
            note = (
                f"in Flink a STRING, read by {text}; here a text that is no time is a bad message"
            )
            times.notes["column"] = Note(note, offset=column.offset)
            return
    times.section["time"] = {"expression": text}


def _delay(expression: Sequence[Token], name: str, offset: int) -> int:
    """Return the milliseconds of `ts - INTERVAL '5' SECOND - ..`, or 0 for `ts`."""
    column, *intervals = split_at("-", expression)
    is_time = len(column) == 1 and column[0].kind == "name" and column[0].value == name
    if is_time and all(each and each[0].word == "INTERVAL" for each in intervals):
        return sum(map(interval_ms, intervals))
    raise NotTakenError(
        "a watermark is the time column, or this column minus an INTERVAL; for others use "
        "watermark.generator",
        expression[0].offset if expression else offset,
    )


def interval_ms(tokens: Sequence[Token]) -> int:
    """Return the milliseconds of INTERVAL '5' SECOND."""
    found = _INTERVAL.fullmatch(write(tokens))
    if found is None:
        raise NotTakenError("write INTERVAL 'n' SECOND, MINUTE, HOUR or DAY", tokens[0].offset)
    milliseconds = Decimal(found[1]) * _UNITS_MS[found[2].upper()]
    if milliseconds != int(milliseconds):
        raise NotTakenError("an interval is whole milliseconds here", tokens[0].offset)
    return int(milliseconds)
