"""canal-json against what Flink 2.2.1 itself gave for the same bytes.

The vectors belong to the reference documents, not to this repository: without them beside the
checkout these tests are skipped, and the skip says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.core.formats.registry import MessageRules
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, Rejected, Skipped, Truncated, Value
from jobs.core.values.json_values import renderer
from schemas.types.sql_types import Kind, SqlType

ORACLE = Path(__file__).parents[3] / "shared" / "oracle"
VECTORS = ORACLE / "canal_vectors.json"

pytestmark = pytest.mark.skipif(
    not VECTORS.exists(), reason="the oracle vectors are not beside this checkout"
)

NULLS = "null," * 6

# Where we differ from Flink: message -> (our rows, reason). docs/flink.md has each reason in "Where
# we differ from Flink". None as rows: rejected; "skipped": counted, no rows.
DIFFERENCES: dict[str, tuple[str | None, str]] = {
    '{"data":[{"id":1,"a":"n1","b":"m1"},{"id":2,"a":"n2","b":"m2"}],'
    '"old":[{"a":"o1"},{"b":"p2"}],"type":"UPDATE"}': (
        "[-U(1,o1,m1), +U(1,n1,m1), -U(2,n2,p2), +U(2,n2,m2)]",
        "UPDATE with several rows: what changed is told per row",
    ),
    '{"data":null,"isDdl":true,"type":"ALTER"}': ("skipped", "DDL is skipped and counted"),
    '{"data":null,"isDdl":true,"type":"ERASE"}': ("skipped", "DDL is skipped and counted"),
    '{"data":null,"isDdl":false,"type":"QUERY"}': ("skipped", "DDL is skipped and counted"),
    '{"data":[{"id":1,"a":"x","b":"y"}],"type":"INIT-DDL"}': (
        "skipped",
        "DDL is skipped and counted",
    ),
    '{"data":[{"i":3.9}],"type":"INSERT"}': (None, "an integer with a fraction is a bad message"),
    '{"data":[{"m":"123456789.12"}],"type":"INSERT"}': (
        None,
        "a DECIMAL that does not fit is a bad message",
    ),
    '{"data":[{"o":"1"}],"type":"INSERT"}': (
        f"[+I({NULLS}true,null,null,null,null)]",
        "BOOLEAN from MySQL's tinyint(1)",
    ),
    '{"data":[{"o":1}],"type":"INSERT"}': (
        f"[+I({NULLS}true,null,null,null,null)]",
        "BOOLEAN from MySQL's tinyint(1)",
    ),
    '{"data":[{"o":"t"}],"type":"INSERT"}': (None, "a BOOLEAN that is none is a bad message"),
}


def vectors() -> Iterator[Any]:
    if not VECTORS.exists():
        return
    for group in json.loads(VECTORS.read_text())["groups"]:
        if not group["ignore_parse_errors"]:
            for place, case in enumerate(group["cases"]):
                yield pytest.param(group, case, id=f"{group['group']}-{place}")


def declared(schema: str) -> tuple[Column, ...]:
    pairs = (part.split(" ", 1) for part in schema.split(", "))
    return tuple(Column(name, SqlType.parse(text)) for name, text in pairs)


def as_flink_prints(value: Value, sql_type: SqlType) -> str:
    """A value as RowData.toString() has it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return str(list(value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(renderer(sql_type)(value))
    if sql_type.kind is Kind.TIMESTAMP:
        assert isinstance(value, int)
        return (datetime(1970, 1, 1) + timedelta(microseconds=value)).isoformat()
    if sql_type.kind is Kind.TIME:
        hours, minutes, seconds = map(int, str(value).split(":"))
        return str(((hours * 60 + minutes) * 60 + seconds) * 1000)
    if sql_type.kind is Kind.DATE:
        return str(value)
    return str(renderer(sql_type)(value))


def printed(decoded: Decoded, kind: str | None, columns: tuple[Column, ...]) -> str:
    assert isinstance(decoded, Changes), decoded
    signs = {"UPDATE": {-1: "-U", 1: "+U"}}.get(kind or "", {-1: "-D", 1: "+I"})
    return ", ".join(
        f"{signs[weight]}("
        + ",".join(
            as_flink_prints(value, column.type) for value, column in zip(row, columns, strict=True)
        )
        + ")"
        for weight, row in decoded.changes
    )


def type_of(message: str) -> str | None:
    root = json.JSONDecoder().raw_decode(message)[0]
    kind: str | None = root.get("type")
    return kind


@pytest.mark.parametrize(("group", "case"), list(vectors()))
def test_rows_are_those_of_flink(group: dict[str, Any], case: dict[str, Any]) -> None:
    columns = declared(group["schema"])
    decoder = MessageRules(
        "canal-json",
        group["database.include"],
        group["table.include"],
        missing_is_null=True,
        binary="base64",  # as Flink's own sink writes it
    ).decoder(columns, columns)
    message = case["message"]
    raw = None if message is None else message.encode()
    decoded = decoder.decode(raw)
    assert decoded == decoder.explain(raw) or "NaN" in message
    if isinstance(decoded, Truncated):  # with on_truncate: quarantine
        decoded = decoded.rejected
    expected = None if case["raises"] else case["rows"]
    if message in DIFFERENCES:
        ours, _ = DIFFERENCES[message]
        assert ours != expected, "this is no difference any more"
        expected = ours
    if expected is None:
        assert isinstance(decoded, Rejected) and decoded.reason
    elif expected == "skipped":
        assert isinstance(decoded, Skipped)
    elif isinstance(decoded, Changes):
        assert f"[{printed(decoded, type_of(message), columns)}]" == expected
    else:
        assert expected == "[]" and not isinstance(decoded, Rejected)


def test_every_difference_is_still_a_vector() -> None:
    messages = {parameter.values[1]["message"] for parameter in vectors()}
    assert DIFFERENCES.keys() <= messages


def test_canal_data_gives_the_rows_that_flink_expects() -> None:
    columns = declared("id INT, name STRING, description STRING, weight FLOAT")
    decoder = MessageRules("canal-json").decoder(columns, columns)
    lines = (ORACLE / "canal" / "canal-data.txt").read_text().splitlines()
    rows = []
    for line in lines:
        decoded = decoder.decode(line.encode())
        if type_of(line) == "CREATE":
            assert isinstance(decoded, Skipped)
            continue
        rows += printed(decoded, type_of(line), columns).replace("), ", ")\n").splitlines()
    assert rows == (ORACLE / "canal" / "canal-data.expected").read_text().splitlines()


def test_canal_data_carries_the_times_of_its_messages() -> None:
    columns = declared("id INT, name STRING, description STRING, weight FLOAT")
    first = (ORACLE / "canal" / "canal-data.txt").read_text().splitlines()[0]
    decoded = MessageRules("canal-json").decoder(columns, columns).decode(first.encode())
    assert isinstance(decoded, Changes)
    assert (len(decoded.changes), decoded.es, decoded.ts) == (9, 1589373515000, 1589373515477)
