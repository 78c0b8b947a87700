"""The curl lines of docs/rest.md, run one after the other against a service, a broker and a job.

Numbers and secrets of the document stand for those of the run; nothing else is changed.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

import retally
from jobs.edge.kafka.admin import KafkaAdmin
from jobs.edge.process.broker import Broker
from service.access.tokens import Tokens
from tests.support.service.curl_lines import CURLS
from tests.support.service.served import Served, end_jobs, eventually

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(560),
    pytest.mark.costly("every line of the document, with a job's replays and audit"),
]

TOPIC = "shop.product"
EPOCHS = 45  # the lines name epochs up to 42
SPEC = """\
name: items
source: {topic: shop.product}
columns: {id: BIGINT, name: STRING, cnt: INT}
query: SELECT name, SUM(cnt), MAX(cnt) AS top, COUNT(*) AS n FROM product GROUP BY name
minibatch: {size: 4, latency: 50ms, max_rows: 4}
"""
SECONDS = 400.0
STREAM_SECONDS = "2"
STREAM_ENDED = 28  # curl's word for: the time is over


@dataclass(slots=True)
class Shell:
    """Runs lines as somebody does who reads the document from its top."""

    served: Served
    token: str
    home: Path
    values: dict[str, str] = field(default_factory=dict)

    def run(self, line: str) -> tuple[int, str]:
        for shown, value in self.values.items():
            line = line.replace(shown, value)
        words = [word.replace("$U", self.served.address) for word in shlex.split(line)]
        out = self.home / "answer"
        own = ["-s", "-o", str(out), "-w", "%{http_code}", "--max-time", "60"]
        if "-N" in words:
            own[-1] = STREAM_SECONDS
        if "-b" not in words and "/v1/session" not in line and "ticket=" not in line:
            own += ["-H", f"Authorization: Bearer {self.token}"]
        if "-o" in words:  # where the document wants it
            own = own[:1] + own[3:]
        done = subprocess.run(
            [words[0], *own, *words[1:]], capture_output=True, text=True, cwd=self.home, check=False
        )
        assert done.returncode in ((0, STREAM_ENDED) if "-N" in words else (0,)), (line, done)
        text = out.read_text() if out.exists() and "-o" not in words else ""
        self._learn(line, text)
        return int(done.stdout), text

    def _learn(self, line: str, text: str) -> None:
        """What later lines need of this one's answer."""
        if "-N" in line.split() or not text.startswith("{"):
            return
        document: dict[str, Any] = json.loads(text)
        if document.get("kind"):  # an operation
            self.values["0f3a5c"] = document["id"]
        if document.get("csrf"):
            self.values["5f0c..."] = document["csrf"]
        if "ticket" in document:
            self.values["Yx3..."] = document["ticket"]


@pytest.fixture
def shell(tmp_path: Path, broker: Broker) -> Iterator[Shell]:
    data = tmp_path / "data"
    token = Tokens(data / "service" / "tokens.json").add("reader", "admin")
    served = Served.start(data, brokers=broker.address, token=token)
    (tmp_path / "items.yaml").write_text(SPEC)
    (tmp_path / "changed.yaml").write_text(SPEC.replace("SUM(cnt)", "MIN(cnt) AS low"))
    now = datetime.now(UTC)
    yield Shell(
        served, token, tmp_path, {"rt_...": token, "2026-01-31T12:00:00Z": f"{now:%Y}-12-31"}
    )
    assert served.stop() == 0
    end_jobs(data)


def feed(broker: Broker) -> None:
    """As many bundles as the lines name epochs, and one message that is none."""
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        admin.ensure_topic(TOPIC, 1, {})
    producer = KafkaProducer(bootstrap_servers=broker.address)
    names = ["bolt", None, "bow", "anvil"]
    for number in range(4 * EPOCHS):
        row = {"id": str(number), "name": names[number % 4], "cnt": str(number % 100)}
        message: dict[str, Any] = {"type": "INSERT", "database": "shop", "table": "product"}
        message |= {"isDdl": False, "es": 1_700_000_000_000, "data": [row], "old": None}
        producer.send(TOPIC, json.dumps(message).encode(), partition=0)
    producer.send(TOPIC, b"{no message", partition=0)
    producer.flush()
    producer.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_every_curl_line_of_the_document_does_what_it_says(shell: Shell, broker: Broker) -> None:
    feed(broker)
    client = retally.connect(shell.served.address, shell.token)
    ran = 0
    for line in CURLS:
        status, text = shell.run(line)
        assert 200 <= status < 300, (line, status, text[:1_000])
        ran += 1
        if line.endswith("items/start"):
            eventually(lambda: (client.job("items").epoch or 0) >= EPOCHS, SECONDS)
            eventually(lambda: list(client.quarantine("items")), SECONDS)
            (bad,) = client.quarantine("items")
            shell.values["7-shop.product-0-12"] = bad.id
        if line.endswith("items/stop"):
            client.until("items", "STOPPED", seconds=SECONDS)
        if status == 202 and json.loads(text).get("kind") not in (None, "audit", "quarantine"):
            done = client.wait_until_ended(client.operation(shell.values["0f3a5c"]), SECONDS)
            assert done.state == "DONE", done
    assert ran == len(CURLS) >= 45
    assert (shell.home / "results.arrows").stat().st_size > 100
    assert [job.name for job in client.jobs()] == ["items-trial"]
