"""Which service a client's requests go to; tests/service/test_standby.py has real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import httpx
import pytest

from retally import leader
from retally.errors import Refused, RetallyError, Unreachable
from retally.http import Request
from retally.leader import LeaderConnection

URL, LEADER = "http://standby:1", "http://leader:1"
BOTH = f"{URL}, {LEADER}/"
CHANGE, READ = Request("PUT", "/v1/jobs/x"), Request("GET", "/v1/jobs/x")
DONE = httpx.Response(200)
Answer = httpx.Response | RetallyError


def reads_only(named: object) -> Refused:
    return Refused({"status": 503, "code": "not-the-leader", "detail": "reads", "leader": named})


def unreachable(cause: Exception) -> Unreachable:
    error = Unreachable("does not answer")
    error.__cause__ = cause
    return error


GONE = unreachable(httpx.ConnectError("refused"))
CUT = unreachable(httpx.ReadError("cut"))


@dataclass(slots=True)
class Services:
    """Services by address, with their answers; the last one repeats."""

    answers: dict[str, list[Answer]]
    asked: list[tuple[str, str]] = field(default_factory=list)

    def connect(self, address: str) -> Scripted:
        if "://" not in address:
            raise ValueError(f"{address!r} is not an address")
        return Scripted(address, self)

    def send(self, *requests: Request, url: str = BOTH) -> list[str]:
        """Send requests with one client; return who got them, in order."""

        async def send() -> None:
            connection = LeaderConnection(self.connect, url)
            for each in requests:
                await connection.send(each)
            await connection.close()

        try:
            asyncio.run(send())
        finally:
            asked = [address for address, _ in self.asked]
        return asked


@dataclass(slots=True, eq=False)
class Scripted:
    address: str
    services: Services

    async def send(self, request: Request) -> httpx.Response:
        self.services.asked.append((self.address, request.method))
        answers = self.services.answers[self.address]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, RetallyError):
            raise answer
        return answer

    async def stream(self, request: Request) -> AsyncGenerator[bytes, None]:
        await self.send(request)
        yield self.address.encode()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        self.services.asked.append((self.address, "close"))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(leader, "TAKEOVER_SECONDS", 0.2)


def test_a_change_goes_to_the_leader_and_later_requests_follow_it() -> None:
    services = Services({URL: [reads_only(LEADER)], LEADER: [DONE]})
    assert services.send(CHANGE, READ, CHANGE)[:4] == [URL, LEADER, LEADER, LEADER]
    assert services.asked[4:] == [(URL, "close"), (LEADER, "close")]


def test_reads_alone_stay_where_they_are() -> None:
    services = Services({URL: [DONE]})
    assert services.send(READ, READ)[:2] == [URL, URL]


def test_a_takeover_is_waited_for() -> None:
    """The leader ends; the standby leads a moment later."""
    answers: list[Answer] = [reads_only(LEADER), reads_only(None), reads_only(None), DONE]
    services = Services({URL: answers, LEADER: [DONE, GONE]})
    asked = services.send(CHANGE, CHANGE)
    assert asked[:8] == [URL, LEADER, LEADER, URL, LEADER, URL, LEADER, URL]


def test_a_standby_that_starts_again_to_lead_is_waited_for() -> None:
    services = Services({URL: [reads_only(LEADER), GONE, GONE, DONE], LEADER: [GONE]})
    assert services.send(CHANGE)[:7] == [URL, LEADER, URL, LEADER, URL, LEADER, URL]
    services = Services({URL: [reads_only(None), GONE, DONE]})
    assert services.send(CHANGE, url=URL)[:3] == [URL, URL, URL]


def test_a_leader_that_was_deposed_leads_back() -> None:
    services = Services({URL: [reads_only(LEADER), DONE], LEADER: [reads_only(URL)]})
    assert services.send(CHANGE)[:3] == [URL, LEADER, URL]


@pytest.mark.parametrize(
    ("answers", "raised"),
    [
        ({URL: [reads_only(None)], LEADER: [reads_only(None)]}, Refused),
        ({URL: [reads_only(LEADER)], LEADER: [GONE]}, RetallyError),
        ({URL: [GONE], LEADER: [GONE]}, Unreachable),
        ({URL: [reads_only(LEADER)], LEADER: [reads_only(URL)]}, Refused),
    ],
    ids=["nobody leads", "the leader is gone", "all are gone", "each names the other"],
)
def test_the_time_is_bounded(answers: dict[str, list[Answer]], raised: type[Exception]) -> None:
    services = Services(answers)
    with pytest.raises(raised):
        services.send(CHANGE)
    assert 3 < len(services.asked) < 60


def test_a_change_that_may_have_arrived_is_not_sent_again_but_a_read_is() -> None:
    services = Services({URL: [reads_only(LEADER), DONE], LEADER: [CUT]})
    with pytest.raises(Unreachable):
        services.send(CHANGE)
    assert services.asked == [(URL, "PUT"), (LEADER, "PUT")]
    services = Services({URL: [reads_only(LEADER), DONE], LEADER: [DONE, CUT]})
    assert services.send(CHANGE, READ)[:4] == [URL, LEADER, LEADER, URL]


def test_the_only_service_is_not_asked_again_and_of_several_the_next_is() -> None:
    services = Services({URL: [GONE], LEADER: [DONE]})
    with pytest.raises(Unreachable):
        services.send(READ, url=URL)
    assert services.asked == [(URL, "GET")]
    assert services.send(READ, CHANGE)[1:4] == [URL, LEADER, LEADER]


@pytest.mark.parametrize("named", ["https://x", f"{LEADER}/x", "leader", "http://127.0.0.1", 7, []])
def test_a_token_goes_to_no_address_that_a_service_names(named: object) -> None:
    """The next service of the list is asked instead: it may be the leader by another name."""
    services = Services({URL: [reads_only(named)], LEADER: [DONE]})
    assert services.send(CHANGE)[:2] == [URL, LEADER]
    with pytest.raises(Refused, match="not-the-leader"):
        services.send(CHANGE, url=URL)
    assert {address for address, _ in services.asked} == {URL, LEADER}


def test_an_only_service_that_names_another_leader_is_asked_twice() -> None:
    services = Services({URL: [reads_only(LEADER)]})
    with pytest.raises(Refused) as refused:
        services.send(CHANGE, url=URL)
    assert services.asked == [(URL, "PUT")] * 2
    assert str(refused.value).count("name all services as URL,URL") == 1
    assert refused.value.document["leader"] == LEADER
    # The standby at the only address takes over, or a proxy there chooses the leader.
    services = Services({URL: [reads_only(LEADER), reads_only(None), reads_only(None), DONE]})
    assert services.send(CHANGE, url=URL)[:4] == [URL] * 4


@pytest.mark.parametrize("written", ["", f"{URL},", f"{URL},leader"])
def test_each_of_several_addresses_must_be_one(written: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        Services({}).send(READ, url=written)


def test_other_refusals_are_the_caller_s() -> None:
    refused = Refused({"status": 503, "code": "too-busy", "leader": LEADER})
    services = Services({URL: [refused]})
    with pytest.raises(Refused, match="too-busy"):
        services.send(CHANGE)
    assert services.asked == [(URL, "PUT")]


def test_a_stream_goes_where_the_other_requests_go() -> None:
    services = Services({URL: [reads_only(LEADER), DONE], LEADER: [DONE, CUT]})

    async def read(connection: LeaderConnection) -> list[bytes]:
        return [piece async for piece in connection.stream(READ)]

    async def work() -> None:
        connection = LeaderConnection(services.connect, BOTH)
        await connection.send(CHANGE)
        with pytest.raises(Unreachable):
            await read(connection)
        assert await read(connection) == [URL.encode()]

    asyncio.run(work())
