"""Failures that pass are tried again; those that another start cannot heal are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.core.fold.laws import BrokenLaw
from jobs.core.publish.protocol import Fatal
from jobs.core.time.custom_generator import GeneratorFailed
from jobs.edge.kafka.admin import KafkaAdmin, TopicMissing
from jobs.edge.kafka.range_consumer import RangeTimedOut
from jobs.edge.kafka.source import SourceChanged
from jobs.edge.machine.disk import DiskRefused
from jobs.edge.process.broker import Broker
from jobs.edge.publisher.handle import PublisherFailed
from jobs.edge.state.catch_up import ZombieTask
from jobs.edge.table.delta_epochs import CommitFailed, CommitUnknown, Fenced
from jobs.reading.files import FormatTooNew
from jobs.running.failure import Overtaken, SpecMisfit, classify, report_failure
from jobs.running.job import JobFailed
from jobs.running.outcome import InputRefused
from schemas.directory.documents import read_document
from schemas.directory.failure import Failure
from schemas.spec.broker_address import AddressRefused
from schemas.spec.file import load_spec
from schemas.table.epoch import FORMAT_VERSION
from service.supervision.register import Actual, Register
from tests.support.service.served import Served, eventually
from tests.support.service.tables import WatchedTable


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (SourceChanged("the topic was made again"), "source-changed", False),
        (InputRefused("cnt is gone"), "input-refused", False),
        (RangeTimedOut("nothing came for 60 s"), "failed", True),
        (SpecMisfit("another query"), "spec-misfit", False),
        (FormatTooNew("format 99"), "format-too-new", False),
        (Fenced("another writer"), "fenced", False),
        (Overtaken("while it started"), "overtaken", True),
        (BrokenLaw("U- without U+"), "law-broken", False),
        (PublisherFailed(Fatal("publisher-sink-changed", "x")), "publisher-sink-changed", False),
        (PublisherFailed(Fatal("fenced", "another")), "fenced", False),
        (PublisherFailed(Fatal("publisher-displaced", "by nobody")), "publisher-displaced", True),
        (PublisherFailed(Fatal("publisher-sink-taken", "another")), "publisher-sink-taken", False),
        (ZombieTask("the state is ahead"), "hot-state-ahead", False),
        (GeneratorFailed("the generator class a:B"), "generator-failed", False),
        (AddressRefused("169.254.169.254"), "address-refused", False),
        (
            PublisherFailed(Fatal("publisher-address-refused", "-")),
            "publisher-address-refused",
            False,
        ),
        (PublisherFailed(Fatal("publisher-unreachable", "no")), "publisher-unreachable", True),
        (CommitFailed("disk full"), "failed", True),
        (CommitUnknown("the storage is away"), "failed", True),
        (TopicMissing("no topic"), "failed", True),
        (JobFailed("the streaming query ended"), "failed", True),
        (OSError(28, "no space"), "failed", True),
        (DiskRefused("the disk of DIR is full"), "disk-refused", True),
    ],
)
def test_a_failure_says_whether_another_start_may_heal_it(
    error: Exception, code: str, retryable: bool, tmp_path: Path
) -> None:
    assert classify(error) == (code, retryable)
    report_failure(tmp_path / "failure.json", error)
    left = read_document(tmp_path / "failure.json", Failure)
    assert left is not None
    assert (left.code, left.retryable, left.reason) == (code, retryable, str(error))


def failed(served: Served, name: str) -> dict[str, Any]:
    with served.client() as client:
        assert client.post(f"/v1/jobs/{name}/start").status_code == 202
    found: dict[str, Any] = eventually(
        lambda: (job := served.job(name))["actual"] == "FAILED" and job, 40
    )
    return found


def _code_of(job: dict[str, Any]) -> tuple[str, bool]:
    failure = job["failure"]
    return failure["code"], failure["retryable"]


@pytest.mark.slow
def test_what_cannot_heal_is_not_started_again_and_the_rest_is(data: Path, broker: Broker) -> None:
    """The topic of `items` is shorter than what it has read; that of `later` may come."""
    with KafkaAdmin({"bootstrap_servers": [broker.address]}) as admin:
        admin.ensure_topic("t", 1, {})
    with Served.start(data, brokers=broker.address) as served:
        watched = WatchedTable(served)
        watched.write({"a": (1,)})
        for_good = failed(served, "items")
        assert _code_of(for_good) == ("source-changed", False)
        assert (for_good["retry_at"], for_good["failures"]) == (None, 1)
        assert "the topic ends at 0" in for_good["reason"]
        with served.client() as client:
            spec = load_spec(watched.table.place.spec).document()
            spec |= {"name": "later", "source": {"topic": f"{broker.address[-4:]}-not-there"}}
            assert client.put("/v1/jobs/later", json=spec).status_code == 201
            again = failed(served, "later")
            assert _code_of(again) == ("failed", True)
            eventually(lambda: served.job("later")["failures"] >= 2, 60)
            assert served.job("items")["failures"] == 1
            client.post("/v1/jobs/later/stop")  # it may be in the middle of another start
            eventually(lambda: served.job("later")["actual"] == "STOPPED", 120)


def test_a_register_of_before_gets_the_columns_that_are_new(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "register.sqlite") as old:
        old.execute(
            "CREATE TABLE jobs (name TEXT, revision INTEGER, spec TEXT, desired TEXT, actual TEXT, "
            "since INTEGER, reason TEXT, failures INTEGER, PRIMARY KEY (name))"
        )
        old.execute("INSERT INTO jobs VALUES ('a', 1, '{}', 'STOPPED', 'FAILED', 5, 'x', 1)")
    register = Register(tmp_path / "register.sqlite")
    register.change_job("a", failure="died")
    found = register.find_job("a")
    assert found is not None
    assert (found.failure, found.pid, found.since) == ("died", None, 5)
    register.report("a", Actual.STOPPED)
    assert (known := register.find_job("a")) is not None
    assert known.failure is None
    register.close()


def test_a_table_of_another_format_is_refused_and_not_an_error_inside(
    served: Served, client: Any
) -> None:
    watched = WatchedTable(served)
    log = watched.table.place.own_table / "_delta_log" / f"{0:020d}.json"
    text = log.read_text()
    version = f'"retally.formatVersion":"{FORMAT_VERSION}"'
    assert version in text
    log.write_text(text.replace(version, '"retally.formatVersion":"99"'))
    spec = load_spec(watched.table.place.spec).document() | {"retention": "1d"}
    answer = client.put("/v1/jobs/items", json=spec)
    assert (answer.status_code, answer.json()["code"]) == (409, "table-unreadable"), answer.text
