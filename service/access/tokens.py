"""Tokens: who may do what. Bearer tokens with a role, kept as hashes.

    Authorization: Bearer rt_...  ──► SHA-256 ──► compared with every known hash ──► name, role

A token is 256 random bits that we made ourselves, so one SHA-256 is hash enough: there is nothing
to guess. All hashes are compared, each in constant time. `service/tokens.json` is read again when
it changes, so that a token that was taken away stops to work at once. A file that is lost, empty or
damaged has no token in it, and never means that none is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import sys
import threading
import time
from enum import IntEnum
from pathlib import Path

import msgspec

from schemas.limits import TOKEN_OVERLAP_SECONDS

log = logging.getLogger(__name__)

PREFIX = "rt_"
TOKEN_CHARACTERS_MAX = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


class Role(IntEnum):
    """Each may do what those before it may."""

    VIEWER = 1  # read results, changes and how jobs are doing
    OPERATOR = 2  # start, pause and stop jobs, name savepoints, audit
    ADMIN = 3  # create, change and delete jobs, set them back


ROLES = {role.name.lower(): role for role in Role}


class TokenRefused(ValueError):
    """A token cannot be made or taken away as asked."""


class TokenRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    role: str
    sha256: str
    ends_at: int | None = None  # seconds since 1970

    @property
    def valid(self) -> bool:
        return self.ends_at is None or time.time() < self.ends_at


class Tokens:
    """The tokens of a service."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._known: list[TokenRecord] = []

    @property
    def wanted(self) -> bool:
        """Whether anybody has ever made a token here; the file stays when its last one ends."""
        return self._path.exists()

    @property
    def any(self) -> bool:
        return any(each.valid for each in self._current())

    def role_of(self, token: str) -> tuple[str, Role] | None:
        """The name and role of a token; None for one that is not known."""
        return self.role_of_hash(_hash(token[:TOKEN_CHARACTERS_MAX]))

    def role_of_hash(self, given: str) -> tuple[str, Role] | None:
        """Those of the token with a hash; None once it was revoked."""
        found: tuple[str, Role] | None = None
        for known in self._current():  # all of them: how many there are tells nothing
            if hmac.compare_digest(known.sha256, given) and known.valid:
                found = (known.name, ROLES[known.role])
        return found

    def add(self, name: str, role: str, seconds: int | None = None) -> str:
        """Make a token, for ever or for so long; this is the only time that anybody sees it. One
        of the same name goes on for TOKEN_OVERLAP_SECONDS, so that it can be replaced at ease."""
        if _NAME.fullmatch(name) is None:
            raise TokenRefused(f"{name[:80]!r} is no token's name; use letters, digits, . _ -")
        if role not in ROLES:
            raise TokenRefused(f"{role[:80]!r} is no role; known: {', '.join(ROLES)}")
        now = int(time.time())
        known = [each for each in self._readable() if each.valid]
        before = [each for each in known if each.name == name]
        if any(each.role != role for each in before):
            raise TokenRefused(f"token {name!r} is {before[0].role}; revoke it first")
        last = now + TOKEN_OVERLAP_SECONDS
        kept = [
            msgspec.structs.replace(each, ends_at=min(each.ends_at or last, last))
            if each.name == name
            else each
            for each in known
        ]
        token = PREFIX + secrets.token_urlsafe(32)
        ends_at = None if seconds is None else now + seconds
        self._write([*kept, TokenRecord(name, role, _hash(token), ends_at)])
        return token

    def listed(self) -> list[TokenRecord]:
        """All that are valid now, by name; those that end first come first."""
        found = [each for each in self._readable() if each.valid]
        return sorted(found, key=lambda each: (each.name, each.ends_at or sys.maxsize))

    def revoke(self, name: str) -> None:
        """End a token; refused for the last one, without which nobody could use the service."""
        known = [each for each in self._readable() if each.valid]
        left = [each for each in known if each.name != name]
        if len(left) == len(known):
            names = ", ".join(each.name for each in known) or "none"
            raise TokenRefused(f"there is no token {name!r}; known: {names}")
        if not left:
            raise TokenRefused(
                f"{name!r} is the last token, and without one nobody is let in; make another token "
                f"first, or stop the service and remove {self._path} to need none on loopback"
            )
        self._write(left)

    def _current(self) -> list[TokenRecord]:
        """All that are known now; none where the file is lost or damaged."""
        with self._lock:
            try:
                status = self._path.stat()
                seen = (status.st_mtime_ns, status.st_size, status.st_ino)
                if seen != self._seen:
                    self._seen, self._known = seen, []  # nobody, if it cannot be read
                    self._known = _read(self._path)
            except FileNotFoundError:
                self._seen, self._known = None, []
            except (OSError, ValueError) as error:
                log.error("%s cannot be read, so no token is valid: %s", self._path, error)
            return self._known

    def _readable(self) -> list[TokenRecord]:
        """All that are known, to be written again; a damaged file is not written over."""
        try:
            return _read(self._path)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise TokenRefused(f"{self._path} cannot be read; restore it: {error}") from None

    def _write(self, records: list[TokenRecord]) -> None:
        write_private(self._path, msgspec.json.format(msgspec.json.encode(records)))


def _read(path: Path) -> list[TokenRecord]:
    found = msgspec.json.decode(path.read_bytes(), type=list[TokenRecord])
    for each in found:
        if each.role not in ROLES:
            raise ValueError(f"{each.role[:80]!r} is no role; known: {', '.join(ROLES)}")
    return found


def write_private(path: Path, content: bytes) -> None:
    """In one step, and readable by nobody else."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    fresh.replace(path)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
