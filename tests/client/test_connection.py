"""What only a service of the test can do: redirects, cuts, gaps, answers of proxies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import retally
from retally.following import EventParser

TOKEN = "rt_secret"
Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass(slots=True)
class Scripted:
    """A service that answers each request with the next of its answers."""

    answers: list[Answer]
    requests: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    address: str = ""


@contextmanager
def scripted(*answers: Answer) -> Iterator[Scripted]:
    script = Scripted(list(answers))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            script.requests.append(f"{self.command} {self.path}")
            script.tokens.append(self.headers["Authorization"])
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            script.answers.pop(0)(self)

        do_POST = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            """It says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        script.address = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()


def answer(status: int, body: bytes, **headers: str) -> Answer:
    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return write


def document(status: int = 200, **fields: object) -> Answer:
    fields |= {"status": status} if status >= 400 else {}
    return answer(status, json.dumps(fields).encode())


def cut(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def events(*found: str) -> Answer:
    """Answer with events, and end the connection after them."""

    def write(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write("".join(found).encode())
        handler.close_connection = True

    return write


def change(epoch: int, seq: int | None, name: str = "a") -> str:
    identity = "" if seq is None else f"id: {epoch}:{seq}\n"
    row = {"op": "+I", "epoch": epoch, "row": {"name": name}}
    row |= {} if seq is None else {"seq": seq}
    return f"event: change\n{identity}data: {json.dumps(row, ensure_ascii=False)}\n\n"


def progress(epoch: int) -> str:
    data = {"epoch": epoch, "watermark": None, "changes": 1}
    return f"event: progress\nid: {epoch}:9:t\ndata: {json.dumps(data)}\n\n"


GONE = {"code": "history-gone", "detail": "history was removed", "oldest": 5}


# --- addresses and tokens ---------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_token_follows_no_redirect(status: int) -> None:
    with scripted() as other, scripted() as service:
        service.answers.append(answer(status, b"", Location=f"{other.address}/v1/jobs/x"))
        service.answers.append(answer(status, b"", Location=f"{other.address}/v1/jobs/x/start"))
        service.answers.append(answer(status, b"", Location=f"{other.address}/stream"))
        with retally.connect(service.address, TOKEN) as client:
            for use in (
                lambda: client.job("x"),
                lambda: client.start("x"),
                lambda: next(client.follow("x", 1)),
            ):
                with pytest.raises(retally.RetallyError, match="redirects to") as refused:
                    use()
                assert TOKEN not in str(refused.value)
        assert (other.requests, len(service.requests)) == ([], 3)
        assert set(service.tokens) == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:8080",
        "ftp://host",
        "http://",
        "http://me:word@host",
        "http://host/?a=b",
        "http://host:port",
    ],
)
def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        retally.connect(address, TOKEN)


@pytest.mark.parametrize("key", [None, ""])
def test_a_key_that_an_address_cannot_have_names_its_column(key: str | None) -> None:
    with scripted(document(epoch=1, row={})) as service:
        with retally.connect(service.address) as client:
            with pytest.raises(ValueError, match="name the column of the key"):
                client.group("x", key)
            assert client.group("x", {"name": key}).epoch == 1
        assert len(service.requests) == 1


def test_a_client_shows_its_address_and_not_its_token() -> None:
    with retally.connect("http://host/below", TOKEN) as client:
        assert repr(client) == "<Client of http://host/below>"


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a?b", "a#b", "%2e", "ü", "a b"])
def test_every_name_is_one_segment_below_the_base_url(name: str) -> None:
    with scripted(document(name="x")) as service:
        with retally.connect(service.address + "/base/") as client:
            client.job(name)
        (request,) = service.requests
        assert request.startswith("GET /base/v1/jobs/")
        assert request.count("/") == 4 and request[-1] != "." and "?" not in request


def test_a_proxy_of_the_environment_is_not_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with scripted(document(name="x")) as service, scripted() as proxy:
        monkeypatch.setenv("http_proxy", proxy.address)
        monkeypatch.delenv("no_proxy", raising=False)
        with retally.connect(service.address, TOKEN) as client:
            assert client.job("x").name == "x"
        assert proxy.requests == []


# --- answers and errors -----------------------------------------------------------------------


def test_a_refusal_has_what_its_document_says() -> None:
    problem = {
        "code": "spec-invalid",
        "detail": "the spec has 1 error",
        "advice": "correct it",
        "errors": [{"path": "columns.v", "line": 2, "message": "unknown type"}],
    }
    busy = answer(429, b'{"status": 429, "code": "too-busy"}', Retry_After="7")
    with (
        scripted(document(422, **problem), busy) as service,
        retally.connect(service.address) as client,
    ):
        with pytest.raises(retally.Refused) as refused:
            client.put("name: x", "x")
        with pytest.raises(retally.Refused) as later:
            client.job("x")
    error = refused.value
    assert (error.code, error.status, error.retryable) == ("spec-invalid", 422, False)
    assert str(error).splitlines() == [
        "spec-invalid: the spec has 1 error",
        "  2:columns.v: unknown type",
        "correct it",
    ]
    assert (later.value.retryable, later.value.retry_after) == (True, 7.0)


def test_a_page_of_a_proxy_is_a_refusal_too() -> None:
    with (
        scripted(answer(502, b"<html>" + b"x" * 9_999), answer(403, b"[]")) as service,
        retally.connect(service.address) as client,
    ):
        with pytest.raises(retally.Refused) as refused:
            client.job("x")
        assert (refused.value.code, refused.value.retryable) == ("unknown", True)
        assert len(refused.value.detail) < 300
        with pytest.raises(retally.Refused, match="unknown"):
            client.job("x")


def test_a_read_is_sent_again_on_a_closed_connection_and_a_change_never() -> None:
    kept = document(name="x")
    with scripted(kept, cut, kept, cut) as service:
        with retally.connect(service.address) as client:
            assert client.job("x").name == client.job("x").name == "x"
            assert service.requests == ["GET /v1/jobs/x"] * 3
            with pytest.raises(retally.Unreachable, match="does not answer"):
                client.start("x")
        assert service.requests[3:] == ["POST /v1/jobs/x/start"]


def test_fields_are_attributes_and_a_wrong_one_is_an_error() -> None:
    found = document(name="x", lag={"records": 3, "partitions": {}}, pending_list=[{"a": 1}])
    with scripted(found) as service, retally.connect(service.address) as client:
        job = client.job("x")
    assert (job.lag.records if job.lag else None, job.pending) == (3, None)
    assert job["pending_list"][0].a == 1, "a field of a newer service"
    assert json.loads(json.dumps(job)) == job
    with pytest.raises(AttributeError, match="Job has no field 'naem'"):
        job.naem  # type: ignore[attr-defined]  # noqa: B018


# --- streams ----------------------------------------------------------------------------------


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4),
    st.lists(st.integers(1, 40), max_size=40),
    st.sampled_from(["\n", "\r\n"]),
)
def test_events_are_the_same_however_their_bytes_arrive(
    names: list[str], sizes: list[int], end: str
) -> None:
    """Names have every character, U+2028 and U+0085 too; only line feeds separate lines."""
    text = ": still here\n\n" + "".join(change(1, n, name) for n, name in enumerate(names))
    left = text.replace("\n", end).encode()
    parser = EventParser()
    found: list[tuple[str, str | None, str]] = []
    for size in [*sizes, len(left)]:
        found += parser.feed(left[:size])
        left = left[size:]
    assert [json.loads(data)["row"]["name"] for _, _, data in found] == names
    assert [identity for _, identity, _ in found] == [f"1:{n}" for n in range(len(names))]


def positions(service: Scripted) -> list[str]:
    return [each.partition("?")[2] for each in service.requests]


def test_a_stream_continues_after_its_last_event() -> None:
    with (
        scripted(
            events(change(1, 0), change(1, 1)[:-5]),
            cut,
            document(503, code="too-busy"),
            events(change(1, 1), progress(1), change(2, 0)),
            events(progress(2)),
        ) as service,
        retally.connect(service.address) as client,
    ):
        found = list(islice(client.follow("x", 0), 5))
    seen = [(type(each).__name__, getattr(each, "epoch", None)) for each in found]
    assert seen == [("Change", 1), ("Change", 1), ("Progress", 1), ("Change", 2), ("Progress", 2)]
    assert positions(service) == ["since=0", *["since=1%3A0"] * 3, "since=2%3A0%3At"]
    assert [each.position for each in found if isinstance(each, retally.Progress)][-1] == "2:9:t"


def test_a_gap_is_an_error_or_a_new_snapshot() -> None:
    gone = f"event: gone\ndata: {json.dumps({**GONE, 'status': 410})}\n\n"
    with (
        scripted(document(410, **GONE), events(change(1, 0), gone)) as service,
        retally.connect(service.address) as client,
    ):
        with pytest.raises(retally.Gap, match="removed") as early:
            next(client.follow("x", 1))
        stream = client.follow("x", 1)
        next(stream)
        with pytest.raises(retally.Gap):
            next(stream)
    assert (early.value.oldest, early.value.status) == (5, 410)
    with (
        scripted(
            events(change(1, 0), gone),
            events(change(7, None)),
            events(change(8, None), progress(8)),
        ) as service,
        retally.connect(service.address) as client,
    ):
        found = list(islice(client.follow("x", 0, resnapshot=True), 6))
    kinds = [type(each).__name__ for each in found]
    # Rows of the snapshot that was cut are void too: the second may lack groups of the first.
    assert kinds == ["Change", "Restarted", "Change", "Restarted", "Change", "Progress"]
    assert positions(service) == ["since=0", "snapshot=true", "snapshot=true"]


def test_patience_ends() -> None:
    with scripted() as service:
        address = service.address
    with retally.connect(address) as client, pytest.raises(retally.Unreachable):
        next(client.follow("x", 1, patience=0.2))


def test_a_stream_that_is_left_closes_its_connection() -> None:
    closed: list[bool] = []

    def endless(handler: BaseHTTPRequestHandler) -> None:
        events(change(1, 0))(handler)
        closed.append(handler.rfile.read(1) == b"")

    async def leave(address: str) -> Any:
        async with retally.connect_async(address) as client:
            stream = client.follow("x", 0)
            found = await anext(stream)
            await stream.aclose()
            return found

    with scripted(endless, endless) as service:
        with retally.connect(service.address) as client:
            for event in client.follow("x", 0):
                assert isinstance(event, retally.Change)
                break
        assert asyncio.run(leave(service.address)).epoch == 1
    assert closed == [True, True]
