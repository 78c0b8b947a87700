"""Encrypted connections: real clients check the certificate, and nothing goes without it."""

from __future__ import annotations

import os
import shutil
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from schemas import limits
from service.postgres.certificate import Certificate
from service.serving import create_token
from tests.support.service.postgres import Wire, find_code, frame_startup, make_url, serve_items
from tests.support.service.served import Served

SSL_REQUEST = struct.pack(">ii", 8, 80877103)

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None,
    reason="TLS OF POSTGRESQL'S CLIENTS IS NOT TESTED: there is no openssl to make certificates",
)


def make_certificate(folder: Path, name: str, *more: str) -> tuple[Path, Path]:
    """Return a certificate of this machine that has signed itself, and its key."""
    chain, key = folder / f"{name}.pem", folder / f"{name}.key"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", f"/CN={name}"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(chain)]
    protection = list(more) or ["-nodes"]
    subprocess.run([*words, *names, *protection], check=True, capture_output=True)
    return chain, key


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, files: tuple[Path, Path]) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("guarded")
    token = create_token(data, "root", "admin")
    chain, key = map(str, files)
    with serve_items(data, token, "--pg-tls-cert", chain, "--pg-tls-key", key) as served:
        yield served


def connect(served: Served, mode: str, root: Path | None = None) -> psycopg.Connection:
    assert served.token is not None
    more = "" if root is None else f"&sslrootcert={root}"
    url = make_url(served, password=served.token)
    return psycopg.connect(f"{url}?sslmode={mode}{more}", autocommit=True)


def test_clients_read_and_check_the_certificate(
    guarded: Served, files: tuple[Path, Path], tmp_path: Path
) -> None:
    for mode, root in (("prefer", None), ("require", None), ("verify-full", files[0])):
        with connect(guarded, mode, root) as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("SELECT count(*) FROM items").fetchone() == (3,)
    other, _ = make_certificate(tmp_path, "other")
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        connect(guarded, "verify-full", other)


@pytest.mark.skipif(shutil.which("psql") is None, reason="psql is not installed")
def test_psql_says_that_it_is_encrypted(guarded: Served, files: tuple[Path, Path]) -> None:
    assert guarded.token is not None
    url = make_url(guarded, password=guarded.token)
    url += f"?sslmode=verify-full&sslrootcert={files[0]}"
    command = [
        "psql",
        "-X",
        "-A",
        "-t",
        url,
        "-c",
        "\\conninfo",
        "-c",
        "SELECT top FROM items ORDER BY 1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "TLSv1.3" in done.stdout and done.stdout.endswith("1\n2\n4\n"), done


def test_large_statements_and_answers_pass(guarded: Served) -> None:
    text = "x" * (limits.QUERY_CHARACTERS_MAX - 1_000)
    with connect(guarded, "require") as connection:
        for _ in range(3):
            assert connection.execute(f"SELECT '{text}'").fetchone() == (text,)
        sql = "SELECT n, repeat('x', 500) FROM range(50000) AS r(n)"
        assert len(connection.execute(sql).fetchall()) == 50_000
        value = "y" * (limits.POSTGRES_MESSAGE_BYTES_MAX - 1_000)
        assert connection.execute("SELECT %s", (value,)).fetchone() == (value,)


def test_a_statement_is_cancelled_and_ends_with_its_client(guarded: Served) -> None:
    slow = "SELECT SUM(i % 7) FROM range(100000000000) r(i)"
    with connect(guarded, "require") as connection:
        threading.Timer(1, connection.cancel_safe).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(slow)
    for _ in range(6):  # more than run at once
        left = connect(guarded, "require")
        left.pgconn.send_query(slow.encode())
        left.close()
    with connect(guarded, "require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_who_does_not_encrypt_is_refused_before_the_password(guarded: Served) -> None:
    with pytest.raises(psycopg.OperationalError, match="sslmode=require"):
        connect(guarded, "disable")
    with Wire(guarded) as wire:
        wire.send(frame_startup(b"user\0me\0\0"))
        assert find_code([wire.receive()]) == "28000" and wire.is_ended()


def test_what_is_sent_before_the_encryption_ends_the_connection(guarded: Served) -> None:
    """Somebody between client and service could have put it there."""
    with Wire(guarded) as wire:
        wire.send(SSL_REQUEST + frame_startup(b"user\0eve\0\0"))
        assert find_code([wire.receive()]) == "08P01" and wire.is_ended()
    for hello in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x05hello"):
        with Wire(guarded) as wire:
            wire.send(SSL_REQUEST)
            assert wire._take(1) == b"S"
            wire.send(hello)
            if not hello:
                wire.socket.close()
            else:
                while wire.socket.recv(1_000):  # an alert, perhaps
                    pass
    with connect(guarded, "require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_renewed_certificate_is_that_of_the_next_connection(tmp_path: Path) -> None:
    given = make_certificate(tmp_path, "given")
    certificate = Certificate(*given)
    first = certificate.context
    assert certificate.context is first
    chain, key = make_certificate(tmp_path, "renewed")
    os.replace(chain, given[0])
    assert certificate.context is first  # the key is not there yet
    os.replace(key, given[1])
    second = certificate.context
    assert second is not first
    given[0].unlink()
    assert certificate.context is second


def test_files_that_are_no_certificate_end_the_start(tmp_path: Path) -> None:
    chain, key = make_certificate(tmp_path, "one")
    other, _ = make_certificate(tmp_path, "two")
    protected = make_certificate(tmp_path, "three", "-passout", "pass:secret")
    for files in ((other, key), (key, key), protected):
        with pytest.raises(ssl.SSLError):
            Certificate(*files)
    with pytest.raises(FileNotFoundError):
        Certificate(chain, tmp_path / "none.key")
