"""Access: authenticate a request and check its role before the handler runs.

    token, session or ticket ──► role ──► enough for the route? ──► handler
    open: no token file at the start, ──► admin, but only by a loopback name, and not for pages
          bound to loopback               of other sites

On an open service, everyone who reaches the port is admin. The port is on loopback then, but a page
in a browser reaches it too: by a host name that resolves to 127.0.0.1, or by a plain form. Host
reveals the first, Origin the second; both are refused. The service decides at its start whether it
is open. The first token closes it, and it never opens again.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import os
import re
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from schemas.limits import TOKEN_CHARACTERS_MAX
from service.access.sessions import Sessions, Tickets, derive_csrf_token
from service.access.tokens import Role, Tokens, hash_secret
from service.problems import Problem

log = logging.getLogger(__name__)

_HOST = re.compile(r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,60}\])(?::[0-9]{1,5})?", re.ASCII)
_CHANGES = re.compile(r"/v1/jobs/([^/]+)/changes")
_READ_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

# Only for the OpenAPI document. Access checks the token, so that its errors are problems.
SCHEME = HTTPBearer(auto_error=False, description="A token of `retally serve --new-token`")


@lru_cache(maxsize=64)  # called for the Host of every request
def is_loopback(host: str) -> bool:
    """Return whether an address or name always means this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Access:
    """Authenticates requests by a token, a session or a ticket. Call it on the event loop."""

    def __init__(self, tokens: Tokens, host: str, home: Path | None = None) -> None:
        self._tokens = tokens
        self._open = is_loopback(host) and not tokens.required
        home = Path(os.devnull) if home is None else home
        self.sessions = Sessions(home / "sessions.json", tokens)
        self.tickets = Tickets()
        # Cookies ignore ports: services on one host must not read each other's.
        self._cookie = f"retally-{hashlib.sha256(str(home).encode()).hexdigest()[:8]}"

    def admits_everybody(self) -> bool:
        """Return whether no token is needed; never again true once it was false."""
        if self._open and self._tokens.required:
            self._open = False
            log.warning("the first token exists now: requests without a valid token are refused")
        return self._open

    def authorize(self, request: Request, needed: Role) -> None:
        """Set request.state.who, .role and .by; raise a Problem if the role is too low."""
        # A client that sends a token expects a check, so an open service refuses a wrong one too.
        # It ignores other schemes: a proxy that asks for a password passes Basic on.
        if self.admits_everybody() and _read_bearer(request) is None:
            _require_local(request)
            name, role, request.state.by = "local", Role.ADMIN, "loopback"
            request.state.token = None
        else:
            name, role = self._authenticate(request)
        request.state.who, request.state.role = name, role
        if role < needed:
            raise Problem(
                "forbidden",
                f"the role {needed.name.lower()} is required; the token has {role.name.lower()}",
            )

    def find_likely_role(self, request: Request) -> Role | None:
        """Return the probable role of a request; refuse nothing and use up no ticket."""
        if self.admits_everybody():
            return Role.ADMIN
        token, cookie = _read_bearer(request), self.find_session(request)
        if token is not None:
            known = self._tokens.find_role(token)
        else:
            known = None if cookie is None else self.sessions.find_role(cookie)
        return None if known is None else known[1]

    def _authenticate(self, request: Request) -> tuple[str, Role]:
        """Return name and role; a header or ticket precedes the cookie, which browsers add."""
        token: str | None = None  # the hash of the token
        cookie = self.find_session(request)
        ticket = request.query_params.get("ticket")
        changes = _CHANGES.fullmatch(request.url.path)
        if "authorization" in request.headers:
            request.state.by = "token"
            bearer = _read_bearer(request)
            token = None if bearer is None else hash_secret(bearer)
        elif ticket and changes and request.method == "GET":
            request.state.by = "ticket"
            token = self.tickets.redeem(ticket, changes[1])
        elif cookie is not None:
            request.state.by = "session"
            if self.sessions.find_role(cookie) is not None:
                token = self.sessions.find_token_hash(cookie)
                if request.method not in _READ_METHODS:
                    _require_own_page(request, cookie)
        known = None if token is None else self._tokens.find_role_by_hash(token)
        if known is None:
            raise Problem(
                "unauthorized",
                "send the header Authorization: Bearer TOKEN with a valid token",
                headers={"WWW-Authenticate": 'Bearer realm="retally"'},
            )
        request.state.token = token
        return known

    def make_admission(self, request: Request) -> Callable[[], bool]:
        """Return a function that tells whether the token of a request is still valid.

        A stream calls it again and again, because it outlives the check of its request.
        """
        return partial(self.is_admitted, request.state.token)

    def is_admitted(self, token: str | None) -> bool:
        """Return whether the token with this hash is valid; None is valid on an open service."""
        if token is None:
            return self.admits_everybody()
        return self._tokens.find_role_by_hash(token) is not None

    def find_token(self, token: str) -> tuple[str, Role, str] | None:
        """Return name, role and hash of a token; None if it is not valid."""
        known = self._tokens.find_role(token)
        return None if known is None else (*known, hash_secret(token))

    # --- browsers -------------------------------------------------------------------------------

    def find_session(self, request: Request) -> str | None:
        return request.cookies.get(self._cookie)

    def make_cookie(self, request: Request, session: str, seconds: int) -> str:
        """Return the header Set-Cookie: HttpOnly, SameSite=Strict, Secure over TLS."""
        secure = request.url.scheme == "https" or (
            request.headers.get("x-forwarded-proto", "").lower() == "https"
        )
        header = f"{self._cookie}={session}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict"
        return f"{header}; Secure" if secure else header


def _read_bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip()[:TOKEN_CHARACTERS_MAX] if scheme.lower() == "bearer" else None


def _require_own_page(request: Request, session: str) -> None:
    """Refuse a request of another site's page: browsers send the cookie with it."""
    require_same_origin(request)
    given = request.headers.get("x-csrf-token", "")
    if not hmac.compare_digest(given.encode(), derive_csrf_token(session).encode()):
        detail = "send the csrf token of GET /v1/session in the header X-CSRF-Token"
        raise Problem("csrf-refused", detail)


def require_same_origin(request: Request, known: str | None = None) -> None:
    """Refuse a page of another site; compare the scheme if known, also from a proxy."""
    origin = request.headers.get("origin")
    if origin is None:
        return
    scheme, _, host = origin.partition("://")
    own = request.headers.get("x-forwarded-proto", known)
    if host != request.headers.get("host", "") or (own is not None and own.lower() != scheme):
        raise Problem("host-refused", "pages of other sites must not send this request")


def _require_local(request: Request) -> None:
    found = _HOST.fullmatch(request.headers.get("host", ""))
    if found is None or not is_loopback(found[1]):
        raise Problem(
            "host-refused", "a service without tokens requires a loopback name in the header Host"
        )
    require_same_origin(request, request.url.scheme)  # an open service has no proxy


def require_role(role: Role) -> Any:
    """Return the dependency of a route that requires a role; the OpenAPI document names it."""

    async def dependency(request: Request, _: Annotated[object, Depends(SCHEME)]) -> None:
        access: Access = request.app.state.access
        access.authorize(request, role)

    dependency.__name__ = f"require_{role.name.lower()}"
    return Security(dependency, scopes=[role.name.lower()])


# The dependencies of a route.
VIEWER = require_role(Role.VIEWER)
OPERATOR = require_role(Role.OPERATOR)
ADMIN = require_role(Role.ADMIN)
