"""SQL workers: processes that answer statements, each in a database of its own.

    service ──a socket for each worker──► spawner ──fork──► worker
       └──statement──► worker: new database ──► tables ──► SELECT ──► answer ──► service

The spawner has all modules imported and never runs a statement, so a worker takes milliseconds to
start and has nothing of another one's. A worker opens the next database while it waits. It
keeps the results of jobs that it has read, and nothing else of a statement. After many statements,
or with much memory, it ends.

    the service closes the socket    the worker ends at once, whatever it does
    a limit ends the worker          its statement is refused; others do not notice
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import pyarrow as pa
from duckdb import DuckDBPyConnection

from jobs.querying.answers import Answer, answer_statement
from jobs.querying.engine import describe_lateness, limit_process, open_database
from jobs.querying.postgres.answer import answer_postgres
from jobs.querying.statement import StatementRefused, read_statement
from schemas import limits
from schemas.process.kernel import read_process_memory
from schemas.process.statements import READY, SIZE, StatementReply, WorkerRequest, pack

_NICENESS = 5  # jobs and the service's other responses come first
_NO_MEMORY = StatementReply(
    "refused", "the statement needs too much memory; ask for less", last=True
)
_TOO_MANY_TABLES = "the statement reads too many tables; read fewer at once"


class Worker:
    """Answers the statements of one connection, until it is closed."""

    def __init__(self, data: Path, connection: socket.socket) -> None:
        self._data = data
        self._connection = connection
        self._lock = threading.Lock()
        self._number = 0  # of the statement that has no reply yet

    def run(self) -> None:
        """Answer statements until the service leaves, or a new process is better."""
        threading.Thread(target=self._end_with_service, daemon=True).start()
        database = open_database()
        self._connection.sendall(pack(READY))
        while (request := self._receive()) is not None:
            reply, pieces = self._answer(request, database)
            with self._lock:
                self._number += 1
            last = reply.last or self._is_worn()
            size = sum(map(len, pieces))
            self._send(msgspec.structs.replace(reply, size=size, last=last), pieces)
            del pieces
            if last:
                return
            database.close()
            database = open_database()

    def _answer(
        self, request: WorkerRequest, database: DuckDBPyConnection
    ) -> tuple[StatementReply, list[bytes]]:
        abandon = partial(self._abandon, self._number)
        try:
            with limit_process():
                if request.postgres is not None:
                    return answer_postgres(
                        self._data, request.sql, request.postgres, abandon, database
                    )
                found = answer_statement(self._data, request.sql, abandon, database)
                pieces = found.write(request.format)
        except StatementRefused as error:
            reason = str(error)[: limits.REASON_CHARACTERS_MAX]
            return StatementReply("refused", reason, code=error.code, position=error.position), []
        except MemoryError:
            return _NO_MEMORY, []
        except Exception:
            return StatementReply("failed", traceback.format_exc(), last=True), []
        return StatementReply("answered", epochs=dict(found.epochs)), pieces

    def _is_worn(self) -> bool:
        """Return whether a new process should answer the next statement."""
        if self._number >= limits.SQL_WORKER_STATEMENTS_MAX:
            return True
        memory = read_process_memory()
        return memory is not None and memory.resident > limits.SQL_WORKER_BYTES_MAX

    def _receive(self) -> WorkerRequest | None:
        """Wait for a statement; None if the service has left."""
        head = self._read(SIZE.size)
        body = self._read(SIZE.unpack(head)[0]) if head else b""
        return msgspec.json.decode(body, type=WorkerRequest) if body else None

    def _read(self, size: int) -> bytes:
        read = b""
        while len(read) < size:
            piece = self._connection.recv(size - len(read))
            if not piece:
                return b""
            read += piece
        return read

    def _send(self, reply: StatementReply, pieces: list[bytes]) -> None:
        packed = pack(reply)
        if len(packed) > limits.SQL_REPLY_BYTES_MAX:
            pieces = []
            reason = reply.reason or _TOO_MANY_TABLES
            outcome = reply.outcome if reply.reason else "refused"
            reason = reason[: limits.REASON_CHARACTERS_MAX]
            packed = pack(StatementReply(outcome, reason, last=reply.last))
        self._connection.sendall(packed)
        small = b"".join(pieces) if len(pieces) < limits.SQL_BATCH_ROWS else b""
        for piece in [small] if small else pieces:
            self._connection.sendall(piece)

    def _abandon(self, number: int) -> None:
        """End this process from a thread: the statement's own thread does not come back in time."""
        with self._lock:
            if self._number == number:
                late = StatementReply("refused", describe_lateness(), last=True)
                with suppress(OSError):
                    self._connection.sendall(pack(late))
                os._exit(0)

    def _end_with_service(self) -> None:
        """End this process as soon as the service closes the socket."""
        waiting = select.poll()
        waiting.register(self._connection, select.POLLRDHUP)
        waiting.poll()
        os._exit(0)


def main(arguments: list[str]) -> None:
    """Fork a worker for each socket that arrives on standard input, until the service leaves."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the service
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the workers
    os.nice(_NICENESS)
    requests = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    _import_the_rest()
    gc.freeze()
    while True:
        kind, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
        if not kind:
            return
        connection = socket.socket(fileno=descriptors[0])
        if os.fork() == 0:
            requests.close()
            _run_worker(Path(arguments[0]), connection)
        connection.close()


def _import_the_rest() -> None:
    """Import what the first statement would import."""
    read_statement("SELECT * FROM items AT EPOCH 1", ["items"])
    Answer({}, pa.table({"n": [1], "name": ["a"]})).write("json")


def _run_worker(data: Path, connection: socket.socket) -> NoReturn:
    code = 1
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            Worker(data, connection).run()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
