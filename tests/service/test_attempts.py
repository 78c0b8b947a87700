"""Attempts over HTTP: whatever a user gives to be tried, the service answers others meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from schemas.limits import ATTEMPT_SECONDS_MAX, ATTEMPTS_WAITING_MAX, SPEC_BYTES_MAX
from tests.support.jobs.running_job import produce
from tests.support.service.served import Served, alive_while, end_jobs, eventually

pytestmark = pytest.mark.broker

LETTERS = "a" * 400
# One match over eight million letters: more than a minute inside one call of Python's own.
MANY = f"REPLACE(REPLACE(name, 'a', '{'a' * 100}'), 'a', '{'a' * 200}')"
ENDLESS = f"{MANY} LIKE '%{'a_' * 9_000}b%'"
# Eight gigabytes.
GREAT = f"REPLACE(REPLACE(name, 'a', '{'a' * 4_500}'), 'a', '{'a' * 4_500}') = 'b'"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, broker: Broker) -> Iterator[Served]:
    data: Path = tmp_path_factory.mktemp("served")
    running = Served.start(data, brokers=broker.address)
    yield running
    assert running.stop() == 0
    end_jobs(data)


@pytest.fixture(scope="module")
def letters(broker: Broker) -> str:
    """A topic with one message, whose name is 400 letters and whose table nearly matches."""
    with KafkaAdmin({"bootstrap_servers": broker.address}) as admin:
        admin.ensure_topic("letters", 1, {})
    row = {"name": LETTERS, "cnt": "1"}
    output = {"type": "INSERT", "database": "d", "table": "a" * 30 + "!", "es": 1, "data": [row]}
    produce(broker.address, "letters", [(0, json.dumps(output).encode())])
    return "letters"


def spec(topic: str, condition: str, **source: str) -> bytes:
    document = {
        "name": "tried",
        "source": {"topic": topic, **source},
        "columns": {"name": "STRING", "cnt": "INT"},
        "query": f"SELECT COUNT(*) AS n FROM t WHERE {condition}",
    }
    return json.dumps(document).encode()


def preview(client: httpx.Client, body: bytes) -> httpx.Response:
    return client.post("/preview?sample=true", content=body, timeout=4 * ATTEMPT_SECONDS_MAX)


def attempts(served: Served) -> list[psutil.Process]:
    return served.nursery.children()


def test_patterns_that_try_every_way_are_over_at_once(served: Served, letters: str) -> None:
    answer = alive_while(
        served, lambda client: preview(client, spec(letters, "name LIKE '%a%a%a%a%a%a%b'"))
    )
    assert "No changelog rows" in answer.text and "stopped the attempt" not in answer.text
    answer = alive_while(
        served, lambda client: preview(client, spec(letters, "cnt > 0", table="(a+)+$"))
    )
    assert "filtered" in answer.text and "stopped the attempt" not in answer.text


def test_a_query_that_does_not_end_is_given_up_and_the_service_answers(
    served: Served, letters: str
) -> None:
    answer = alive_while(served, lambda client: preview(client, spec(letters, ENDLESS)))
    assert answer.status_code == 200
    assert (
        f"the service stopped the attempt: it took more than {ATTEMPT_SECONDS_MAX:.0f} s"
        in answer.text
    )
    eventually(lambda: not attempts(served))
    with served.client() as client:
        answer = preview(client, spec(letters, "cnt > 0"))
        assert "stopped the attempt" not in answer.text and "&#34;n&#34;: 1" in answer.text


def test_a_query_that_takes_all_memory_is_given_up(served: Served, letters: str) -> None:
    before = psutil.Process(served.process.pid).memory_info().rss
    answer = alive_while(served, lambda client: preview(client, spec(letters, GREAT)))
    assert "the service stopped the attempt: it needed more than 512 MiB of memory" in answer.text
    assert psutil.Process(served.process.pid).memory_info().rss - before < 64 * 1024 * 1024


def test_the_service_answers_while_a_large_spec_is_checked(served: Served) -> None:
    body = b"\n" * SPEC_BYTES_MAX
    answer = alive_while(
        served, lambda client: client.post("/v1/jobs:validate", content=body, timeout=40)
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "spec-invalid")


@pytest.mark.slow
def test_more_than_may_wait_are_refused_and_nobody_else_is(served: Served, letters: str) -> None:
    valid = spec(letters, "cnt > 0")
    with served.client() as client, ThreadPoolExecutor(ATTEMPTS_WAITING_MAX + 12) as asking:
        slow = [asking.submit(preview, client, spec(letters, ENDLESS)) for _ in range(2)]
        eventually(lambda: len(attempts(served)) == 2)
        waiting = [
            asking.submit(client.post, "/v1/jobs:validate", content=valid, timeout=60)
            for _ in range(ATTEMPTS_WAITING_MAX + 10)
        ]
        assert client.get("/v1/jobs").status_code == 200
        found = [each.result() for each in waiting]
        assert [each.result().status_code for each in slow] == [200, 200]
    refused = [each for each in found if each.status_code == 429]
    assert refused and {each.json()["code"] for each in refused} == {"too-many-requests"}
    assert {each.status_code for each in found} == {200, 429}
