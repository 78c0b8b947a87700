"""Avro and Protobuf through Kafka, Spark and Delta: the same results as debezium-json."""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from jobs.topics.schema_registry import RegistryUnavailable
from schemas import limits
from tests.support.jobs.epochs_by_hand import ByHand
from tests.support.network.protobuf_classes import message_class
from tests.support.network.schema_registry import FakeRegistry, open_registry

pytestmark = [pytest.mark.spark, pytest.mark.broker]

DECIMAL = {
    "type": "bytes",
    "connect.name": "org.apache.kafka.connect.data.Decimal",
    "connect.parameters": {"scale": "2"},
}
TIME = {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}
QUERY = "SELECT shop, SUM(price) AS total, MAX(made) AS last, COUNT(*) AS n FROM t GROUP BY shop"
DOCUMENT: dict[str, Any] = {
    "columns": {"shop": "STRING", "price": "DECIMAL(10, 2)", "made": "TIMESTAMP(6)"},
    "query": QUERY,
    "max_bad_fraction": 1.0,
}


def envelope(*added: str) -> dict[str, Any]:
    fields: list[dict[str, Any]] = [{"name": name, "type": "int", "default": 0} for name in added]
    fields += [
        {"name": "shop", "type": ["null", "string"]},
        {"name": "price", "type": ["null", DECIMAL]},
        {"name": "made", "type": ["null", TIME]},
    ]
    source = [{"name": "ts_ms", "type": "long"}, {"name": "db", "type": "string"}]
    members: list[dict[str, Any]] = [
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": fields}]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
        {"name": "op", "type": "string"},
    ]
    return {"type": "record", "name": "Envelope", "namespace": "s.t", "fields": members}


def row(shop: str | None, cents: int, made: int = 10**15) -> dict[str, Any]:
    raw = cents.to_bytes(4, "big", signed=True)
    return {"added": 1, "shop": shop, "price": raw, "made": made}


CHANGES: list[tuple[str, Any, Any]] = [
    ("c", None, row("a", 1_250)),
    ("c", None, row("a", -50, 2 * 10**15)),
    ("r", None, row(None, 7)),
    ("u", row("a", 1_250), row("b", 99)),
    ("d", row("a", -50, 2 * 10**15), None),
]


def avro(number: int, schema: Any, change: tuple[str, Any, Any]) -> bytes:
    op, before, after = change
    message = {"before": before, "after": after, "source": {"ts_ms": 5, "db": "s"}, "op": op}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), message)
    return struct.pack(">BI", 0, number) + written.getvalue()


def text(change: tuple[str, Any, Any]) -> bytes:
    def image(own: dict[str, Any] | None) -> Any:
        return own and {**own, "price": base64.b64encode(own["price"]).decode()}

    op, before, after = change
    source = {"ts_ms": 5, "db": "s"}
    return json.dumps(
        {"before": image(before), "after": image(after), "source": source, "op": op}
    ).encode()


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with open_registry() as opened:
        opened.register(1, envelope())
        opened.register(2, envelope("added"))
        yield opened


def test_a_job_over_avro_has_the_results_of_debezium_json(
    by_hand: ByHand, registry: FakeRegistry
) -> None:
    """Also across a change of the schema. An audit reads the same rows again."""
    source = {"format": "debezium-avro", "schema_registry": "schemas"}
    registries = {"schemas": registry.connection()}
    job = by_hand.job({**DOCUMENT, "source": source}, at="avro", registries=registries)
    json_source = {
        "topic": f"{by_hand.topic}-json",
        "format": "debezium-json",
        "debezium": {"decimal_handling_mode": "precise"},
    }
    other = by_hand.job({**DOCUMENT, "source": json_source}, at="json")
    for number, changes in ((1, CHANGES[:2]), (2, CHANGES[2:])):
        schema = envelope(*["added"] * (number - 1))
        job.epoch_of([(0, avro(number, schema, change)) for change in changes])
        other.epoch_of([(0, text(change)) for change in changes])
        assert job.results() == other.results()
    assert job.lines() == other.lines()
    assert len(job.results()) == 2
    unknown = avro(9, envelope(), CHANGES[0])
    job.epoch_of([(0, unknown), (0, b"{}")])
    assert [each["quarantine_code"] for each in job.quarantine()] == ["schema", "message"]
    assert job.results() == other.results()
    assert job.audit().verdict == "equal"


PROTOBUF = """
    syntax = "proto3"; package s.t;
    message Envelope { Value before = 1; Value after = 2; Source source = 3; string op = 4; }
    message Value { optional string shop = 1; optional string price = 2; optional int64 made = 3; }
    message Source { int64 ts_ms = 1; string db = 2; }
"""


def protobuf(number: int, change: tuple[str, Any, Any]) -> bytes:
    def image(own: dict[str, Any] | None) -> Any:
        if own is None:
            return None
        cents = int.from_bytes(own["price"], "big", signed=True)
        return {"shop": own["shop"], "price": str(Decimal(cents) / 100), "made": own["made"]}

    op, before, after = change
    sent = message_class(PROTOBUF, "s.t.Envelope")(
        before=image(before), after=image(after), source={"ts_ms": 5, "db": "s"}, op=op
    )
    octets: bytes = struct.pack(">BI", 0, number) + b"\0" + sent.SerializeToString()
    return octets


def test_a_job_over_protobuf_has_the_results_of_debezium_json(
    by_hand: ByHand, registry: FakeRegistry
) -> None:
    registry.register(3, PROTOBUF)
    source = {"format": "debezium-protobuf", "schema_registry": "schemas"}
    registries = {"schemas": registry.connection()}
    job = by_hand.job({**DOCUMENT, "source": source}, at="protobuf", registries=registries)
    json_source = {
        "topic": f"{by_hand.topic}-json",
        "format": "debezium-json",
        "debezium": {"decimal_handling_mode": "precise"},
    }
    other = by_hand.job({**DOCUMENT, "source": json_source}, at="json")
    job.epoch_of([(0, protobuf(3, change)) for change in CHANGES])
    other.epoch_of([(0, text(change)) for change in CHANGES])
    assert job.results() == other.results()
    assert len(job.results()) == 2
    avro_of_2 = avro(2, envelope("added"), CHANGES[0])  # a schema of another kind
    job.epoch_of([(0, protobuf(9, CHANGES[0])), (0, b"{}"), (0, avro_of_2)])
    codes = [each["quarantine_code"] for each in job.quarantine()]
    assert codes == ["schema", "message", "schema"]
    assert job.results() == other.results()
    assert job.audit().verdict == "equal"


def test_a_registry_that_is_away_fails_the_epoch_and_refuses_nothing(
    by_hand: ByHand, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REGISTRY_SECONDS_MAX", 0.5)
    source = {"format": "debezium-avro", "schema_registry": "schemas"}
    registries = {"schemas": registry.connection()}
    job = by_hand.job({**DOCUMENT, "source": source}, registries=registries)
    registry.answers += [503] * 50
    with pytest.raises(RegistryUnavailable, match="HTTP 503"):
        job.epoch_of([(0, avro(1, envelope(), change)) for change in CHANGES])
    assert not job.quarantine()
    registry.answers.clear()
    job.restart()
    job.epoch_of([])
    assert not job.quarantine()
    assert {key: row[-1] for key, row in job.results().items()} == {("b",): 1, (None,): 1}
