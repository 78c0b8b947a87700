"""What the service and an SQL worker send to each other.

    service ──size, StatementRequest──►  worker
            ◄──size, StatementReply, answer──

A worker sends a first reply, READY, when it can take a statement.
"""

from __future__ import annotations

import struct
from typing import Literal

import msgspec

from schemas.process.postgres import PostgresCall

AnswerFormat = Literal["json", "csv", "arrow"]
SIZE = struct.Struct(">I")  # before each document
WORKERS_MODULE = "jobs.querying.workers"


class StatementRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A statement, as the body of `POST /v1/sql` has it."""

    sql: str
    format: AnswerFormat = "json"


class WorkerRequest(StatementRequest, frozen=True, forbid_unknown_fields=True):
    """A statement for a worker; one of a PostgreSQL client has that client's own format."""

    postgres: PostgresCall | None = None


class StatementReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a statement; an answer of `size` bytes follows it."""

    outcome: Literal["ready", "answered", "refused", "failed"]
    reason: str = ""  # why a statement was refused, or the stack trace of a failure
    epochs: dict[str, int] = {}  # of each table that the statement read
    code: str = ""  # the SQLSTATE of a refusal
    position: int | None = None  # of a refusal, in the statement; unless the reason shows it
    count: int = 0  # of rows, for a PostgreSQL client
    parameters: list[int] = []  # the OIDs of the statement's, likewise
    size: int = 0
    last: bool = False  # the worker ends after this reply


READY = StatementReply("ready")


def pack(document: StatementRequest | StatementReply) -> bytes:
    """Return a document with its size before it."""
    encoded = msgspec.json.encode(document)
    return SIZE.pack(len(encoded)) + encoded
