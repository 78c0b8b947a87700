"""Brokers that send their clients to where they should not go: nobody goes, and it is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from jobs.edge.kafka import admin as kafka_admin
from jobs.edge.kafka.admin import KafkaAdmin, KafkaError
from jobs.edge.publisher.handle import Publisher, PublisherFailed
from jobs.topics.consumer import BrokersRefused
from jobs.topics.samples import read_newest
from schemas.spec.broker_address import AddressRefused
from schemas.spec.connections import load_connections
from service.answers.samples import make_topics_problem
from tests.support.jobs.running_job import RunningJob
from tests.support.lying_broker import Door, LyingBroker, lying_broker, outer_address
from tests.support.publisher_configuration import configuration
from tests.support.service.served import eventually

METADATA_SERVICE = ("169.254.169.254", 80)


@pytest.fixture
def door() -> Iterator[Door]:
    door = Door("127.0.0.99")
    yield door
    door.close()


@pytest.fixture
def broker(door: Door) -> Iterator[LyingBroker]:
    """Met at an address that others reach too; it says that it is behind the door."""
    outer = outer_address()
    if outer is None:
        pytest.skip("NOT TRIED: this machine has no address but loopback")
    with lying_broker(outer, door.address) as broker:
        yield broker


def test_where_clients_are_sent_is_known_before_they_go(broker: LyingBroker, door: Door) -> None:
    with pytest.raises(AddressRefused, match=f"advertise 127.0.0.99:{door.address[1]}"):
        KafkaAdmin({"bootstrap_servers": [broker.address]})
    assert broker.asked
    assert door.knocks() == 0


def test_negative_control_without_the_rule_they_go(
    broker: LyingBroker, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_admin, "require_allowed_brokers", lambda _: None)
    with KafkaAdmin({"bootstrap_servers": [broker.address]}, seconds_max=2) as admin:
        assert door.knocks() == 0  # to begin is to ask the bootstrap addresses only

        def ask() -> None:
            with suppress(KafkaError):
                admin.topic("t")

        asking = threading.Thread(target=ask, name="asking")
        asking.start()
        eventually(door.knocks, 10)
    asking.join()


def test_the_metadata_service_of_a_cloud_is_no_broker_whoever_says_so() -> None:
    with (
        lying_broker("127.0.0.1", METADATA_SERVICE) as broker,
        pytest.raises(AddressRefused, match=r"169\.254\.169\.254:80, which is a link-local"),
    ):
        KafkaAdmin({"bootstrap_servers": broker.address})


def test_a_job_ends_with_a_code_that_is_not_tried_again(
    broker: LyingBroker, door: Door, tmp_path: Path
) -> None:
    spec = {
        "name": "items",
        "source": {"topic": "t"},
        "columns": {"name": "STRING"},
        "query": "SELECT name, COUNT(*) AS n FROM t GROUP BY name",
    }
    job = RunningJob(spec, tmp_path, broker.address)
    code, said = job.run()
    assert code == 1
    assert f"advertise 127.0.0.99:{door.address[1]}" in said
    failure = json.loads((job.table.parent / "failure.json").read_text())
    assert (failure["code"], failure["retryable"]) == ("address-refused", False)
    assert not job.table.exists()
    assert door.knocks() == 0


def test_a_publisher_ends_for_good(broker: LyingBroker, door: Door) -> None:
    publisher = Publisher(configuration(broker.address, "t"))
    with pytest.raises(PublisherFailed) as refused:
        publisher.start()
    assert refused.value.fatal.code == "publisher-address-refused"
    assert "127.0.0.99" in refused.value.fatal.reason
    assert door.knocks() == 0


def test_the_service_shows_no_messages_of_such_brokers(broker: LyingBroker, door: Door) -> None:
    with pytest.raises(BrokersRefused) as refused:
        read_newest(load_connections(None, broker.address).lookup("default"), ["t"])
    problem = make_topics_problem("default", refused.value)
    assert problem.code == "address-refused"
    assert "127.0.0.99" not in problem.detail  # operators' addresses are not for everybody
    assert door.knocks() == 0
