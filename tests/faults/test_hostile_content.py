"""Hostile messages of topics and hostile SQL: others are answered, and nothing is reached.

hostile messages ──► topics ──► pages, suggestions ─┐
hostile statements of two viewers ──────────────────┴──► service ◄── /healthz, an admin

The result lines have how many requests were sent, how they were answered, and what others noticed.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from confluent_kafka import Producer

from jobs.edge.process.broker import Broker
from schemas.process.statements import WORKERS_MODULE
from service.access.tokens import Tokens
from service.sql.workers import WORKERS_MAX
from tests.support.faults.attackers import Health, place_of
from tests.support.faults.bad_messages import good_message, kinds
from tests.support.faults.hostile_statements import ENDLESS, LARGE, REACHING
from tests.support.faults.tally import quantile, report
from tests.support.jobs.running_job import create_topic
from tests.support.service.served import Served, eventually
from tests.support.service.tables import WatchedTable

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1_800)]

HEALTH_SECONDS_MAX = 5.0
GROWTH_BYTES_MAX = 256 << 20
KINDS_A_TOPIC = 25
ADMIN_SECONDS_MAX = 15.0
ROW = {"type": "INSERT", "database": "d", "table": "t", "isDdl": False, "es": 1}
DESCRIPTIONS = [
    {"a": "int(" + " " * 900_000 + "x"},
    {"a": "(" * 900_000},
    {"a": "decimal(" + "1," * 400_000},
    {"a": "enum(" + "'a'," * 200_000},
    {f"c{number}": "decimal(9,2)" for number in range(30_000)},
    {"a" * 900_000: "int"},
]


def hostile_topics() -> Iterator[list[bytes]]:
    """Yield the messages of each topic."""
    for types in DESCRIPTIONS:
        row = dict.fromkeys(types, "1")
        yield [json.dumps({**ROW, "data": [row], "mysqlType": types}).encode()[:990_000]]
    bad = [kind(good_message(number)) for number, (_, kind) in enumerate(kinds())]
    for start in range(0, len(bad), KINDS_A_TOPIC):
        yield bad[start : start + KINDS_A_TOPIC]
    for mebibytes in (64, 200, 600):
        yield [b"a" * (mebibytes << 20)]  # a thousandth of that at the broker
    yield [b'{"a":' * 150_000, b"[" * 900_000, b"\0" * 900_000, b"\xff" * 900_000]


@pytest.mark.broker
def test_hostile_messages_of_topics_keep_nobody_waiting(broker: Broker, tmp_path: Path) -> None:
    packing = {"compression.type": "gzip", "message.max.bytes": 10**9}
    producer = Producer({"bootstrap.servers": broker.address, **packing})
    topics, messages = [], 0
    for number, values in enumerate(hostile_topics()):
        create_topic(broker.address, topic := f"hostile-{number}", 1)
        topics.append(topic)
        for value in values:
            producer.produce(topic, value, partition=0)
            messages += 1
        assert producer.flush(120) == 0
    served = Served.start(tmp_path, brokers=broker.address)
    answers: Counter[str] = Counter()
    slowest = 0.0
    try:
        process = psutil.Process(served.process.pid)
        before = process.memory_info().rss
        with Health(place_of(served)) as health, served.client() as client:
            for topic in topics:
                for path in ("/topics/{}", "/new?topic={}", "/v1/topics/{}/suggestion"):
                    began = time.monotonic()
                    answer = client.get(path.format(topic), timeout=120)
                    slowest = max(slowest, time.monotonic() - began)
                    answers[str(answer.status_code)] += 1
        growth = process.memory_info().rss - before
    finally:
        assert served.stop() == 0
    report(
        {
            "suite": "attacks, topics",
            "hostile_messages": messages,
            "requests_sent": answers.total(),
            "answers": dict(answers),
            "slowest_s": round(slowest, 1),
            "service_grew_mib": growth >> 20,
            "healthz_ms_during": health.describe(),
        }
    )
    assert answers.keys() <= {"200", "409", "422"}
    assert not health.failures and health.worst < HEALTH_SECONDS_MAX
    assert growth < GROWTH_BYTES_MAX


def test_hostile_sql_reaches_nothing_and_keeps_no_admin_waiting(tmp_path: Path) -> None:
    data = tmp_path / "data"
    tokens = Tokens(data / "service" / "tokens.json")
    admin = tokens.add("boss", "admin")
    viewers = [tokens.add(name, "viewer") for name in ("eye", "ear")]
    served = Served.start(data, token=admin)
    file, made = tmp_path / "secret", tmp_path / "made"
    file.write_text("name\nsecret\n")
    places = {"file": file, "folder": tmp_path, "made": made}
    hostile = [*(sql.format(**places) for sql in REACHING if sql), *ENDLESS, *LARGE]
    answers: Counter[str] = Counter()
    waits: list[float] = []
    try:
        watched = WatchedTable(served)
        watched.write({"a": (1, 5)})
        watched.seen()

        def attack(token: str) -> None:
            bearer = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=served.address, headers=bearer, trust_env=False) as guest:
                for sql in hostile:
                    status = 429  # while the admin and the other viewer are being answered
                    while status == 429:
                        answer = guest.post("/v1/sql", json={"sql": sql}, timeout=120)
                        status = answer.status_code
                        answers[str(status)] += 1
                    assert b"secret\\n" not in answer.content and str(data) not in answer.text

        attackers = [threading.Thread(target=attack, args=(token,)) for token in viewers]
        with Health(place_of(served)) as health, served.client() as client:
            for each in attackers:
                each.start()
            while any(each.is_alive() for each in attackers):
                began = time.monotonic()
                answer = client.post("/v1/sql", json={"sql": "SELECT total FROM items"}, timeout=60)
                assert answer.status_code == 200, answer.text
                waits.append(time.monotonic() - began)
                time.sleep(0.5)
            for each in attackers:
                each.join()
        service = psutil.Process(served.process.pid)

        def count_workers() -> int:
            children = service.children(recursive=True)
            return sum(WORKERS_MODULE in each.cmdline() for each in children)

        eventually(lambda: count_workers() <= 1 + WORKERS_MAX, seconds=5)  # and their spawner
        audited = (data / "service" / "trail-reads.log").read_text().count('"ear"')
    finally:
        assert served.stop() == 0
    report(
        {
            "suite": "attacks, SQL",
            "statements": 2 * len(hostile),
            "answers": dict(answers),
            "admin_asked": len(waits),
            "admin_s": {"p50": quantile(waits, 0.5), "max": round(max(waits), 2)},
            "healthz_ms_during": health.describe(),
        }
    )
    assert answers["200"] + answers["422"] == 2 * len(hostile)
    assert answers.keys() <= {"200", "422", "429"}
    assert max(waits) < ADMIN_SECONDS_MAX
    assert not health.failures and health.worst < HEALTH_SECONDS_MAX
    assert sorted(os.listdir(tmp_path)) == ["data", "secret"]
    assert audited >= len(hostile)
