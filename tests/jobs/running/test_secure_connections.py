"""A job over SASL and TLS, from the source to the changelog, and its passwords nowhere else.

    own CA ─► broker: SASL_SSL listener, PLAIN and SCRAM ◄── `in`:  source, PLAIN
                                                         ◄── `out`: sink, SCRAM

The test writes and reads over the broker's plain listener, which the job is never told of.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from jobs.edge.process.broker import OWN_SETTINGS, Broker, free_port
from tests.support.jobs.canal_messages import delete, insert, row
from tests.support.jobs.published_records import must_be_in_order, place
from tests.support.jobs.running_job import RunningJob, consumed, create_topic, produce
from tests.support.topics import admin_client

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

HOST = "127.0.0.1"
USER = "retally"
# Characters that break a setting which is put together carelessly.
PLAIN_PASSWORD = 'canary-plain "\\;=$'
SCRAM_PASSWORD = "canary-scram 'ü%"
CANARY = b"canary-"

SETTINGS = """
listeners=PLAINTEXT://{host}:{port},SECURE://{host}:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://{host}:{port},SECURE://{host}:{secure}
controller.quorum.voters=1@127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={keystore}
listener.name.secure.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.secure.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
"""


@dataclass(frozen=True, slots=True)
class SecureBroker:
    broker: Broker
    address: str  # of the listener with SASL and TLS
    ca: Path


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    folder = tmp_path_factory.mktemp("secure")
    ca, keystore = certificates(folder)
    port, secure, controller = distinct_ports(3)
    data = folder / "broker"
    data.mkdir()
    escaped = PLAIN_PASSWORD.replace("\\", "\\\\").replace('"', '\\"')  # for JAAS
    settings = SETTINGS.format(
        host=HOST,
        port=port,
        secure=secure,
        controller=controller,
        keystore=keystore,
        user=USER,
        password=escaped.replace("\\", "\\\\"),  # for the properties file
    )
    (data / OWN_SETTINGS).write_text(settings)
    with Broker(data, port=port) as broker:
        add_scram_user(broker)
        yield SecureBroker(broker, f"{HOST}:{secure}", ca)


def distinct_ports(count: int) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port(HOST))
    return list(ports)


def certificates(folder: Path) -> tuple[Path, Path]:
    """A CA of our own, and the broker's key with the certificates up to it, in one PEM file."""
    if shutil.which("openssl") is None:
        pytest.skip("SASL AND TLS ARE NOT TESTED: there is no openssl to make certificates with")
    subject = ["-subj", "/CN=retally tests", "-days", "2"]
    openssl(
        folder,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        *subject,
    )
    openssl(
        folder,
        "req",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "broker.key",
        "-out",
        "broker.csr",
        "-subj",
        f"/CN={HOST}",
    )
    (folder / "names").write_text(f"subjectAltName=IP:{HOST}\n")
    openssl(
        folder,
        "x509",
        "-req",
        "-in",
        "broker.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        "2",
        "-extfile",
        "names",
        "-out",
        "broker.pem",
    )
    keystore = folder / "keystore.pem"
    parts = [(folder / name).read_text() for name in ("broker.key", "broker.pem", "ca.pem")]
    keystore.write_text("".join(parts))
    return folder / "ca.pem", keystore


def openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def add_scram_user(broker: Broker) -> None:
    with admin_client(broker.address) as admin:
        wanted = UserScramCredentialUpsertion(USER, ScramMechanism.SCRAM_SHA_512, SCRAM_PASSWORD)
        assert admin.alter_user_scram_credentials([wanted]) == {USER: None}


def connections_file(folder: Path, secure: SecureBroker) -> Path:
    """One password from a file beside it, the other from the connections file itself."""
    (folder / "password").write_text(PLAIN_PASSWORD + "\n")
    shared = {"bootstrap": secure.address, "security": "SASL_SSL", "ssl": {"ca": str(secure.ca)}}
    plain = {"mechanism": "PLAIN", "username": USER, "password_file": "password"}
    scram = {"mechanism": "SCRAM-SHA-512", "username": USER, "password": SCRAM_PASSWORD}
    document = {"in": {**shared, "sasl": plain}, "out": {**shared, "sasl": scram}}
    path = folder / "connections.yaml"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path


def spec_of(topic: str) -> dict[str, Any]:
    return {
        "name": "guarded",
        "source": {"topic": topic, "connection": "in"},
        "columns": {"k": "STRING", "v": "INT"},
        "query": "SELECT k, COUNT(*) AS n, MAX(v) AS top FROM t GROUP BY k",
        "minibatch": {"size": 1, "max_rows": 20},
        "sink": {"topic": f"{topic}-changes", "partitions": 2, "connection": "out"},
        "state": {"buckets": 4},
    }


def run_watched(job: RunningJob, connections: Path) -> tuple[int, str, set[str]]:
    """Run it to the end; exit code, output, and the command lines of all its processes."""
    spec = job.home / "spec.yaml"
    spec.write_text(yaml.safe_dump(job.spec))
    words = ["run", str(spec), "--data", str(job.data), "--connections", str(connections), "-v"]
    output = job.home / "output"
    seen: set[str] = set()
    with output.open("wb") as sink:
        process = psutil.Popen(
            job.command(*words, "--until-caught-up"), stdout=sink, stderr=subprocess.STDOUT
        )
        while process.poll() is None:
            for each in [process, *process.children(recursive=True)]:
                try:
                    seen.add(" ".join(each.cmdline()))
                except psutil.Error:
                    continue
            try:
                process.wait(0.2)
            except psutil.TimeoutExpired:
                continue
    return process.returncode, output.read_text(errors="replace"), seen


def test_a_job_over_sasl_and_tls_is_exact_and_its_passwords_stay_secret(
    secure: SecureBroker, topic: str, tmp_path: Path
) -> None:
    plain = secure.broker.address
    create_topic(plain, topic, 2)
    inserted = [(n % 2, insert(row(f"k{n % 5}", n))) for n in range(60)]
    deleted = [(n % 2, delete(row(f"k{n % 5}", n))) for n in range(40, 60)]
    produce(plain, topic, [*inserted, *deleted, (0, b"bad")])
    job = RunningJob(spec_of(topic), tmp_path, plain)
    code, said, commands = run_watched(job, connections_file(tmp_path, secure))
    assert code == 0, said

    records = consumed(plain, job.spec["sink"]["topic"])
    must_be_in_order(records)
    published = sorted((record["value"] for record in records), key=place)
    assert published == job.ask("changes", "guarded")
    expected = [{"k": f"k{n}", "n": 8, "top": 35 + n} for n in range(5)]
    assert job.ask("results", "guarded") == expected
    assert len(job.part("quarantine")) == 1

    assert CANARY.decode() not in said
    assert any("publisher" in each for each in commands)
    assert not [each for each in commands if CANARY.decode() in each]
    files = [path for path in job.data.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if CANARY in path.read_bytes()]
