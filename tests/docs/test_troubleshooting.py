"""docs/troubleshooting.md has every code and invents none; its reasons are what messages get."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.cli import main as command
from jobs.core.formats.debezium_fields import Modes
from jobs.core.formats.registry import MessageRules
from jobs.core.plan.tree import Column
from jobs.core.values.change import Rejected, Truncated
from schemas.failures.catalogue import UNKNOWN, FailureKind, failure_kinds
from schemas.types.sql_types import SqlType
from tests.docs.documents import rows_of, text
from tests.support.documents import CHECKOUT

PAGE = "troubleshooting.md"


def sources(*folders: str) -> str:
    paths = [path for folder in folders for path in (CHECKOUT / folder).rglob("*.py")]
    return "".join(path.read_text(encoding="utf-8") for path in sorted(paths))


def with_rows(page: str, heading: str, rows: list[str]) -> str:
    """Return the page with other rows in the first table below a heading."""
    table = rf"(\n{heading}\n(?:(?!\| ---).*\n)*\| ---.*\n)(?:\|.*\n)*"
    found, count = re.subn(table, lambda above: above[1] + "".join(rows), page)
    assert count == 1
    return found


# --- codes ----------------------------------------------------------------------------------------


def test_the_catalogue_has_every_failure_of_a_job() -> None:
    codes = {UNKNOWN, "out-of-memory"}
    codes |= set(re.findall(r'\bclass .*\bcode="([a-z-]+)"\)', sources("jobs", "schemas")))
    # The words that a publisher ends with are the first arguments of its exceptions.
    codes |= set(re.findall(r'(?:Fatal|PublishFailed)\(\s*"([a-z-]+)"', sources("jobs/edge")))
    of_supervisor = sources("service").partition("def _find_reason(")[2].partition("\ndef ")[0]
    codes |= set(re.findall(r'return "([a-z-]+)"', of_supervisor))
    assert codes == {code for code, kind in failure_kinds().items() if kind.ends_job}


def test_a_code_has_several_statuses_only_if_each_is_sent() -> None:
    kinds = failure_kinds()
    named = re.findall(r'Problem\(\s*"([a-z-]+)",[^()]*status=(\d{3})', sources("service"))
    others = {(code, each) for code, kind in kinds.items() for each in kind.status[1:]}
    assert {(code, int(status)) for code, status in named} == others - {("body-invalid", 400)}
    for code, kind in kinds.items():
        assert bool(kind.status) == bool(kind.title), code
        assert kind.ends_job or kind.status, code
        assert not {429, 503}.intersection(kind.status) or kind.retryable, code


def test_the_page_has_the_catalogue(request: pytest.FixtureRequest) -> None:
    """`--rewrite` writes the page, after a change of catalogue.yaml."""
    kinds = failure_kinds()
    failures = [
        f"| `{code}` | {again(each)} | {each.meaning} | {each.advice} |\n"
        for code, each in kinds.items()
        if each.ends_job
    ]
    refusals = [
        f"| `{code}` | {', '.join(map(str, each.status))} | {again(each)} | {each.meaning} |"
        f" {each.advice} |\n"
        for code, each in sorted(kinds.items())
        if each.status
    ]
    page = with_rows(text(PAGE), "## Why a job ended", failures)
    page = with_rows(page, "## Refusals of the service", refusals)
    if request.config.getoption("--rewrite"):
        (CHECKOUT / "docs" / PAGE).write_text(page, encoding="utf-8")
    assert text(PAGE) == page


def again(kind: FailureKind) -> str:
    return "yes" if kind.retryable else "no"


def test_every_exit_code_is_there() -> None:
    known = {command.DONE, command.FAILED, command.BAD_USAGE, command.OWNED_ELSEWHERE}
    known |= {command.DIFFERS}
    assert {int(code) for code in rows_of(PAGE, "## Exit codes")} == known


# --- reasons --------------------------------------------------------------------------------------

KINDS = {
    "id": "BIGINT",
    "v": "INT",
    "d": "DECIMAL(4, 1)",
    "day": "DATE",
    "at": "TIMESTAMP(3)",
    "t": "TIME",
    "b": "BINARY",
    "s": "STRING",
    "z": "TIMESTAMP_LTZ(9)",
}
NULLS: dict[str, Any] = dict.fromkeys(KINDS)


def canal(**row: Any) -> bytes:
    return message(type="INSERT", data=[NULLS | row])


def message(**members: Any) -> bytes:
    return json.dumps(members).encode()


def maxwell(**row: Any) -> bytes:
    return message(type="insert", data=NULLS | row)


def envelope(**row: Any) -> bytes:
    return message(op="c", before=None, after=NULLS | row)


def with_schema(column: str, logical: str, value: object) -> bytes:
    """An envelope that says itself what a column is."""
    field = {"type": "int64", "optional": True, "name": logical, "field": column}
    rows = [{"type": "struct", "field": name, "fields": [field]} for name in ("before", "after")]
    payload = {"op": "c", "before": None, "after": NULLS | {column: value}}
    return message(schema={"type": "struct", "fields": rows}, payload=payload)


# What each reason of the page is given for: format, message; of upsert-json, the tombstone's key.
EXAMPLES: dict[str, tuple[str, bytes | None]] = {
    "not JSON: …": ("canal-json", b"<row/>"),
    "not UTF-8 at byte …": ("canal-json", b'{"type": "\xff"}'),
    "nested deeper than …": ("canal-json", b'{"a":' + b"[" * 600 + b"]" * 600 + b"}" + b" " * 999),
    "the message has … bytes; the limit is …": ("canal-json", b" " * (8 * 1024 * 1024 + 1)),
    "… is not a … object": ("canal-json", b"[]"),
    "the type … is unknown; known are …": ("canal-json", message(type="UPSERT", data=[])),
    "the type is missing; known are …": ("maxwell-json", message(data=[])),
    "the op …; known are …": ("debezium-json", message(op="x")),
    "TRUNCATE removes rows that it does not name; it cannot become retractions": (
        "canal-json",
        message(type="TRUNCATE"),
    ),
    "…; an array of rows belongs there": ("canal-json", message(type="INSERT", data={})),
    "old has … rows, data has …": (
        "canal-json",
        message(type="UPDATE", data=[NULLS, NULLS], old=[{}]),
    ),
    "… where a row object belongs": ("canal-json", message(type="INSERT", data=[7])),
    "… where an object belongs": ("json", message(v=7)),
    "… where an array belongs": ("json", message(v={"a": {}})),
    "the line has … fields; it needs …": ("csv", b"1,2"),
    "the message has several lines; …": ("csv", b"1,2\n3,4"),
    "the quote at character … is not closed": ("csv", b'"1,2'),
    "… at character … follows a closing quote": ("csv", b'"1"x,2'),
    "…; set csv.null_literal if it is NULL": ("csv", b"," * (len(KINDS) - 1)),
    "… is not a valid …": ("canal-json", canal(v="seven")),
    "… does not fit …": ("canal-json", canal(v="2147483648")),
    "… has a fraction; … has none": ("changelog-json", message(op="+I", row=NULLS | {"v": 3.9})),
    "the number has … characters; the limit is …": (
        "canal-json",
        canal(v=7).replace(b"7", b"7" * 1_001),
    ),
    "lone surrogate U+…": ("canal-json", canal(s="\ud800")),
    "… is not a day of the calendar": ("canal-json", canal(day="2020-02-30")),
    "… has digits beyond microseconds; declare …": (
        "canal-json",
        canal(at="2020-05-13 12:00:00.1234567"),
    ),
    "… is not a time of day": ("canal-json", canal(t="25:00:00")),
    "… outside the years 1 to 9999": ("debezium-json", envelope(at=10**15)),
    "… is not a valid BINARY: character … is …, and canal writes …; …": (
        "canal-json",
        canal(b="€"),
    ),
    "… has no label in …": (
        "canal-json",
        message(type="INSERT", data=[NULLS | {"s": "2"}], mysqlType={"s": "enum('a')"}),
    ),
    "… is not base64: …": ("maxwell-json", maxwell(b="a")),
    "… without the row before it cannot be retracted; …": (
        "debezium-json",
        message(op="d", before=None, after=None),
    ),
    "the database did not send this large value, …": (
        "debezium-json",
        envelope(s="__debezium_unavailable_value"),
    ),
    "… can be a number or base64; set …": ("debezium-json", envelope(d="1234")),
    "… may be milliseconds or microseconds …": ("debezium-adaptive", envelope(t=7)),
    "… is not a decimal in base64: …": ("debezium-json", envelope(d="1,5")),
    "… has … bytes, more than any …": ("debezium-json", envelope(d="A" * 400 + "AA==")),
    "… is an instant in …, not a date; declare TIMESTAMP": (
        "debezium-json",
        with_schema("day", "io.debezium.time.Timestamp", 7),
    ),
    "…: nanoseconds are only possible in UTC": (
        "debezium-json",
        envelope(z="2020-05-13T12:00:00.123456789+02:00"),
    ),
    "the key is …": ("upsert-json", b"[]"),
    "the key of a tombstone lacks …": ("upsert-json", b"{}"),
    "a tombstone has no key; …": ("upsert-json", None),
    "… is not the name of a …": ("canal-metadata", message(type="INSERT", data=[NULLS], table=7)),
    "… is missing, and the source filters by it": ("canal-filtered", message(type="INSERT")),
}
# Those that expressions, windows and clocks give: where they are written.
WRITTEN = {
    "…: division by zero": "jobs/core/evaluate/expressions.py",
    "…: the time is NULL": "jobs/core/rows/windows.py",
    "…: the window is not within the years 1 to 9999": "jobs/core/rows/windows.py",
    "the row's time lies in the future: …": "jobs/edge/tasks/range_reading.py",
    "the message does not start with 0 and the id of a schema…": "jobs/core/formats/registered.py",
    "the message ends within a value…": "jobs/core/formats/avro_schema.py",
    "… bytes follow the value of the message": "jobs/core/formats/avro.py",
    "the schema is recursive: …": "jobs/core/formats/avro_schema.py",
    "the schema registry has no …": "jobs/topics/schema_registry.py",
}


def pattern(reason: str) -> str:
    return ".*".join(map(re.escape, reason.split("…")))


def test_no_reason_is_invented() -> None:
    assert rows_of(PAGE, "## Reasons of the quarantine") == [*EXAMPLES, *WRITTEN]
    for reason, file in WRITTEN.items():
        said = reason.replace("…", "").strip(": ")
        assert said in (CHECKOUT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("reason", EXAMPLES)
def test_a_message_is_refused_for_the_reason_that_the_page_has(reason: str) -> None:
    kind, value = EXAMPLES[reason]
    rules = {
        "debezium-adaptive": MessageRules("debezium-json", modes=Modes(times="adaptive")),
        "canal-metadata": MessageRules("canal-json"),
        "canal-filtered": MessageRules("canal-json", database="shop"),
        "json": MessageRules("json", missing_is_null=True, paths=(("v", "v.a[0]"),)),
        "upsert-json": MessageRules("upsert-json", primary_key=("id",), last_images=True),
    }.get(kind, MessageRules(kind))
    kinds = KINDS | ({"__table": "STRING"} if kind == "canal-metadata" else {})
    columns = tuple(Column(name, SqlType.parse(sql)) for name, sql in kinds.items())
    decoder = rules.decoder(columns, columns)
    # upsert-json refuses the key of a record, the others its value
    decoded = decoder.explain(*((None, value) if kind == "upsert-json" else (value,)))
    if isinstance(decoded, Truncated):  # with on_truncate: quarantine
        decoded = decoded.rejected
    assert isinstance(decoded, Rejected), decoded
    assert re.fullmatch(pattern(reason), decoded.reason), decoded.reason


DECODERS = (
    "formats/frame.py",
    "formats/canal.py",
    "formats/changelog.py",
    "formats/csv_events.py",
    "formats/debezium.py",
    "formats/json_events.py",
    "formats/maxwell.py",
    "formats/metadata.py",
    "formats/mysql_values.py",
    "formats/upsert.py",
    "formats/row_fields.py",
    "formats/debezium_fields.py",
    "values/json_values.py",
    "values/json_text.py",
)
REFUSING = ("rejection", "_refuse_key", "CsvError", "ValueError", "UnreadableError")
SAID_IN = ("reason", "message")


def test_no_reason_is_missing() -> None:
    """Every text that a decoder refuses with, as far as it is written where it refuses."""
    told = [pattern(reason) for reason in EXAMPLES]
    said = {text for name in DECODERS for text in refusals(CHECKOUT / "jobs" / "core" / name)}
    assert len(said) > 40
    assert [text for text in sorted(said) if not any(map(matches(text), told))] == []


def matches(text: str) -> Callable[[str], bool]:
    """Whether a pattern holds for a text whose changing parts are a word or two."""
    return lambda told: re.fullmatch(told, text.replace("…", "x is unknown")) is not None


def refusals(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found: ast.expr | None = None
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in REFUSING and node.args:
            found = node.args[0]
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in SAID_IN:
            found = node.value
        if isinstance(found, ast.Constant) and isinstance(found.value, str):
            yield found.value
        elif isinstance(found, ast.JoinedStr):
            yield "".join(
                str(p.value) if isinstance(p, ast.Constant) else "…" for p in found.values
            )
