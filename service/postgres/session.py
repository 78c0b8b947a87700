"""A connection of a PostgreSQL client: it signs in with a token, and reads.

    startup ──► password ──► ready ──► Query                            ──► rows, ready
                                   ──► Parse, Bind, Describe, Execute, Sync ──► the same in steps

A statement is answered by the SQL workers, in turn with those of REST. It ends with its client, or
when another connection cancels it with this one's key.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from contextlib import suppress
from dataclasses import dataclass
from sys import getsizeof

from fastapi.concurrency import run_in_threadpool

from schemas import limits
from schemas.process.postgres import PostgresCall
from schemas.process.statements import StatementReply, WorkerRequest
from service.access.tokens import Role
from service.postgres import messages
from service.postgres.commands import (
    REPORTED,
    Commands,
    Cursor,
    Done,
    find_word,
    is_blank,
    read_cursor,
    read_name,
    split_statements,
)
from service.postgres.messages import Content, PeerReader, PgError, make_violation
from service.postgres.places import Places
from service.problems import Problem
from service.sql.workers import StatementProblem

log = logging.getLogger(__name__)

_NEGOTIATIONS_MAX = 2  # TLS, and Kerberos
_SENT_AT_ONCE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that a client has given a name, or the name ""."""

    sql: str
    types: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        return getsizeof(self.sql)


@dataclass(slots=True)
class Portal:
    """A statement with its parameters; and its answer, as soon as it is wanted."""

    sql: str
    call: PostgresCall
    starts: int = 0  # in the text that the client has sent
    holds: bool = False  # outlives its transaction
    head: bytes = b""  # describes the rows, once they are there
    rows: bytes = b""
    at: int = 0  # what of the rows is sent
    left: int = 0  # rows that are not

    @property
    def size(self) -> int:
        return getsizeof(self.sql) + sum(len(value or b"") for value in self.call.values or ())


class Session:
    def __init__(self, places: Places, reader: PeerReader, writer: asyncio.StreamWriter) -> None:
        self._places = places
        self._reader = reader
        self._writer = writer
        self._commands = Commands()
        self._prepared: dict[str, Prepared] = {}
        self._portals: dict[str, Portal] = {}
        self._work: asyncio.Task[tuple[StatementReply, bytes]] | None = None
        self._user = ""
        self._token: str | None = None  # its hash
        self.who = ""
        self.role = Role.VIEWER
        self.shared = False  # others have the same name
        self.key = (secrets.randbits(31), secrets.randbits(31))

    async def run(self) -> None:
        """Answer the client until it leaves, or does what ends the connection."""
        signed_in = False
        try:
            async with asyncio.timeout(limits.POSTGRES_STARTUP_SECONDS_MAX):
                signed_in = await self._start()
            if signed_in:
                await self._answer_messages()
        except (PgError, TimeoutError) as error:
            late = PgError("57P05", "no message came in time", fatal=True)
            last = error if isinstance(error, PgError) else late
            if not signed_in:
                self._places.refuse(last.code)
            self._write_last(last)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            for name in list(self._portals):
                self._drop_portal(name)
            self._writer.close()

    def end(self) -> None:
        """End the connection, because the service ends or others need the place."""
        self._write_last(PgError("57P01", "the connection is ended by the service", fatal=True))
        self._writer.close()
        self._reader.left.set()

    def _write(self, data: bytes) -> None:
        if self._writer.is_closing():  # uvloop's transport raises RuntimeError
            raise ConnectionResetError
        self._writer.write(data)

    def _write_last(self, error: PgError) -> None:
        with suppress(ConnectionError):
            self._write(error.pack())

    def abort(self) -> None:
        self._writer.transport.abort()

    def cancel(self) -> None:
        """Cancel the statement that is being answered, if there is one."""
        if self._work is not None:
            self._work.cancel()

    # --- sign in ------------------------------------------------------------------------------

    async def _start(self) -> bool:
        """Sign the client in; return whether it has come to stay."""
        code, content = await messages.read_startup(self._reader)
        for _ in range(_NEGOTIATIONS_MAX):
            if code == messages.SSL_REQUEST and self._places.certificate is not None:
                await self._encrypt(self._places.certificate.context)
            elif code in (messages.SSL_REQUEST, messages.GSS_REQUEST):
                self._write(b"N")
            else:
                break
            code, content = await messages.read_startup(self._reader)
        if code == messages.CANCEL_REQUEST:
            key = Content(content)
            self._places.cancel((key.whole(), key.whole()))
            return False
        if code >> 16 != messages.VERSION_3 >> 16:
            raise PgError("0A000", "the protocol's version is not 3", fatal=True)
        if self._places.certificate is not None and not self._is_encrypted:
            reason = "this port takes encrypted connections only; connect with sslmode=require"
            raise PgError("28000", reason, fatal=True)
        options = self._read_options(Content(content))
        if code != messages.VERSION_3 or options:
            self._write(messages.pack_versions(options))
        await self._sign_in()
        self._places.admit(self)
        self._write(messages.AUTHENTICATION_OK)
        for name, value in {**REPORTED, "session_authorization": self._user}.items():
            self._write(messages.pack_status(name, value))
        self._write(messages.pack_key(*self.key) + messages.pack_ready("I"))
        return True

    async def _encrypt(self, context: ssl.SSLContext) -> None:
        if self._is_encrypted or self._reader.has_unread:  # who wrote it is not known
            raise make_violation("a client waits for the answer to its request for TLS")
        self._write(b"S")
        await self._writer.start_tls(context)

    @property
    def _is_encrypted(self) -> bool:
        return self._writer.get_extra_info("ssl_object") is not None

    def _read_options(self, content: Content) -> list[str]:
        """Keep the user and the settings of a startup; return options that are not known."""
        unknown = []
        while not content.is_empty and (name := content.text()):
            value = content.text()
            if name == "user":
                self._user = value
            elif name.startswith("_pq_."):
                unknown.append(name)
            elif name not in ("database", "options", "replication", "client_encoding"):
                self._commands.settings[name.lower()] = value
        if not self._user:
            raise PgError("28000", "a client names its user", fatal=True)
        return unknown

    async def _sign_in(self) -> None:
        access = self._places.runtime.access
        if access.admits_everybody():
            self.who, self.role, self.shared = "local", Role.ADMIN, True
            return
        self._write(messages.PASSWORD_WANTED)
        answer = await messages.read_message(self._reader, limits.POSTGRES_STARTUP_BYTES_MAX)
        if answer.kind != b"p":
            raise make_violation("a password is wanted")
        known = access.find_token(Content(answer.content).text())
        if known is None:
            reason = "the password is no valid token of this service"
            raise PgError("28P01", reason, fatal=True)
        self.who, self.role, self._token = known

    # --- messages -----------------------------------------------------------------------------

    async def _answer_messages(self) -> None:
        skips = False  # until Sync, after a mistake
        while True:
            message = await messages.read_message(self._reader)
            kind = message.kind
            if kind == b"X":
                return
            try:
                if not skips or kind == b"S":
                    await self._answer(kind, Content(message.content))
            except PgError as error:
                if error.fatal:
                    raise
                self._commands.fail()
                self._write(error.pack())
                skips = kind != b"Q"
            if kind in (b"S", b"Q"):
                skips = False
                if self._commands.status == "I":
                    for name in [each for each, at in self._portals.items() if not at.holds]:
                        self._drop_portal(name)
                self._write(messages.pack_ready(self._commands.status))
            await self._drain()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(limits.POSTGRES_STALL_SECONDS_MAX):
                await self._writer.drain()
        except TimeoutError:
            self.abort()  # close() would wait for the client to read
            raise ConnectionResetError from None

    async def _answer(self, kind: bytes, content: Content) -> None:
        match kind:
            case b"Q":
                text = _require_short(content.text())
                for starts, sql in split_statements(text):
                    await self._answer_query(Portal(sql, PostgresCall(self._user), starts))
            case b"P":
                self._parse(content)
            case b"B":
                self._bind(content)
            case b"D":
                await self._describe(content.byte(), content.text())
            case b"E":
                portal = self._find_portal(content.text())
                await self._execute(portal, content.whole())
            case b"C":
                which, name = content.byte(), content.text()
                if which == b"S":
                    self._prepared.pop(name, None)
                else:
                    self._drop_portal(name)
                self._write(messages.CLOSE_COMPLETE)
            case b"S" | b"H":
                pass
            case b"F" | b"d" | b"c" | b"f":
                raise PgError("0A000", "COPY and calls of functions are not possible")
            case _:
                raise make_violation("the message is of no known kind")

    async def _answer_query(self, portal: Portal) -> None:
        try:
            await self._execute(portal, 0, describes=True)
        finally:
            self._release(portal)

    def _parse(self, content: Content) -> None:
        name, sql, types = content.text(), _require_short(content.text()), content.oids()
        if name and name in self._prepared:
            raise PgError("42P05", f"there is a statement {name!r} already")
        statements = [each for _, each in split_statements(sql)]
        if len(statements) > 1:
            raise PgError("42601", "a prepared statement is one statement")
        prepared = Prepared(statements[0], types)
        self._require_room(prepared, len(self._prepared.keys() | {name}))
        self._prepared[name] = prepared
        self._write(messages.PARSE_COMPLETE)

    def _bind(self, content: Content) -> None:
        name = content.text()
        prepared = self._find_prepared(content.text())
        value_formats, values, formats = content.shorts(), content.values(), content.shorts()
        call = PostgresCall(self._user, prepared.types, values, value_formats, formats)
        self._drop_portal(name)
        self._add_portal(name, Portal(prepared.sql, call))
        self._write(messages.BIND_COMPLETE)

    async def _describe(self, which: bytes, name: str) -> None:
        if which == b"P":
            portal = self._find_portal(name)
        else:
            prepared = self._find_prepared(name)
            portal = Portal(prepared.sql, PostgresCall(self._user, prepared.types, None))
        found: list[int] = list(portal.call.types)
        head = messages.NO_DATA
        if self._commands.is_shown(portal.sql):
            head = messages.pack_text_row("setting", "")[0]
        elif (cursor := read_cursor(portal.sql)) is not None and cursor.word == "FETCH":
            fetched = self._find_portal(cursor.name)
            await self._run(fetched)
            head = fetched.head
        elif cursor is None and _wants_rows(portal.sql):
            found = await self._run(portal)
            head = portal.head
        if which == b"S":
            self._prepared[name] = Prepared(portal.sql, tuple(found))
            self._write(messages.pack_parameters(found))
        self._write(head)

    async def _execute(self, portal: Portal, count: int, *, describes: bool = False) -> None:
        """Send the next `count` rows of a statement, or all; do what a command says."""
        if is_blank(portal.sql):
            self._write(messages.EMPTY_QUERY)
            return
        done = self._commands.answer(portal.sql) or self._deallocate(portal.sql)
        if done is None and (cursor := read_cursor(portal.sql)) is not None:
            await self._answer_cursor(portal, cursor, describes)
        elif done is None:
            await self._run(portal)
            if describes:
                self._write(portal.head)
            sent = await self._send_rows(portal, count)
            is_complete = not portal.left
            tag = messages.pack_complete(f"SELECT {sent}")
            self._write(tag if is_complete else messages.SUSPENDED)
        else:
            if done.shown is not None:
                head, row = messages.pack_text_row(*done.shown)
                self._write((head if describes else b"") + row)
            self._write(messages.pack_complete(done.tag))

    def _deallocate(self, sql: str) -> Done | None:
        if find_word(sql)[0] != "DEALLOCATE":
            return None
        name = sql.rsplit(maxsplit=1)[-1]
        if name.upper() == "ALL":
            self._prepared.clear()
        else:
            self._prepared.pop(read_name(name), None)
        return Done("DEALLOCATE")

    async def _answer_cursor(self, portal: Portal, cursor: Cursor, describes: bool) -> None:
        tag = f"{cursor.word} CURSOR"
        if cursor.word == "DECLARE":
            if self._commands.status == "I" and not cursor.holds:
                raise PgError("25P01", "DECLARE CURSOR is for transactions; or add WITH HOLD")
            query = portal.sql[cursor.query_at :]
            starts = portal.starts + cursor.query_at
            self._add_portal(cursor.name, Portal(query, portal.call, starts, cursor.holds))
        elif cursor.word == "CLOSE":
            for name in [cursor.name] if cursor.name else list(self._portals):
                self._drop_portal(name)
        else:
            fetched = self._find_portal(cursor.name)
            await self._run(fetched)
            if describes:
                self._write(fetched.head)
            tag = f"FETCH {await self._send_rows(fetched, cursor.rows)}"
        self._write(messages.pack_complete(tag))

    async def _send_rows(self, portal: Portal, count: int) -> int:
        """Send the next rows of an answer, or all; return how many they are."""
        end, sent = len(portal.rows), portal.left
        if 0 < count < portal.left:
            end, sent = messages.cut_rows(portal.rows, portal.at, count)
        while portal.at < end:
            until = min(portal.at + _SENT_AT_ONCE_BYTES, end)
            self._write(portal.rows[portal.at : until])
            portal.at = until
            await self._drain()
        portal.left -= sent
        if not portal.left:
            self._release(portal)
        return sent

    # --- statements and portals ---------------------------------------------------------------

    def _find_prepared(self, name: str) -> Prepared:
        if name not in self._prepared:
            raise PgError("26000", f"there is no prepared statement {name!r}")
        return self._prepared[name]

    def _find_portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise PgError("34000", f"there is no cursor {name!r}")
        return self._portals[name]

    def _add_portal(self, name: str, portal: Portal) -> None:
        if name in self._portals:
            raise PgError("42P03", f"there is a cursor {name!r} already")
        self._require_room(portal, len(self._portals) + 1)
        self._portals[name] = portal

    def _require_room(self, added: Prepared | Portal, count: int) -> None:
        """Raise a PgError if there are too many statements or cursors, or too large ones."""
        size = sum(each.size for each in (*self._prepared.values(), *self._portals.values(), added))
        if count > limits.POSTGRES_STATEMENTS_MAX or size > limits.POSTGRES_KEPT_BYTES_MAX:
            raise PgError("53400", "the connection keeps too many statements; close some")

    def _drop_portal(self, name: str) -> None:
        portal = self._portals.pop(name, None)
        if portal is not None:
            self._release(portal)

    def _release(self, portal: Portal) -> None:
        self._places.held_bytes -= len(portal.rows)
        portal.rows, portal.at, portal.left = b"", 0, 0

    # --- answers ------------------------------------------------------------------------------

    async def _run(self, portal: Portal) -> list[int]:
        """Let a portal have its answer, once; return the types of its parameters."""
        if portal.head:
            return list(portal.call.types)
        request = WorkerRequest(portal.sql, postgres=portal.call)
        try:
            reply, body = await self._answer_while_wanted(request)
        except StatementProblem as problem:
            position = problem.position and problem.position + portal.starts
            raise PgError(problem.sqlstate or "42000", problem.detail, position) from None
        except Problem as problem:
            raise PgError("53400", problem.detail) from None
        if self._places.held_bytes + len(body) > limits.POSTGRES_HELD_BYTES_MAX:
            raise PgError("53200", "too many answers are held for clients that do not read them")
        size = messages.cut_rows(body, 0, 1)[0]
        portal.head, portal.rows, portal.left = body[:size], body[size:], reply.count
        self._places.held_bytes += len(portal.rows)
        return reply.parameters

    async def _answer_while_wanted(self, request: WorkerRequest) -> tuple[StatementReply, bytes]:
        """Return the answer of a statement, unless it is cancelled; note it in the audit log."""
        self._renew_admission()
        runtime, leaving = self._places.runtime, self._reader.left.wait()
        answer = runtime.sql_answers.answer(request, self.who, self.role, self.shared, leaving)
        work = self._work = asyncio.create_task(answer)
        status, reads = 422, []
        try:
            reply, body = await work
            status, reads = 200, list(reply.epochs)
            return reply, body
        except asyncio.CancelledError:
            if work.cancelled():
                raise PgError("57014", "the statement was cancelled by its user") from None
            raise
        finally:
            work.cancel()
            self._work = None
            address = (self._writer.get_extra_info("peername") or ("",))[0]
            line = (self.who, self.role, "SQL", "postgres", status, address, reads)
            await run_in_threadpool(runtime.audit_log.note, *line)

    def _renew_admission(self) -> None:
        """Raise a PgError if the token was revoked, or the service is no longer open."""
        if not self._places.runtime.access.is_admitted(self._token):
            raise PgError("28000", "the token is no longer valid", fatal=True)


def _require_short(text: str) -> str:
    if len(text) > limits.QUERY_CHARACTERS_MAX:
        raise PgError("54001", f"a statement has at most {limits.QUERY_CHARACTERS_MAX} characters")
    return text


def _wants_rows(sql: str) -> bool:
    """Return whether a worker answers a statement; one that changes nothing may be tried."""
    if is_blank(sql) or find_word(sql)[0] == "DEALLOCATE":
        return False
    return Commands().answer(sql) is None
