"""Properties of every format, for any bytes and any values."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.formats.csv_events import CsvError, CsvSplitter
from jobs.core.formats.debezium_fields import Modes
from jobs.core.formats.registry import MessageDecoder, MessageRules
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes, Decoded, Rejected, Skipped
from schemas.spec.event_formats import CsvEvents
from schemas.spec.source import METADATA_TYPES
from schemas.types.sql_types import SqlType
from tests.support.examples import examples

COLUMNS = tuple(
    Column(name, SqlType.parse(kind))
    for name, kind in {
        "id": "BIGINT",
        "name": "STRING",
        "p": "DECIMAL(12, 3)",
        "d": "DATE",
        "t": "TIME",
        "s": "TIMESTAMP(3)",
        "n": "TIMESTAMP(9)",
        "z": "TIMESTAMP_LTZ(6)",
        "f": "FLOAT",
        "b": "BOOLEAN",
        "x": "BINARY",
    }.items()
)
DECODERS = [
    MessageRules("debezium-json"),
    MessageRules("debezium-json", "s.*", "p.*", last_images=True),
    MessageRules("debezium-json", modes=Modes("precise", "nanoseconds"), missing_is_null=True),
    MessageRules("debezium-json", modes=Modes("string", "connect")),
    MessageRules("maxwell-json"),
    MessageRules("maxwell-json", "s.*", missing_is_null=True),
    MessageRules("upsert-json", primary_key=("id", "name")),
    MessageRules("changelog-json"),
    MessageRules("json"),
    MessageRules("json", missing_is_null=True),
    MessageRules("json", paths=(("id", "after.id"), ("name", "$.source.db"), ("x", "after.x"))),
    MessageRules("json", missing_is_null=True, paths=(("p", "data.p"), ("f", "data.f"))),
    MessageRules("csv", csv=CsvEvents(escape="\\", null_literal="")),
]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-2, 2),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=6),
    st.sampled_from(
        [
            "1.50",
            "1234",
            "AJY=",
            "1e3",
            "2020-05-13",
            "12:38:35",
            "2020-05-13 12:38:35.477",
            "2020-05-13T12:38:35.477Z",
            "2020-05-13T12:38:35+01:00",
            "2020-05-13Z",
            "NaN",
            "true",
            "yes",
            "FALSE",
            "2",
            "1e39",
            "1e400",
            "12:38:35.477",
            "0000-01-01",
            "__debezium_unavailable_value",
            "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
            9223372036825200000,
            1589373515477,
            18395,
            45515123456,
        ]
    ),
    st.just([1]),
)
ROWS = st.none() | st.dictionaries(st.sampled_from([c.name for c in COLUMNS]), SCALARS)
GOOD = {
    "id": st.integers(-(2**63), 2**63 - 1),
    "name": st.sampled_from(["a", "", "ü", "shop"]),
    "p": st.sampled_from(["1.50", "AJY=", 1.5, 12, "12.", 123456789.123]),
    "d": st.sampled_from([18395, "2020-05-13"]),
    "t": st.sampled_from([0, 45515, "12:38:35"]),
    "s": st.sampled_from([0, -1, 1589373515477, "2020-05-13 12:38:35.477"]),
    "n": st.sampled_from([0, -1, 1589373515477123456, "2020-05-13 12:38:35.477123456"]),
    "z": st.sampled_from([0, 1589373515477, "2020-05-13 12:38:35Z", "2020-05-13T12:38:35+01:00"]),
    "f": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70),
    "b": st.booleans() | st.integers(0, 1),
    "x": st.sampled_from(["AAH/", "", "AA=="]),
}
FULL_ROWS = st.builds(
    lambda good, odd: good | odd,
    st.fixed_dictionaries({name: st.none() | values for name, values in GOOD.items()}),
    st.just({}) | st.dictionaries(st.sampled_from(list(GOOD)), SCALARS, max_size=1),
)
NAMES = st.sampled_from(["shop", "product", "other", None, 5, "\ud800"])
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["c", "r", "u", "d", "t", "m", "+I", "-D", "x", None]),
        "type": st.sampled_from(["insert", "update", "delete", "bootstrap-start", "x", 1]),
        "before": ROWS | FULL_ROWS,
        "after": ROWS | FULL_ROWS,
        "data": ROWS | FULL_ROWS,
        "row": ROWS | FULL_ROWS,
        "old": ROWS,
        "database": NAMES,
        "table": NAMES,
        "source": st.none() | st.fixed_dictionaries({}, optional={"db": NAMES, "table": NAMES}),
        "ts": st.sampled_from([1, None, "x", 2**63]),
        "ts_ms": st.sampled_from([1, None, "x", 2**63]),
    },
)
SCHEMAS = st.none() | st.fixed_dictionaries(
    {
        "fields": st.just(
            [
                {
                    "field": "after",
                    "fields": [
                        {
                            "field": "p",
                            "name": "org.apache.kafka.connect.data.Decimal",
                            "parameters": {"scale": "2"},
                        },
                        {"field": "s", "name": "io.debezium.time.MicroTimestamp"},
                        {"field": "t", "name": "org.apache.kafka.connect.data.Time"},
                        {"field": "d", "name": "io.debezium.time.IsoDate"},
                    ],
                }
            ]
        )
        | st.just(5)
    }
)


def both_ways(decoder: MessageDecoder, value: bytes | None, key: bytes | None = None) -> Decoded:
    decoded, exactly = decoder.decode(value, key), decoder.explain(value, key)
    assert repr(decoded) == repr(exactly)  # the repr: NaN is itself, and True is not 1
    return decoded


METADATA = tuple(Column(name, kind) for name, kind in METADATA_TYPES.items())
WITH_METADATA = [
    rules.decoder(COLUMNS, (*METADATA[2:], *COLUMNS[:-1], *METADATA[:2]))
    for rules in (MessageRules("canal-json"), DECODERS[1], DECODERS[2], *DECODERS[4:6])
]
of_every_decoder = pytest.mark.parametrize(
    "decoder",
    [*(rules.decoder(COLUMNS, COLUMNS[:-1]) for rules in DECODERS), *WITH_METADATA],
    ids=[
        *(f"{number} {rules.format}" for number, rules in enumerate(DECODERS)),
        *(f"metadata {number}" for number in range(len(WITH_METADATA))),
    ],
)


@of_every_decoder
@examples(120)
@given(message=MESSAGES, schema=SCHEMAS, enveloped=st.booleans())
def test_the_fast_way_and_the_exact_way_agree(
    decoder: MessageDecoder, message: dict[str, Any], schema: Any, enveloped: bool
) -> None:
    whole = {"schema": schema, "payload": message} if enveloped else message
    both_ways(decoder, json.dumps(whole).encode())


@of_every_decoder
@examples(60)
@given(row=ROWS | FULL_ROWS, key=ROWS)
def test_rows_agree_as_well(decoder: MessageDecoder, row: Any, key: Any) -> None:
    for value in (
        row,
        {"op": "c", "after": row},
        {"op": "+I", "row": row},
        {"type": "insert", "data": row, "database": "shop"},
    ):
        both_ways(decoder, json.dumps(value).encode(), json.dumps(key).encode())
    both_ways(decoder, None, json.dumps(key).encode())


@of_every_decoder
@examples(60)
@given(noise=st.binary(max_size=40), cut=st.integers(0, 200))
def test_no_bytes_ever_raise(decoder: MessageDecoder, noise: bytes, cut: int) -> None:
    whole = json.dumps({"op": "c", "after": {c.name: None for c in COLUMNS}, "ts_ms": 5}).encode()
    for value in (noise, whole[:cut], whole[:cut] + noise + whole[cut + 3 :]):
        both_ways(decoder, value, noise)


@examples(120)
@given(units=st.integers(-(10**12) + 1, 10**12 - 1), schema=st.booleans())
def test_a_decimal_comes_back_from_its_bytes(units: int, schema: bool) -> None:
    columns = (Column("p", SqlType.parse("DECIMAL(12, 3)")),)
    decoder = MessageRules("debezium-json", modes=Modes("precise")).decoder(columns, columns)
    length = units.bit_length() // 8 + 1
    text = base64.b64encode(units.to_bytes(length, "big", signed=True)).decode()
    message = {"op": "c", "after": {"p": text}}
    assert both_ways(decoder, json.dumps(message).encode()) == Changes([(1, (units,))])
    ambiguous = MessageRules("debezium-json").decoder(columns, columns)
    decoded = both_ways(ambiguous, json.dumps(message).encode())
    # Never another number: where text could be one, it is refused.
    assert decoded == Changes([(1, (units,))]) or (
        isinstance(decoded, Rejected) and text.isdecimal()
    )


def test_a_new_schema_is_read_and_old_ones_are_forgotten() -> None:
    columns = (Column("p", SqlType.parse("DECIMAL(12, 3)")),)
    decoder = MessageRules("debezium-json").decoder(columns, columns)
    for version in range(250):
        scale = version % 3
        field = {
            "field": "p",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": str(scale)},
        }
        schema = {"version": version, "fields": [{"field": "after", "fields": [field]}]}
        message = {"schema": schema, "payload": {"op": "c", "after": {"p": "fw=="}}}
        expected = Changes([(1, (127 * 10 ** (3 - scale),))])
        assert both_ways(decoder, json.dumps(message).encode()) == expected


LINES = st.lists(
    st.text(st.sampled_from("ab ,;\"'\\\t\r\nü1."), max_size=6), min_size=1, max_size=5
)


@examples(300)
@given(fields=LINES, layout=st.sampled_from([(",", '"'), (";", "'"), ("\t", '"')]))
def test_what_pythons_writer_of_csv_writes_is_read_back(
    fields: list[str], layout: tuple[str, str]
) -> None:
    delimiter, quote = layout
    columns = tuple(Column(f"c{index}", SqlType.parse("STRING")) for index in range(len(fields)))
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, quotechar=quote, quoting=csv.QUOTE_ALL).writerow(fields)
    rules = MessageRules("csv", csv=CsvEvents(delimiter=delimiter, quote=quote))
    decoded = both_ways(rules.decoder(columns, columns), text.getvalue().encode())
    assert decoded == Changes([(1, tuple(fields))])


@examples(300)
@given(line=st.text(st.sampled_from('ab ,;"\\n'), max_size=12))
def test_a_line_of_csv_has_the_fields_that_pythons_reader_finds(line: str) -> None:
    """Where Python is stricter (it merges text after a closing quote) the line is refused."""
    splitter = CsvSplitter(CsvEvents())
    try:
        found = splitter.split(line)
    except CsvError:
        return
    (expected,) = csv.reader([line]) if line else ([""],)
    assert found == expected


@pytest.mark.parametrize("text", ["a,b\nc,d", '"a",b\n"c",d', "a,b\r\nc,d", "a,b\n\n"])
def test_a_message_of_several_lines_is_refused(text: str) -> None:
    columns = tuple(Column(name, SqlType.parse("STRING")) for name in "xy")
    decoder = MessageRules("csv").decoder(columns, columns)
    decoded = both_ways(decoder, text.encode())
    assert isinstance(decoded, Rejected)
    assert "several lines" in decoded.reason
    for end in ("", "\n", "\r\n"):
        assert both_ways(decoder, f'"a",b{end}'.encode()) == Changes([(1, ("a", "b"))])


def test_a_line_of_eight_mebibytes_is_split_in_time() -> None:
    columns = (Column("a", SqlType.parse("STRING")),)
    decoder = MessageRules("csv", csv=CsvEvents(escape="\\")).decoder(columns, columns)
    for line in ('"' + 'a""' * 2_500_000, '"' + "\\n" * 4_000_000, "a" * 8_000_000 + '"'):
        assert not isinstance(both_ways(decoder, line.encode()), Skipped)
