"""Access: what a request needs before its handler is called.

    token, session or ticket ──► role ──► enough for the route? ──► handler
    open: no token file at the start, ──► admin, but only by a loopback name, and for no page
          bound to loopback               of another site

On an open service whoever reaches the port is admin. The port is loopback then, but a page in a
browser reaches that too: by a name of its own that it points at 127.0.0.1, or by a plain form. The
first shows in Host, the second in Origin; both are refused. Whether a service is open is decided
when it starts. The first token closes it; nothing that happens to the tokens opens it again.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import os
import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from pathlib import Path

from fastapi import Request
from fastapi.security import HTTPBearer

from service.access.sessions import Sessions, Tickets, change_word, hashed
from service.access.tokens import TOKEN_CHARACTERS_MAX, Role, Tokens
from service.problems import Problem

log = logging.getLogger(__name__)

_HOST = re.compile(r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,60}\])(?::[0-9]{1,5})?", re.ASCII)
_CHANGES = re.compile(r"/v1/jobs/([^/]+)/changes")
_LOOKS = frozenset({"GET", "HEAD", "OPTIONS"})

# Declared for the OpenAPI document; the check is ours, so that its refusals are problems.
_SCHEME = HTTPBearer(auto_error=False, description="A token of `retally serve --new-token`")


@lru_cache(maxsize=64)  # every request asks it of its Host
def loopback(host: str) -> bool:
    """Whether an address or name is this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Access:
    """Decides for each request who it is of: by a token, a session or a ticket."""

    def __init__(self, tokens: Tokens, host: str, home: Path | None = None) -> None:
        self._tokens = tokens
        self._open = loopback(host) and not tokens.wanted
        home = Path(os.devnull) if home is None else home
        self.sessions = Sessions(home / "sessions.json", tokens)
        self.tickets = Tickets(tokens)
        # Cookies do not know of ports: services of one host must not take each other's.
        self._cookie = f"retally-{hashlib.sha256(str(home).encode()).hexdigest()[:8]}"

    def admits_everybody(self) -> bool:
        """Return whether no token is needed; never again true once it was false."""
        if self._open and self._tokens.wanted:
            self._open = False
            log.warning("there is a token now: requests without a valid one are refused")
        return self._open

    def check(self, request: Request, needed: Role) -> None:
        # A token that is sent is meant to be checked, so a wrong one is refused everywhere.
        if self.admits_everybody() and _bearer(request) is None:
            _local_only(request)
            name, role, request.state.by = "local", Role.ADMIN, "loopback"
        else:
            name, role = self._known(request)
        request.state.who, request.state.role = name, role
        if role < needed:
            raise Problem(
                "forbidden",
                403,
                f"the token's role is {role.name.lower()}; this needs {needed.name.lower()}",
            )

    def likely_role(self, request: Request) -> Role | None:
        """Return the role that a request will turn out to have; nothing is refused or used up."""
        if self.admits_everybody():
            return Role.ADMIN
        token, cookie = _bearer(request), self.session_of(request)
        if token is not None:
            known = self._tokens.role_of(token)
        else:
            known = None if cookie is None else self.sessions.role_of(cookie)
        return None if known is None else known[1]

    def _known(self, request: Request) -> tuple[str, Role]:
        """Name and role; what is sent on purpose counts before what a browser sends by itself."""
        known: tuple[str, Role] | None = None
        cookie = self.session_of(request)
        ticket = request.query_params.get("ticket")
        changes = _CHANGES.fullmatch(request.url.path)
        if "authorization" in request.headers:
            request.state.by = "token"
            token = _bearer(request)
            known = None if token is None else self._tokens.role_of(token)
        elif ticket and changes and request.method == "GET":
            request.state.by = "ticket"
            known = self.tickets.take(ticket, changes[1])
        elif cookie is not None:
            request.state.by = "session"
            known = self.sessions.role_of(cookie)
            if known is not None and request.method not in _LOOKS:
                _of_our_page(request, cookie)
        if known is None:
            raise Problem(
                "unauthorized",
                401,
                "send the header Authorization: Bearer TOKEN with a valid token",
                headers={"WWW-Authenticate": 'Bearer realm="retally"'},
            )
        return known

    # --- browsers -------------------------------------------------------------------------------

    def session_of(self, request: Request) -> str | None:
        return request.cookies.get(self._cookie)

    def cookie(self, request: Request, session: str, seconds: int) -> str:
        """The header that sets it: for no script, for no other site, and over TLS only where the
        browser came by TLS."""
        secure = request.url.scheme == "https" or (
            request.headers.get("x-forwarded-proto", "").lower() == "https"
        )
        told = f"{self._cookie}={session}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict"
        return f"{told}; Secure" if secure else told

    def token_hash(self, request: Request) -> str | None:
        """Of the token behind a request that was checked; None where there are no tokens."""
        if request.state.by == "session":
            cookie = self.session_of(request)
            return None if cookie is None else self.sessions.token_of(cookie)
        token = _bearer(request)
        return None if token is None else hashed(token)


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip()[:TOKEN_CHARACTERS_MAX] if scheme.lower() == "bearer" else None


def _of_our_page(request: Request, session: str) -> None:
    """A browser sends its cookie with whatever any page makes it ask for."""
    same_origin(request)
    given = request.headers.get("x-csrf-token", "")
    if not hmac.compare_digest(given.encode(), change_word(session).encode()):
        detail = "send the word that GET /v1/session calls csrf in the header X-CSRF-Token"
        raise Problem("csrf-refused", 403, detail)


def same_origin(request: Request, known: str | None = None) -> None:
    """Refuse a page of another site. Its scheme counts if a proxy tells ours, or if it is known."""
    origin = request.headers.get("origin")
    if origin is None:
        return
    scheme, _, host = origin.partition("://")
    own = request.headers.get("x-forwarded-proto", known)
    if host != request.headers.get("host", "") or (own is not None and own.lower() != scheme):
        raise Problem("host-refused", 403, "pages of other sites are refused")


def _local_only(request: Request) -> None:
    found = _HOST.fullmatch(request.headers.get("host", ""))
    if found is None or not loopback(found[1]):
        raise Problem("host-refused", 403, "without tokens, only loopback names are served")
    same_origin(request, request.url.scheme)  # there is no proxy before an open service


def needs(role: Role) -> Callable[..., Awaitable[None]]:
    """The dependency of a route: who may use it."""

    async def dependency(request: Request) -> None:  # async: else it would go to a thread
        access: Access = request.app.state.access
        access.check(request, role)

    dependency.__name__ = f"needs_{role.name.lower()}"
    return dependency


SCHEME = _SCHEME
