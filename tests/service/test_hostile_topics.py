"""Topics over HTTP: whatever is in a topic, the service answers others, and does not grow."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from confluent_kafka import Producer

import retally
from jobs.cli.main import main
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from retally import Refused
from tests.support.jobs.running_job import produce
from tests.support.service.served import Served, alive_while, end_jobs

pytestmark = pytest.mark.broker

ROW = {"type": "INSERT", "database": "d", "table": "t", "isDdl": False, "es": 1}
NARROW = {**ROW, "data": [{"a": "1"}]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[Served]:
    data: Path = tmp_path_factory.mktemp("served")
    running = Served.start(data, brokers=broker.address)
    yield running
    assert running.stop() == 0
    end_jobs(data)


def write(broker: Broker, topic: str, *values: bytes, **settings: Any) -> None:
    with KafkaAdmin({"bootstrap_servers": broker.address}) as admin:
        admin.ensure_topic(topic, 1, {})
    if not settings:
        produce(broker.address, topic, [(0, value) for value in values])
        return
    producer = Producer({"bootstrap.servers": broker.address, **settings})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    "types",
    [
        {"a": "int(" + " " * 900_000 + "x"},
        {"a": "(" * 900_000},
        {f"c{number}": "decimal(9,2)" for number in range(30_000)},
        {"a" * 900_000: "int"},
    ],
    ids=("blanks", "brackets", "columns", "name"),
)
def test_a_hostile_description_of_columns_keeps_nobody_waiting(
    served: Served, broker: Broker, topic: str, types: dict[str, str]
) -> None:
    row = dict.fromkeys(types, "1")
    message = {**NARROW, "data": [row], "mysqlType": types}
    write(broker, topic, json.dumps(message).encode()[:990_000])
    for path in (f"/topics/{topic}", f"/new?topic={topic}", f"/v1/topics/{topic}/suggestion"):
        began = time.monotonic()
        answer = alive_while(served, lambda client, path=path: client.get(path, timeout=60))  # type: ignore[misc]
        assert answer.status_code in (200, 409)
        assert time.monotonic() - began < 30


@pytest.mark.slow
def test_a_message_that_unpacks_to_more_than_the_limit_leaves_the_service_small(
    served: Served, broker: Broker, topic: str
) -> None:
    before = psutil.Process(served.process.pid).memory_info().rss
    bomb = b"a" * (600 << 20)
    write(broker, topic, bomb, **{"compression.type": "gzip", "message.max.bytes": 10**9})
    answer = alive_while(served, lambda client: client.get(f"/topics/{topic}", timeout=60))
    assert answer.status_code == 200
    # Of memory, or on a busy machine of time.
    assert "No suggestion: the service stopped the attempt: it " in answer.text
    assert psutil.Process(served.process.pid).memory_info().rss - before < 64 << 20
    refused = alive_while(served, lambda client: client.get(f"/v1/topics/{topic}/suggestion"))
    assert (refused.status_code, refused.json()["code"]) == (422, "attempt-too-large")


def test_a_codec_without_a_library_is_named(served: Served, broker: Broker, topic: str) -> None:
    write(broker, topic, b"x" * 1_000, **{"compression.type": "zstd"})
    with served.client() as client:
        page = client.get(f"/topics/{topic}")
        assert page.status_code == 200 and "compressed with zstd, and no library" in page.text
        refused = client.get(f"/v1/topics/{topic}/suggestion")
    assert (refused.status_code, refused.json()["code"]) == (501, "codec-missing")


@pytest.mark.slow
def test_a_service_that_is_to_end_does_not_wait_for_an_attempt(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    letters = json.dumps({**ROW, "data": [{"name": "a" * 400}]}).encode()
    write(broker, topic, letters)
    many = f"REPLACE(REPLACE(name, 'a', '{'a' * 100}'), 'a', '{'a' * 200}')"
    endless = {
        "name": "tried",
        "source": {"topic": topic},
        "columns": {"name": "STRING"},
        "query": f"SELECT COUNT(*) AS n FROM t WHERE {many} LIKE '%{'a_' * 9_000}b%'",
    }
    running = Served.start(tmp_path, brokers=broker.address)
    with ThreadPoolExecutor(1) as asking, running.client() as client:
        asking.submit(client.post, "/preview?sample=true", content=json.dumps(endless), timeout=60)
        time.sleep(2.0)  # the attempt has begun; it would take ten seconds
        began = time.monotonic()
        assert running.stop() == 0
        assert time.monotonic() - began < 8


def test_the_console_rest_and_the_command_suggest_the_same(
    served: Served, broker: Broker, topic: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    types = {"id": "bigint", "status": "enum('a','b')", "qty": "int"}
    message = {**ROW, "data": [dict.fromkeys(types, "1")], "mysqlType": types, "pkNames": ["id"]}
    write(broker, topic, json.dumps(message).encode())
    client = retally.connect(served.address)
    try:
        text = client.suggest(topic)
        (listed,) = [each for each in client.topics().topics if each.name == topic]
        with pytest.raises(Refused) as missing:
            client.suggest("no-such")
    finally:
        client.close()
    assert (listed.records, listed.partitions["0"].next) == (1, 1)
    assert missing.value.code == "topic-unknown"
    assert main(["suggest", topic, "--brokers", broker.address]) == 0
    assert capsys.readouterr().out == text
    assert yaml.safe_load(text)["dedupe"] == "pk"
    path = tmp_path / "suggested.yaml"
    path.write_text(text)
    assert main(["validate", str(path)]) == 0
    with served.client() as browser:
        assert "primary_key: [id]" in browser.get(f"/topics/{topic}").text
        tried = browser.post("/preview?sample=true", content=text, timeout=60).text
    assert "&#34;sum_qty&#34;: 1" in tried  # with dedupe as well


def test_a_topic_without_rows_suggests_nothing_and_says_why(
    served: Served, broker: Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    query = {**ROW, "database": "", "table": "", "type": "QUERY", "data": None, "sql": "insert"}
    write(broker, topic, json.dumps(query).encode())
    with served.client() as client:
        refused = client.get(f"/v1/topics/{topic}/suggestion")
        assert "there are no rows yet" in client.get(f"/topics/{topic}").text
    assert (refused.status_code, refused.json()["code"]) == (409, "no-suggestion")
    assert main(["suggest", topic, "--brokers", broker.address]) == 1
    assert "there are no rows yet" in capsys.readouterr().err


def test_topics_are_created_shown_and_listed_by_the_command(
    broker: Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--brokers", broker.address]
    assert main(["topics", "create", topic, "--partitions", "2", *at, "--json"]) == 0
    created = json.loads(capsys.readouterr().out)
    parts = {"0": {"first": 0, "next": 0}, "1": {"first": 0, "next": 0}}
    assert created == {"name": topic, "records": 0, "partitions": parts}
    assert main(["topics", "create", topic, *at]) == 1
    assert "exists already" in capsys.readouterr().err
    produce(broker.address, topic, [(1, b"x")])
    assert main(["topics", "show", topic, *at]) == 0
    assert capsys.readouterr().out.split()[-3:] == ["1", "0", "1"]
    assert main(["topics", "--json", *at]) == 0
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["records"] for each in listed if each["name"] == topic] == [1]
    assert main(["topics", "show", *at]) == 2
    assert main(["topics", "show", "no-such", *at]) == 1
