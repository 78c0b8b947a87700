"""A worker answers many statements, and carries nothing of one into the next."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from schemas import limits
from schemas.process.statements import (
    SIZE,
    WORKERS_MODULE,
    AnswerFormat,
    StatementReply,
    StatementRequest,
    pack,
)
from tests.support.faults.hostile_statements import REACHING
from tests.support.tables.written_table import WrittenTable, write_random_history

LEAVING = [
    "CREATE TEMP TABLE mine AS SELECT 1",
    "CREATE VIEW mine AS SELECT 1",
    "SET threads = 1",
    "SET VARIABLE mine = 1",
    "PREPARE mine AS SELECT 1",
    "ATTACH ':memory:' AS mine",
    "CREATE SCHEMA mine",
    "USE temp",
    "CREATE MACRO mine() AS 1",
    "BEGIN",
    "WITH made AS (INSERT INTO items VALUES ('x', 1, 1) RETURNING *) FROM made",
    "SELECT setseed(0.5)",
    "SELECT * FROM items AT EPOCH 1",
]
STATE = [
    "SELECT * FROM items ORDER BY name",
    "SHOW TABLES",
    "SHOW DATABASES",
    "SELECT name, value FROM duckdb_settings() ORDER BY name",
    "SELECT schema_name FROM duckdb_schemas() WHERE NOT internal",
    "SELECT view_name FROM duckdb_views() WHERE NOT internal",
    "SELECT function_name FROM duckdb_functions() WHERE NOT internal",
    "SELECT current_schema(), getvariable('mine')",
    "FROM duckdb_variables()",
    "FROM duckdb_prepared_statements()",
]


class Spawner:
    """The spawner of workers of a data directory, as the service has it."""

    def __init__(self, data: Path, program: str = "pass") -> None:
        self.requests, theirs = socket.socketpair()
        start = f"{program}; from {WORKERS_MODULE} import main; main(sys.argv[1:])"
        words = [sys.executable, "-c", f"import sys; {start}", str(data)]
        with theirs:
            self.process = subprocess.Popen(words, stdin=theirs.fileno())

    def start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.requests, [b"w"], [theirs.fileno()])
        ours.settimeout(60)
        assert receive(ours)[0].outcome == "ready"
        return ours

    def close(self) -> None:
        self.requests.close()
        assert self.process.wait(30) == 0


def receive(worker: socket.socket) -> tuple[StatementReply, bytes]:
    def read(size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = worker.recv(size - len(found))
            if not piece:
                raise EOFError
            found += piece
        return found

    reply = msgspec.json.decode(read(SIZE.unpack(read(SIZE.size))[0]), type=StatementReply)
    return reply, read(reply.size)


def ask(
    worker: socket.socket, sql: str, form: AnswerFormat = "json"
) -> tuple[StatementReply, bytes]:
    worker.sendall(pack(StatementRequest(sql, form)))
    return receive(worker)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> WrittenTable:
    return write_random_history(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def spawner(written: WrittenTable) -> Iterator[Spawner]:
    spawner = Spawner(written.place.home.parents[1])
    yield spawner
    spawner.close()


def test_a_statement_leaves_nothing_for_the_next(spawner: Spawner, tmp_path: Path) -> None:
    with spawner.start() as fresh, spawner.start() as used:
        expected = [ask(fresh, sql) for sql in STATE]
        places = {"file": tmp_path / "x", "folder": tmp_path, "made": tmp_path / "made"}
        for sql in [*LEAVING, *(each.format(**places) for each in REACHING)]:
            ask(used, sql)
        assert [ask(used, sql) for sql in STATE] == expected
        assert os.listdir(tmp_path) == []
    assert json.loads(expected[0][1])["rows"]
    assert sum(reply.outcome == "answered" for reply, _ in expected) >= 8


def test_a_worker_ends_after_its_statements_and_with_too_much_memory(tmp_path: Path) -> None:
    bounds = "from schemas import limits; limits.SQL_WORKER_STATEMENTS_MAX = 3"
    spawner = Spawner(tmp_path, bounds)
    with spawner.start() as worker:
        assert [ask(worker, "SELECT 1")[0].last for _ in range(3)] == [False, False, True]
        assert worker.recv(1) == b""
    spawner.close()
    spawner = Spawner(tmp_path, "from schemas import limits; limits.SQL_WORKER_BYTES_MAX = 1000")
    with spawner.start() as worker:
        assert ask(worker, "SELECT 1")[0].last
    spawner.close()


def test_a_worker_ends_inside_a_call_that_does_not_return(tmp_path: Path) -> None:
    bounds = "from schemas import limits; limits.SQL_SECONDS_MAX = limits.SQL_GRACE_SECONDS = 0.5"
    spawner = Spawner(tmp_path, bounds)
    with spawner.start() as worker, spawner.start() as other:
        reply, _ = ask(worker, "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))")
        assert (reply.outcome, reply.last) == ("refused", True)
        assert "takes more than 0.5 s" in reply.reason
        assert ask(other, "SELECT 1 AS n", "csv") == (
            StatementReply("answered", size=len(b"n\r\n1\r\n")),
            b"n\r\n1\r\n",
        )
    spawner.close()


def test_a_reply_is_bounded(spawner: Spawner, written: WrittenTable) -> None:
    tables = ", ".join(f"items AT EPOCH 1 AS t{number}" for number in range(2))
    reply, _ = ask(spawner.start(), f"SELECT COUNT(*) FROM {tables}")
    assert reply.epochs == {"items AT EPOCH 1": 1}
    reply, _ = ask(spawner.start(), "SELECT " + "x" * limits.QUERY_CHARACTERS_MAX)
    assert reply.outcome == "refused" and "characters" in reply.reason
    with spawner.start() as worker:
        names = ", ".join(f"n{number}" for number in range(3_000))
        reply, _ = ask(worker, f"SELECT {names} FROM items")
        assert reply.outcome == "refused"
        assert len(reply.reason) <= limits.REASON_CHARACTERS_MAX


def test_a_worker_ends_with_the_service_whatever_it_does(tmp_path: Path) -> None:
    program = "import os; fork = os.fork; os.fork = lambda: (fork() or print(os.getpid()) or 0)"
    ours, theirs = socket.socketpair()
    start = f"import sys; {program}; from {WORKERS_MODULE} import main; main(sys.argv[1:])"
    words = [sys.executable, "-uc", start, str(tmp_path)]
    with theirs:
        process = subprocess.Popen(words, stdin=theirs.fileno(), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    mine, worker = socket.socketpair()
    with worker:
        socket.send_fds(ours, [b"w"], [worker.fileno()])
    pid = int(process.stdout.readline())
    assert receive(mine)[0].outcome == "ready"
    ended = os.pidfd_open(pid)
    heavy = "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))"
    mine.sendall(pack(StatementRequest(heavy)))
    waiting = select.poll()  # which takes descriptors above 1,024 too
    waiting.register(ended, select.POLLIN)
    assert not waiting.poll(500)
    mine.close()
    assert waiting.poll(10_000)
    os.close(ended)
    ours.close()
    assert process.wait(30) == 0
