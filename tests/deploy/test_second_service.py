"""`docker compose up --scale service=2`, as processes: two of one command on an empty volume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import retally
from retally import leader as client_leader
from service.paths import ServicePaths
from service.supervision.leadership import LeaderWatch
from tests.deploy.containers import Container, Stack
from tests.support.service.served import NO_BROKER, SPEC, START_SECONDS_MAX


@pytest.fixture
def services(tmp_path: Path) -> Iterator[dict[str, Container]]:
    """Both at once, by address."""
    stack = Stack(tmp_path, NO_BROKER)
    both = [stack.containers["service"], stack.second_service()]
    try:
        for each in both:
            each.start()
        for each in both:
            each.until_healthy()
        yield {f"http://{each.address}:8080": each for each in both}
    finally:
        stack.down()


def test_one_of_two_leads_and_the_other_follows_it(
    services: dict[str, Container], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_leader, "TAKEOVER_SECONDS", START_SECONDS_MAX)
    watch = LeaderWatch(ServicePaths(tmp_path / "data"))
    assert watch.learn_address()
    leader = watch.address
    assert leader in services
    (standby,) = services.keys() - {leader}
    with retally.connect(f"{standby},{leader}") as client:
        assert client.put(SPEC, "first").revision == 1
        services[leader].kill()
        assert client.put(SPEC, "second").revision == 1
