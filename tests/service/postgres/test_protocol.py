"""The protocol, byte for byte: what clients may send, and what attackers do."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import psycopg
import pytest

from schemas import limits
from service.access.tokens import Tokens
from service.paths import ServicePaths
from service.serving import create_token
from tests.support.service.postgres import (
    VERSION_3,
    Wire,
    find_code,
    frame,
    frame_startup,
    make_url,
    serve_items,
)
from tests.support.service.served import Served, eventually

SLOW = "SELECT SUM(i % 7) FROM range(100000000000) r(i)"
STARTUPS = {
    "http": b"POST /v1/sql HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "no size": struct.pack(">i", 0),
    "a negative size": struct.pack(">i", -5),
    "a huge size": struct.pack(">ii", 2**31 - 1, VERSION_3),
    "too long": frame_startup(b"user\0" + b"x" * limits.POSTGRES_STARTUP_BYTES_MAX),
    "another version": frame_startup(b"user\0me\0\0", 131072),
    "no user": frame_startup(b"\0"),
    "no end": frame_startup(b"user\0me"),
    "no text": frame_startup(b"user\0\xff\xfe\0\0"),
    "endless negotiation": struct.pack(">ii", 8, 80877103) * 10,
    "half a key": struct.pack(">iih", 10, 80877102, 1),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve_items(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with tokens; its own is an admin's."""
    data = tmp_path_factory.mktemp("guarded")
    with serve_items(data, token=create_token(data, "root", "admin")) as served:
        yield served


def is_answering(served: Served) -> bool:
    with psycopg.connect(make_url(served)) as connection:
        return connection.execute("SELECT count(*) FROM items").fetchone() == (3,)


def is_admitted(served: Served, token: str) -> bool:
    try:
        psycopg.connect(make_url(served, password=token)).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize("name", STARTUPS)
def test_a_startup_that_is_none_ends_its_connection_only(served: Served, name: str) -> None:
    with Wire(served) as wire:
        wire.send(STARTUPS[name])
        assert wire.is_ended()
    assert is_answering(served)


def test_tls_is_declined_and_a_newer_version_negotiated(served: Served) -> None:
    with Wire(served) as wire:
        for code in (80877103, 80877104):
            wire.send(struct.pack(">ii", 8, code))
            assert wire._take(1) == b"N"
        wire.send(frame_startup(b"user\0me\0_pq_.wish\0on\0\0", VERSION_3 + 2))
        kind, content = wire.receive()
        assert kind == b"v" and content.endswith(b"_pq_.wish\0")
        wire.receive_until(b"Z")


@pytest.mark.parametrize("size", [-1, 3, limits.POSTGRES_MESSAGE_BYTES_MAX + 5, 2**31 - 1])
def test_a_message_of_a_wrong_size_ends_its_connection(served: Served, size: int) -> None:
    with Wire(served) as wire:
        wire.start()
        wire.send(b"Q" + struct.pack(">i", size) + b"SELECT")
        kind, content = wire.receive()
        assert kind == b"E" and b"C08P01" in content and b"SFATAL" in content
        assert wire.is_ended()


def test_random_bytes_harm_nobody(served: Served) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        with Wire(served) as wire:
            wire.start()
            for _ in range(5):
                kind = chance.choice(
                    [b"P", b"B", b"D", b"E", b"C", b"S", b"H", b"Q", b"F", b"d", b"?"]
                )
                content = chance.randbytes(chance.choice([0, 1, 3, 20, 200]))
                if chance.random() < 0.5:
                    content = content.replace(b"\xff", b"\0") + bytes(chance.randint(0, 12))
                try:
                    wire.send(frame(kind, content))
                except ConnectionError:
                    break
    assert is_answering(served)


def test_a_limit_of_rows_suspends_a_statement(served: Served) -> None:
    with Wire(served) as wire:
        wire.start()
        parse = frame(b"P", b"s\0SELECT n FROM range(5) AS r(n)\0" + struct.pack(">h", 0))
        bind = frame(b"B", b"\0s\0" + struct.pack(">hhh", 0, 0, 0))
        wire.send(parse, frame(b"D", b"Ss\0"), bind)
        for count in (2, 2, 2, 2):
            wire.send(frame(b"E", b"\0" + struct.pack(">i", count)))
        wire.send(frame(b"S"))
        kinds = b"".join(kind for kind, _ in wire.receive_until(b"Z"))
        assert kinds == b"1tT2DDsDDsDCCZ"
        wire.send(frame(b"E", b"\0" + struct.pack(">i", 0)), frame(b"S"))
        assert find_code(wire.receive_until(b"Z")) == "34000"  # it ended with its transaction


def test_a_described_statement_has_the_types_of_its_parameters(served: Served) -> None:
    with Wire(served) as wire:
        wire.start()
        sql = b"SELECT $1::int + 1 AS a, $2 AS b, '$9' AS c, total = ANY($3::bigint[]) FROM items"
        wire.send(frame(b"P", b"s\0" + sql + b"\0\0\0"), frame(b"D", b"Ss\0"))
        values = struct.pack(">iii", 4, 41, 1) + b"x" + struct.pack(">i", -1)
        bind = struct.pack(">hhh", 1, 1, 3) + values + struct.pack(">hh", 1, 1)
        wire.send(frame(b"B", b"\0s\0" + bind), frame(b"E", bytes(5)), frame(b"S"))
        found = wire.receive_until(b"Z")
        assert find_code(found) == ""
        assert (b"t", struct.pack(">hIII", 3, 23, 25, 1016)) in found
        row = struct.pack(">hiii", 4, 4, 42, 1) + b"x" + struct.pack(">i", 2) + b"$9"
        assert sum(kind == b"D" and content.startswith(row) for kind, content in found) == 3


def test_what_follows_a_mistake_is_skipped_until_sync(served: Served) -> None:
    with Wire(served) as wire:
        wire.start()
        wire.send(frame(b"D", b"Snone\0"), frame(b"P", b"\0SELECT 1\0\0\0"), frame(b"S"))
        found = wire.receive_until(b"Z")
        assert [kind for kind, _ in found] == [b"E", b"Z"] and find_code(found) == "26000"
        assert [kind for kind, _ in wire.query("SELECT 1")] == [b"T", b"D", b"C", b"Z"]
        for empty in ("", " ; ", "-- nothing", "/* nothing */ ;\n"):
            assert [kind for kind, _ in wire.query(empty)] == [b"I", b"Z"]
        assert find_code(wire.query("BEGIN; DECLARE C CURSOR FOR SELECT 1; FETCH c; CLOSE c")) == ""
        assert find_code(wire.query('DECLARE "C" CURSOR FOR SELECT 1; FETCH c')) == "34000"
        assert find_code(wire.query("/* no more */ ROLLBACK")) == ""


def test_what_a_connection_keeps_is_bounded(served: Served) -> None:
    with Wire(served) as wire:
        wire.start()
        for number in range(limits.POSTGRES_STATEMENTS_MAX + 1):
            wire.send(frame(b"P", b"s%d\0SELECT 1\0\0\0" % number))
        wire.send(frame(b"S"))
        assert find_code(wire.receive_until(b"Z")) == "53400"
        wire.send(frame(b"Q", b"DEALLOCATE ALL\0"))
        wire.receive_until(b"Z")
        value = struct.pack(">i", 900_000) + b"x" * 900_000
        wire.send(frame(b"P", b"s\0SELECT $1\0\0\0"))
        for number in range(5):
            bind = b"p%d\0s\0" % number + struct.pack(">hh", 0, 1) + value + bytes(2)
            wire.send(frame(b"B", bind))
        wire.send(frame(b"S"))
        assert find_code(wire.receive_until(b"Z")) == "53400"
        long = "SELECT '" + "x" * limits.QUERY_CHARACTERS_MAX + "'"
        assert find_code(wire.query(long)) == "54001"


def test_another_connection_cancels_with_the_key(served: Served) -> None:
    with Wire(served) as wire:
        process, secret = wire.start()
        wire.send(frame(b"Q", SLOW.encode() + b"\0"))
        time.sleep(1)
        for key in ((process, secret ^ 1), (process, secret)):
            with Wire(served) as other:
                other.send(struct.pack(">iiii", 16, 80877102, *key))
                assert other.is_ended()
            if key[1] != secret:
                wire.socket.settimeout(1)
                with pytest.raises(TimeoutError):
                    wire.receive()
                wire.socket.settimeout(20)
        assert find_code(wire.receive_until(b"Z")) == "57014"
        assert [kind for kind, _ in wire.query("SELECT 1")] == [b"T", b"D", b"C", b"Z"]


def test_a_statement_ends_with_its_client(served: Served) -> None:
    for _ in range(6):  # more than run at once
        with Wire(served) as wire:
            wire.start()
            wire.send(frame(b"Q", SLOW.encode() + b"\0"), frame(b"P", b"\0SELECT 1\0\0\0"))
            time.sleep(0.2)
    began = time.monotonic()
    assert is_answering(served)
    assert time.monotonic() - began < 5


def test_a_thousand_silent_connections_keep_nobody_out(served: Served) -> None:
    place = served.postgres.removeprefix("postgresql://").split(":")
    with ExitStack() as held:
        for number in range(1_000):
            silent = socket.create_connection((place[0], int(place[1])), timeout=20)
            held.enter_context(silent)
            if number % 100 == 0:
                assert is_answering(served)
        assert is_answering(served)


def test_no_more_sign_in_than_there_are_places(guarded: Served) -> None:
    token = create_token(guarded.data, "pool", "viewer")
    with ExitStack() as held:
        for _ in range(limits.POSTGRES_CONNECTIONS_OF_TOKEN_MAX):
            held.enter_context(Wire(guarded)).start(token)
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            psycopg.connect(make_url(guarded, password=token))
        assert guarded.token is not None
        psycopg.connect(make_url(guarded, password=guarded.token)).close()
    eventually(lambda: is_admitted(guarded, token), 10)


def test_a_token_is_the_password_and_any_role_reads(guarded: Served) -> None:
    token = create_token(guarded.data, "ana", "viewer")
    for wrong in ("", "rt_wrong", token + "x", "x" * 5_000):
        with pytest.raises(psycopg.OperationalError, match=r"no valid token|password"):
            psycopg.connect(make_url(guarded), password=wrong)
    with psycopg.connect(make_url(guarded, password=token), autocommit=True) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("me",)
        Tokens(ServicePaths(guarded.data).tokens).revoke("ana")
        with pytest.raises(psycopg.OperationalError, match="no longer valid"):
            connection.execute("SELECT 1")
    lines = (guarded.data / "service" / "trail-reads.log").read_text()
    assert '"who":"ana"' in lines and '"path":"postgres"' in lines


def test_a_statement_that_reads_is_in_the_audit_log(guarded: Served) -> None:
    assert guarded.token is not None
    with psycopg.connect(make_url(guarded, password=guarded.token)) as connection:
        connection.execute("SELECT * FROM items AT EPOCH 1")
    last = (guarded.data / "service" / "trail-reads.log").read_text().splitlines()[-1]
    assert '"reads":["items AT EPOCH 1"]' in last and '"status":200' in last


def test_the_service_ends_while_clients_are_there(tmp_path: Path) -> None:
    with serve_items(tmp_path) as served, Wire(served) as idle, Wire(served) as busy:
        idle.start()
        busy.start()
        busy.send(frame(b"Q", SLOW.encode() + b"\0"))
        time.sleep(0.5)
        began = time.monotonic()
        assert served.stop() == 0
        assert time.monotonic() - began < 10
        assert b"C57P01" in idle.receive()[1] and idle.is_ended() and busy.is_ended()


def test_statements_and_connections_are_in_the_metrics(tmp_path: Path) -> None:
    with (
        serve_items(tmp_path, create_token(tmp_path, "root", "admin")) as served,
        served.client() as client,
        Wire(served) as wire,
        Wire(served) as waiting,
    ):
        assert not is_admitted(served, "rt_wrong")
        wire.start(served.token or "")
        wire.query("SELECT 1")
        wire.query("SELECT nope")
        assert client.post("/v1/sql", json={"sql": "SELECT 1"}).status_code == 200
        wire.send(frame(b"Q", SLOW.encode() + b"\0"))
        time.sleep(0.5)
        wire.socket.close()
        counted, statements = 'retally_sql_statement_seconds_count{protocol="postgres"}', 3
        read = partial(read_samples, client)
        eventually(lambda: read().get(counted) == statements, 10)
        waiting.send(b"\0")
        open_ = 'retally_postgres_connections{state="waiting"}'
        eventually(lambda: read().get(open_) == 1, 10)
        for name, value in {
            'retally_postgres_connections{state="signed_in"}': 0,
            'retally_postgres_refused_total{sqlstate="28P01"}': 1,
            'retally_sql_statements_total{protocol="http",outcome="answered"}': 1,
            'retally_sql_statements_total{protocol="postgres",outcome="answered"}': 1,
            'retally_sql_statements_total{protocol="postgres",outcome="refused"}': 1,
            'retally_sql_statements_total{protocol="postgres",outcome="cancelled"}': 1,
        }.items():
            assert read()[name] == value, name


def read_samples(client: httpx.Client) -> dict[str, float]:
    lines = client.get("/metrics").text.splitlines()
    samples = (line.rpartition(" ") for line in lines if line[0] != "#")
    return {name: float(value) for name, _, value in samples}
