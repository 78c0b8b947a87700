"""Messages of every format and their signed rows, in data files that people can check.

Each is decoded fast, exactly, in a batch, by the scanner, and by a decoder that was pickled."""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jobs.core.formats.debezium_fields import Modes
from jobs.core.formats.registry import FORMATS, MessageDecoder, MessageRules
from jobs.core.kernels.codes import GOOD, NO_TIME
from jobs.core.plan.tree import Column
from jobs.core.values.change import (
    Changes,
    ColumnGone,
    Decoded,
    Filtered,
    Rejected,
    Skipped,
    Truncated,
)
from jobs.core.values.json_values import renderer
from schemas.spec.event_formats import CsvEvents
from schemas.spec.source import FORMATS_OF_REGISTRY
from schemas.types.sql_types import SqlType

VECTORS = Path(__file__).parents[2] / "vectors" / "formats"


@dataclass(frozen=True, slots=True)
class Vector:
    format: str
    name: str
    columns: tuple[Column, ...]
    rules: dict[str, Any]
    message: bytes | None
    key: bytes | None
    expected: list[str] = field(default_factory=list)

    @property
    def decoder(self) -> MessageDecoder:
        given = dict(self.rules)
        if "modes" in given:
            given["modes"] = Modes(*given["modes"])
        if "primary_key" in given:
            given["primary_key"] = tuple(given["primary_key"])
        if "paths" in given:
            given["paths"] = tuple(given["paths"].items())
        if "csv" in given:
            given["csv"] = CsvEvents(**given["csv"])
        return MessageRules(self.format, **given).decoder(self.columns, self.columns)


def vectors_of(path: Path) -> Iterator[Vector]:
    """Parse blocks between blank lines: a name, `message:`, `key:`, and the expected outcome.

    `columns:` and `rules:` apply to all blocks after them."""
    columns: tuple[Column, ...] = ()
    rules: dict[str, Any] = {}
    for block in path.read_text().split("\n\n"):
        name, message, key = "", None, None
        expected = []
        for line in block.splitlines():
            word, _, rest = line.partition(": ")
            if line.startswith("#"):
                continue
            if word == "columns":
                columns = tuple(columns_of(rest))
            elif word == "rules":
                rules = json.loads(rest)
            elif word == "message" or line == "message:":
                message = rest.encode() or None
            elif word == "key":
                key = rest.encode()
            elif not name:
                name = line
            else:
                expected.append(line)
        if name:
            yield Vector(path.stem, name, columns, rules, message, key, expected)


def columns_of(text: str) -> Iterator[Column]:
    for part in re.split(r", (?![^(]*\))", text):
        name, _, kind = part.partition(" ")
        yield Column(name, SqlType.parse(kind))


ALL = [vector for path in sorted(VECTORS.glob("*.vectors")) for vector in vectors_of(path)]


@pytest.mark.parametrize("vector", ALL, ids=lambda vector: f"{vector.format}: {vector.name}")
def test_a_message_is_what_its_vector_says(vector: Vector) -> None:
    decoder = vector.decoder
    for made in (decoder, pickle.loads(pickle.dumps(decoder))):
        for decoded in ways(made, vector):
            assert told(decoded, vector) == vector.expected


@pytest.mark.parametrize("vector", ALL, ids=lambda vector: f"{vector.format}: {vector.name}")
@pytest.mark.parametrize("number", [1, 2**31 + 200])
def test_a_header_of_a_schema_registry_is_skipped_before_json(vector: Vector, number: int) -> None:
    """As Confluent's serializer of JSON Schema writes it. CSV has no such serializer."""
    if not vector.message or vector.format == "csv":
        return
    sent = dataclasses.replace(vector, message=struct.pack(">BI", 0, number) + vector.message)
    for decoded in ways(vector.decoder, sent):
        assert told(decoded, vector) == vector.expected


def ways(decoder: MessageDecoder, vector: Vector) -> Iterator[Decoded]:
    yield decoder.decode(vector.message, vector.key)
    yield decoder.explain(vector.message, vector.key)
    if (scanner := decoder.make_scanner()) is not None:
        scanned = scanner.scan([vector.message])
        if scanned.outcomes[0] == GOOD:
            times = (each[0].item() for each in (scanned.es, scanned.ts))
            yield Changes(scanned.changes(), *(None if t == NO_TIME else t for t in times))


def told(decoded: Decoded, vector: Vector) -> list[str]:
    """Return an outcome as lines of a data file, limited to what is expected."""
    if isinstance(decoded, Changes):
        render = [renderer(column.type) for column in vector.columns]
        lines = []
        for sign, row in decoded.changes:
            shown = [write(value) for write, value in zip(render, row, strict=True)]
            lines.append(f"{'+' if sign > 0 else '-'} {json.dumps(shown)}")
        if any(line.startswith("times") for line in vector.expected):
            lines.append(f"times {json.dumps(decoded.es)} {json.dumps(decoded.ts)}")
        return lines
    if isinstance(decoded, Rejected):
        (line,) = vector.expected
        _, path, *words = line.split(" ", 2)
        assert line.startswith("rejected") and decoded.path == path, decoded
        assert all(part in decoded.reason for part in words), decoded
        return [line]
    if isinstance(decoded, ColumnGone):
        return [f"gone {decoded.column}"]
    if isinstance(decoded, Truncated):
        return [f"truncated {decoded.path} {decoded.statement}"]
    return [f"skipped {decoded.why}"] if isinstance(decoded, Skipped) else ["filtered"]


def test_every_format_of_text_has_vectors_here() -> None:
    assert {vector.format for vector in ALL} == set(FORMATS) - set(FORMATS_OF_REGISTRY)
    assert len({(vector.format, vector.name) for vector in ALL}) == len(ALL) > 120


@pytest.mark.parametrize("name", ["changelog-json", "csv", "json", "upsert-json"])
def test_a_format_without_tables_has_no_filter(name: str) -> None:
    with pytest.raises(ValueError, match="no database or table"):
        MessageRules(name, table="t").decoder((), ())


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown format 'xml'; use one of avro, canal-json"):
        MessageRules("xml").decoder((), ())
    with pytest.raises(ValueError, match="upsert-json needs a primary key"):
        MessageRules("upsert-json").decoder((), ())


def test_what_is_neither_rows_nor_a_reason_is_not_an_outcome() -> None:
    outcomes = {type(decoded) for vector in ALL for decoded in ways(vector.decoder, vector)}
    assert outcomes == {Changes, Skipped, Filtered, Rejected, ColumnGone, Truncated}
