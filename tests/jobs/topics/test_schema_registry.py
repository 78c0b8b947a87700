"""Reading schemas from a registry: what it knows, what it does not, and when it is away."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from jobs.core.formats.avro_schema import parse_schema
from jobs.core.formats.registered import UnknownSchemaError
from jobs.core.formats.registry import MessageRules
from jobs.core.plan.tree import Column
from jobs.core.values.change import Changes
from jobs.edge.process.broker import free_port
from jobs.topics.schema_registry import RegistryUnavailable, SchemaRefused, register, schema_finder
from schemas import limits
from schemas.spec.connections import Registry
from schemas.types.sql_types import SqlType
from tests.support.network.protobuf_classes import message_class
from tests.support.network.schema_registry import FakeRegistry, open_registry

MONEY = {"type": "record", "name": "Money", "fields": [{"name": "amount", "type": "long"}]}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "cost", "type": "Money"}]}
REFERENCE = {"name": "Money", "subject": "money/v1", "version": 1}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with open_registry() as opened:
        yield opened


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REGISTRY_SECONDS_MAX", 10.0)
    monkeypatch.setattr(limits, "REGISTRY_FOLLOW_SECONDS_MAX", 1.0)


def find(registry: Registry, number: int) -> tuple[str, ...]:
    own = schema_finder(registry, "avro")
    assert own is not None
    return own(number)


def test_a_schema_comes_after_those_that_it_names_and_is_read_once(registry: FakeRegistry) -> None:
    registry.register(1, MONEY, "money/v1")
    registry.register(2, ORDER, references=[REFERENCE])
    connection = registry.connection()
    for _ in range(2):
        found = find(connection, 2)
    assert parse_schema(found).parts[0].labels == ("amount",)
    paths = [path for path, _ in registry.requests]
    assert paths == ["/schemas/ids/2", "/subjects/money%2Fv1/versions/1"]


@pytest.mark.parametrize(
    ("username", "secret", "sent"),
    [
        (None, None, None),
        ("us", "pass:wörd", "Basic " + base64.b64encode("us:pass:wörd".encode()).decode()),
        (None, "token", "Bearer token"),
    ],
)
def test_credentials_are_sent_in_the_header(
    registry: FakeRegistry, username: str | None, secret: str | None, sent: str | None
) -> None:
    registry.register(1, MONEY)
    connection = registry.connection(username, secret)
    find(connection, 1)
    assert registry.requests == [("/schemas/ids/1", sent)]
    assert secret is None or secret not in repr(connection)


def test_a_registry_that_fails_for_a_moment_is_asked_again(registry: FakeRegistry) -> None:
    registry.register(1, MONEY)
    registry.answers += [503, b"<html>", b"[1]"]
    assert find(registry.connection(), 1) == (json.dumps(MONEY),)
    assert len(registry.requests) == 4


@pytest.mark.parametrize("answer", [500, 401, 302, 404, b"{}"])
def test_a_registry_that_does_not_answer_as_one_is_no_reason_to_refuse_a_message(
    registry: FakeRegistry, answer: int | bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redirect is not followed, since the credentials are for nobody else."""
    registry.register(1, MONEY)
    monkeypatch.setattr(limits, "REGISTRY_SECONDS_MAX", 0.5)
    registry.answers += [answer] * 50
    with pytest.raises(RegistryUnavailable, match=registry.url):
        find(registry.connection(None, "c4nary"), 1)
    assert {path for path, _ in registry.requests} == {"/schemas/ids/1"}
    registry.answers.clear()
    assert find(registry.connection(None, "c4nary"), 1)


def test_a_registry_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REGISTRY_SECONDS_MAX", 0.5)
    connection = Registry("schemas", f"http://127.0.0.1:{free_port('127.0.0.1')}")
    with pytest.raises(RegistryUnavailable, match="refused"):
        find(connection, 1)


def test_an_id_is_unknown_only_after_a_while(registry: FakeRegistry) -> None:
    connection = registry.connection()
    with pytest.raises(UnknownSchemaError, match="has no schemas/ids/5"):
        find(connection, 5)
    assert len(registry.requests) > 1
    count = len(registry.requests)
    with pytest.raises(UnknownSchemaError):
        find(connection, 5)
    assert len(registry.requests) == count


def test_an_unknown_id_may_be_known_later(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "REGISTRY_UNKNOWN_SECONDS", 0.0)
    with pytest.raises(UnknownSchemaError):
        find(registry.connection(), 5)
    registry.register(5, MONEY)
    assert find(registry.connection(), 5)


def test_a_schema_is_registered_once_under_its_subject(registry: FakeRegistry) -> None:
    connection = registry.connection("us", "pass")
    registry.answers += [503]
    numbers = [register(connection, "a/b-value", json.dumps(MONEY)) for _ in range(2)]
    assert numbers == [1, 1]
    assert registry.subjects == {"a/b-value"}
    assert parse_schema(find(connection, 1)).labels == ("amount",)
    assert {path for path, _ in registry.requests} == {
        "/subjects/a%2Fb-value/versions",
        "/schemas/ids/1",
    }


@pytest.mark.parametrize("status", [409, 422])
def test_a_schema_that_a_registry_refuses_has_its_reason(
    registry: FakeRegistry, status: int
) -> None:
    registry.answers += [status]
    registry.message = b'{"error_code": 409, "message": "incompatible with an earlier schema"}'
    with pytest.raises(
        SchemaRefused, match=r"'schemas' refuses /subjects/a/.*incompatible with an"
    ):
        register(registry.connection(), "a", "{}")
    assert len(registry.requests) == 1


def test_a_schema_is_not_registered_while_the_registry_is_away(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A 409 of a proxy, without the registry's own code, says nothing about the schema."""
    monkeypatch.setattr(limits, "REGISTRY_SECONDS_MAX", 0.5)
    registry.answers += [409, 500] * 20
    with pytest.raises(RegistryUnavailable, match="HTTP"):
        register(registry.connection(), "a", "{}")


def test_a_schema_of_another_kind_is_refused(registry: FakeRegistry) -> None:
    registry.documents["/schemas/ids/1"] = {"schema": "syntax = 3;", "schemaType": "PROTOBUF"}
    with pytest.raises(UnknownSchemaError, match="is PROTOBUF"):
        find(registry.connection(), 1)


def test_references_are_bounded(registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REGISTRY_REFERENCES_MAX", 1)
    registry.register(1, MONEY, "money/v1")
    registry.register(2, ORDER, references=[REFERENCE])
    with pytest.raises(UnknownSchemaError, match="more than 1 others"):
        find(registry.connection(), 2)


def test_schemas_that_name_each_other_are_read_once(registry: FakeRegistry) -> None:
    registry.register(1, MONEY, "money/v1", references=[REFERENCE])
    registry.register(2, ORDER, references=[REFERENCE])
    assert find(registry.connection(), 2) == (json.dumps(MONEY), json.dumps(ORDER))
    assert len(registry.requests) == 2


def test_a_chain_of_references_is_bounded_before_it_is_read(registry: FakeRegistry) -> None:
    for number in range(200):
        reference = {"name": "x", "subject": f"s{number + 1}", "version": 1}
        registry.register(number, MONEY, f"s{number}", references=[reference])
    with pytest.raises(UnknownSchemaError, match="more than 100 others"):
        find(registry.connection(), 0)
    assert len(registry.requests) == limits.REGISTRY_REFERENCES_MAX


@pytest.mark.slow
def test_a_real_registry_answers_so(tmp_path: Path) -> None:
    """Apicurio, unpacked in APICURIO_HOME; it runs with the java of APICURIO_JAVA."""
    home = os.environ.get("APICURIO_HOME")
    if home is None:
        pytest.skip("NOT CHECKED AGAINST A REAL REGISTRY: APICURIO_HOME names no Apicurio")
    port = free_port("127.0.0.1")
    java = os.environ.get("APICURIO_JAVA", "java")
    options = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1", "-Xmx512m"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [java, *options, "-jar", "quarkus-run.jar"], cwd=home, stdout=log, stderr=log
        )
    try:
        connection = Registry("apicurio", f"http://127.0.0.1:{port}/apis/ccompat/v7")
        _await(f"{connection.url}/subjects")
        _register(connection.url, "money", MONEY)
        order = _register(connection.url, "order", ORDER, [{**REFERENCE, "subject": "money"}])
        assert parse_schema(find(connection, order)).parts[0].labels == ("amount",)
        with pytest.raises(UnknownSchemaError):
            find(connection, 1_000_000)
        numbers = [register(connection, "t-value", json.dumps(MONEY)) for _ in range(2)]
        assert numbers[0] == numbers[1]
        _must_read_what_confluent_writes(connection)
    finally:
        process.terminate()
        process.wait()


def _must_read_what_confluent_writes(registry: Registry) -> None:
    """Confluent's serializers register schemas of messages, which retally then decodes."""
    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext("orders", MessageField.VALUE)
    columns = (Column("amount", SqlType.parse("BIGINT")),)
    sent = {"avro": AvroSerializer(client, json.dumps(MONEY))({"amount": 7}, context)}
    text = 'syntax = "proto3"; package m; message Other {} message Money { int64 amount = 1; }'
    made = message_class(text, "m.Money")
    own = SerializationContext("money", MessageField.VALUE)
    sent["protobuf"] = ProtobufSerializer(made, client)(made(amount=7), own)
    as_json = {"title": "Money", "type": "object", "properties": {"amount": {"type": "integer"}}}
    own = SerializationContext("as-json", MessageField.VALUE)
    sent["json"] = JSONSerializer(json.dumps(as_json), client)({"amount": 7}, own)
    for name, value in sent.items():
        find_schema = schema_finder(registry, name)
        decoder = MessageRules(name).decoder(columns, columns, find_schema=find_schema)
        assert value is not None
        assert value[0] == 0
        assert decoder.decode(value) == Changes([(1, (7,))]), name


def _await(url: str) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < until, "Apicurio does not answer"
            time.sleep(1)


def _register(url: str, subject: str, schema: Any, references: Any = ()) -> int:
    content = json.dumps({"schema": json.dumps(schema), "references": list(references)}).encode()
    request = urllib.request.Request(
        f"{url}/subjects/{subject}/versions",
        content,
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        number: int = json.load(answer)["id"]
    return number
