"""Sessions and tickets: how a browser authenticates where it cannot send a header.

    token, once ──► session: a cookie that no script can read ──► requests of the console
                       └──► a CSRF token that only our own pages can read, required for changes
    token or session ──► ticket ──► one GET of the changes of one job or view, within half a minute

Both represent their token and end with it. The service stores hashes only: of tickets in memory, of
sessions in a file, so that users stay logged in when the service restarts.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import threading
import time
from pathlib import Path

import msgspec

from schemas import limits
from schemas.directory.documents import write_document
from service.access.tokens import Role, Tokens, hash_secret

log = logging.getLogger(__name__)


class _Session(msgspec.Struct, frozen=True):
    sha256: str
    token: str  # the hash of its token
    began_at: int  # seconds since 1970
    used_at: int = 0  # the same; SESSION_SAVE_SECONDS old at most

    @property
    def valid(self) -> bool:
        idle_since = max(self.began_at, self.used_at)
        now = time.time()
        return (
            self.began_at + limits.SESSION_SECONDS_MAX > now
            and idle_since + limits.SESSION_IDLE_SECONDS_MAX > now
        )


class _Ticket(msgspec.Struct, frozen=True):
    token: str | None  # the hash; None on an open service
    job: str  # or JOB.VIEW
    ends_at: float  # of the monotonic clock


class Sessions:
    """The sessions of all browsers; thread-safe."""

    def __init__(self, path: Path, tokens: Tokens) -> None:
        self._path = path
        self._tokens = tokens
        self._lock = threading.Lock()
        self._known: dict[str, _Session] = {}
        if path.exists():
            found = msgspec.json.decode(path.read_bytes(), type=list[_Session])
            self._known = {each.sha256: each for each in found}

    def start(self, token: str) -> str | None:
        """Return the cookie of a new session; None for an invalid token."""
        if self._tokens.find_role(token) is None:
            return None
        session = secrets.token_urlsafe(32)
        record = _Session(hash_secret(session), hash_secret(token), int(time.time()))
        with self._lock:
            self._drop_old(record.token)
            self._known[record.sha256] = record
            self._write()
        return session

    def find_role(self, session: str) -> tuple[str, Role] | None:
        """Return the name and role of a session's token; None if the session has ended."""
        found = self._known.get(hash_secret(session[: limits.TOKEN_CHARACTERS_MAX]))
        if found is None or not found.valid:
            return None
        if max(found.began_at, found.used_at) + limits.SESSION_SAVE_SECONDS < time.time():
            self._save_use(found)
        return self._tokens.find_role_by_hash(found.token)

    def _save_use(self, session: _Session) -> None:
        """Save that a session is in use."""
        with self._lock:
            if session.sha256 in self._known:
                used = msgspec.structs.replace(session, used_at=int(time.time()))
                self._known[session.sha256] = used
                try:
                    self._write()
                except OSError as error:  # a full disk must not refuse a request that only reads
                    log.warning("cannot save the use of a session: %s", error)

    def find_token_hash(self, session: str) -> str | None:
        found = self._known.get(hash_secret(session[: limits.TOKEN_CHARACTERS_MAX]))
        return None if found is None else found.token

    def end(self, session: str) -> None:
        with self._lock:
            if (
                self._known.pop(hash_secret(session[: limits.TOKEN_CHARACTERS_MAX]), None)
                is not None
            ):
                self._write()

    def _drop_old(self, token: str) -> None:
        """Drop ended sessions, and the oldest of this token so that one more fits."""
        valid = sorted((s for s in self._known.values() if s.valid), key=lambda s: s.began_at)
        mine = [each for each in valid if each.token == token]
        surplus = {each.sha256 for each in mine[: -(limits.SESSIONS_A_TOKEN_MAX - 1)]}
        self._known = {each.sha256: each for each in valid if each.sha256 not in surplus}

    def _write(self) -> None:
        write_document(self._path, list(self._known.values()))


class Tickets:
    """The tickets that were issued and not used yet; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._issued: dict[str, _Ticket] = {}

    def issue(self, token: str | None, job: str) -> str | None:
        """Return a ticket for one stream of a job or a view; None if the token has too many."""
        now = time.monotonic()
        ticket = secrets.token_urlsafe(24)
        with self._lock:
            self._issued = {name: t for name, t in self._issued.items() if t.ends_at > now}
            if (
                sum(each.token == token for each in self._issued.values())
                >= limits.TICKETS_A_TOKEN_MAX
            ):
                return None
            self._issued[hash_secret(ticket)] = _Ticket(token, job, now + limits.TICKET_SECONDS_MAX)
        return ticket

    def redeem(self, ticket: str, name: str) -> str | None:
        """Use up a ticket for a job or a view, JOB.VIEW; a job's ticket is for its views too.

        Return the hash of its token, or None if the ticket is invalid.
        """
        with self._lock:
            found = self._issued.pop(hash_secret(ticket[: limits.TOKEN_CHARACTERS_MAX]), None)
        if found is None or found.ends_at < time.monotonic():
            return None
        return found.token if found.job in (name, name.partition(".")[0]) else None


def derive_csrf_token(session: str) -> str:
    """Return the token that our pages send with every change; other sites cannot derive it."""
    return hmac.new(session.encode(), b"retally change", hashlib.sha256).hexdigest()
