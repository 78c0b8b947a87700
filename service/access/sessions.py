"""Sessions and tickets: a browser's ways to show who it is, where it cannot send a header.

    token, once ──► session: a cookie that no script can read ──► requests of the console
                       └──► a word that only our own pages can read, wanted for every change
    token or session ──► ticket ──► one GET of one job's changes, within half a minute

Both stand for the token they were made with, and end with it. Of both only hashes are kept; tickets
are in memory, sessions in a file, so that a new service does not ask everybody again.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from pathlib import Path

import msgspec

from schemas.limits import (
    SESSION_IDLE_SECONDS_MAX,
    SESSION_NOTED_SECONDS,
    SESSION_SECONDS_MAX,
    SESSIONS_A_TOKEN_MAX,
    TICKET_SECONDS_MAX,
    TICKETS_A_TOKEN_MAX,
)
from service.access.tokens import Role, Tokens, write_private

_CHARACTERS_MAX = 200


class _Session(msgspec.Struct, frozen=True):
    sha256: str
    token: str  # the hash of the token that it stands for
    began_at: int  # seconds since 1970
    used_at: int = 0  # the same, a few minutes ago

    @property
    def valid(self) -> bool:
        idle_since = max(self.began_at, self.used_at)
        now = time.time()
        return (
            self.began_at + SESSION_SECONDS_MAX > now
            and idle_since + SESSION_IDLE_SECONDS_MAX > now
        )


class _Ticket(msgspec.Struct, frozen=True):
    token: str | None  # None: there are no tokens
    job: str
    ends_at: float  # of the monotonic clock


class Sessions:
    """Those who have logged in."""

    def __init__(self, path: Path, tokens: Tokens) -> None:
        self._path = path
        self._tokens = tokens
        self._lock = threading.Lock()
        self._known: dict[str, _Session] = {}
        if path.exists():
            found = msgspec.json.decode(path.read_bytes(), type=list[_Session])
            self._known = {each.sha256: each for each in found}

    def begin(self, token: str) -> str | None:
        """A new session, as the cookie has it; None where the token is not known."""
        if self._tokens.role_of(token) is None:
            return None
        session = secrets.token_urlsafe(32)
        record = _Session(hashed(session), hashed(token), int(time.time()))
        with self._lock:
            self._drop_old(record.token)
            self._known[record.sha256] = record
            self._write()
        return session

    def role_of(self, session: str) -> tuple[str, Role] | None:
        """The name and role of the token behind a session."""
        found = self._known.get(hashed(session[:_CHARACTERS_MAX]))
        if found is None or not found.valid:
            return None
        if max(found.began_at, found.used_at) + SESSION_NOTED_SECONDS < time.time():
            self._note(found)
        return self._tokens.role_of_hash(found.token)

    def _note(self, session: _Session) -> None:
        """Write down that a session is in use."""
        with self._lock:
            if session.sha256 in self._known:
                used = msgspec.structs.replace(session, used_at=int(time.time()))
                self._known[session.sha256] = used
                self._write()

    def token_of(self, session: str) -> str | None:
        found = self._known.get(hashed(session[:_CHARACTERS_MAX]))
        return None if found is None else found.token

    def end(self, session: str) -> None:
        with self._lock:
            if self._known.pop(hashed(session[:_CHARACTERS_MAX]), None) is not None:
                self._write()

    def _drop_old(self, token: str) -> None:
        """Drop what has ended, and of a token's sessions the oldest so that one more fits."""
        valid = sorted((s for s in self._known.values() if s.valid), key=lambda s: s.began_at)
        mine = [each for each in valid if each.token == token]
        beyond = {each.sha256 for each in mine[: -(SESSIONS_A_TOKEN_MAX - 1)]}
        self._known = {each.sha256: each for each in valid if each.sha256 not in beyond}

    def _write(self) -> None:
        write_private(self._path, msgspec.json.encode(list(self._known.values())))


class Tickets:
    """Given out and not used yet."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._lock = threading.Lock()
        self._given: dict[str, _Ticket] = {}

    def give(self, token: str | None, job: str) -> str | None:
        """A ticket for one stream of a job's changes; None if the token has too many out."""
        now = time.monotonic()
        ticket = secrets.token_urlsafe(24)
        with self._lock:
            self._given = {name: t for name, t in self._given.items() if t.ends_at > now}
            if sum(each.token == token for each in self._given.values()) >= TICKETS_A_TOKEN_MAX:
                return None
            self._given[hashed(ticket)] = _Ticket(token, job, now + TICKET_SECONDS_MAX)
        return ticket

    def take(self, ticket: str, job: str) -> tuple[str, Role] | None:
        """Who a ticket is of; it is gone then, whatever it is asked for with."""
        with self._lock:
            found = self._given.pop(hashed(ticket[:_CHARACTERS_MAX]), None)
        if found is None or found.job != job or found.ends_at < time.monotonic():
            return None
        return None if found.token is None else self._tokens.role_of_hash(found.token)


def change_word(session: str) -> str:
    """What a page of ours sends with every change. It follows from the session, which other pages
    cannot read."""
    return hmac.new(session.encode(), b"retally change", hashlib.sha256).hexdigest()


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
