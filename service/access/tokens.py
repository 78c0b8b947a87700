"""Tokens: bearer tokens with a name and a role, stored as hashes.

    Authorization: Bearer rt_...  ──► SHA-256 ──► compared with every known hash ──► name, role

A token has 256 random bits, so one SHA-256 is enough: nobody can guess it. Every hash is compared,
each in constant time. The service reads `service/tokens.json` again when it changes, so a revoked
token stops working immediately. A missing, empty or damaged file contains no token; it never means
that no token is required.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import sys
import threading
import time
from enum import IntEnum
from pathlib import Path

import msgspec

from schemas.directory.documents import replace_file
from schemas.limits import TOKEN_CHARACTERS_MAX, TOKEN_OVERLAP_SECONDS

log = logging.getLogger(__name__)

PREFIX = "rt_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


class Role(IntEnum):
    """Each role includes the rights of the roles before it."""

    VIEWER = 1  # read results, changes and the state of jobs
    OPERATOR = 2  # start, pause and stop jobs, create savepoints, start audits
    ADMIN = 3  # create, change and delete jobs, restore savepoints


ROLES = {role.name.lower(): role for role in Role}


class TokenRefused(ValueError):
    """A token cannot be created or revoked; the message says why."""


class TokenRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    role: str
    sha256: str
    ends_at: int | None = None  # seconds since 1970

    @property
    def valid(self) -> bool:
        return self.ends_at is None or time.time() < self.ends_at


class Tokens:
    """The tokens of a service; thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._known: list[TokenRecord] = []

    @property
    def required(self) -> bool:
        """Whether a token was ever created here; the file outlives its last token."""
        return self._path.exists()

    @property
    def has_valid(self) -> bool:
        return any(each.valid for each in self._reload())

    def find_role(self, token: str) -> tuple[str, Role] | None:
        """Return the name and role of a token; None for an invalid token."""
        return self.find_role_by_hash(hash_secret(token[:TOKEN_CHARACTERS_MAX]))

    def find_role_by_hash(self, given: str) -> tuple[str, Role] | None:
        """Return the name and role of the token with this hash; None once it was revoked."""
        found: tuple[str, Role] | None = None
        for known in self._reload():  # all of them, so that the time reveals nothing
            if hmac.compare_digest(known.sha256, given) and known.valid:
                found = (known.name, ROLES[known.role])
        return found

    def add(self, name: str, role: str, seconds: int | None = None) -> str:
        """Create a token and return it; it is not stored and cannot be shown again.

        A token of the same name stays valid for TOKEN_OVERLAP_SECONDS, so that clients can switch.
        """
        if _NAME.fullmatch(name) is None:
            raise TokenRefused(
                f"{name[:80]!r} is not a valid token name; use letters, digits, . _ -"
            )
        if role not in ROLES:
            raise TokenRefused(f"{role[:80]!r} is not a role; known: {', '.join(ROLES)}")
        if seconds is not None and seconds < 1:
            raise TokenRefused(
                "a token must be valid for at least one second; omit the time for no limit"
            )
        now = int(time.time())
        known = [each for each in self._load() if each.valid]
        before = [each for each in known if each.name == name]
        if any(each.role != role for each in before):
            raise TokenRefused(f"token {name!r} has the role {before[0].role}; revoke it first")
        last = now + TOKEN_OVERLAP_SECONDS
        kept = [
            msgspec.structs.replace(each, ends_at=min(each.ends_at or last, last))
            if each.name == name
            else each
            for each in known
        ]
        token = PREFIX + secrets.token_urlsafe(32)
        ends_at = None if seconds is None else now + seconds
        self._write([*kept, TokenRecord(name, role, hash_secret(token), ends_at)])
        return token

    def list_valid(self) -> list[TokenRecord]:
        """Return the valid tokens by name; of one name, the first to end comes first."""
        found = [each for each in self._load() if each.valid]
        return sorted(found, key=lambda each: (each.name, each.ends_at or sys.maxsize))

    def revoke(self, name: str) -> None:
        """Revoke a token, also an expired one; raise TokenRefused for the last valid one."""
        readable = self._load()
        known = [each for each in readable if each.valid]
        left = [each for each in known if each.name != name]
        if all(each.name != name for each in readable):
            names = ", ".join(each.name for each in known) or "none"
            raise TokenRefused(f"there is no token {name!r}; known: {names}")
        if not left:
            raise TokenRefused(
                f"{name!r} is the last token, and every request needs a valid one; create another "
                f"token first, or stop the service and remove {self._path} to use it on loopback"
            )
        self._write(left)

    def _reload(self) -> list[TokenRecord]:
        """Return the tokens of the file, read again if it changed; none if it is damaged."""
        with self._lock:
            try:
                status = self._path.stat()
                seen = (status.st_mtime_ns, status.st_size, status.st_ino)
                if seen != self._seen:
                    self._seen, self._known = seen, []  # none, if reading fails
                    self._known = _read_file(self._path)
            except FileNotFoundError:
                self._seen, self._known = None, []
            except (OSError, ValueError) as error:
                log.error("cannot read %s, so no token is valid: %s", self._path, error)
            return self._known

    def _load(self) -> list[TokenRecord]:
        """Return the tokens of the file before a change; never overwrite a damaged file."""
        try:
            return _read_file(self._path)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise TokenRefused(f"cannot read {self._path}; restore it: {error}") from None

    def _write(self, records: list[TokenRecord]) -> None:
        replace_file(self._path, msgspec.json.format(msgspec.json.encode(records)))


def _read_file(path: Path) -> list[TokenRecord]:
    found = msgspec.json.decode(path.read_bytes(), type=list[TokenRecord])
    for each in found:
        if each.role not in ROLES:
            raise ValueError(f"{each.role[:80]!r} is not a role; known: {', '.join(ROLES)}")
    return found


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
