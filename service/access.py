"""Access: what a request needs before its handler is called.

    token ──► role ──► enough for the route? ──► handler
    no tokens at all, bound to loopback ──► admin, but only by a loopback name, and for no page
                                            of another site

Without tokens whoever reaches the port is admin. The port is loopback then, but a page in a
browser reaches that too: by a name of its own that it points at 127.0.0.1, or by a plain form. The
first shows in Host, the second in Origin; both are refused.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.security import HTTPBearer

from service.problems import Problem
from service.tokens import Role, Tokens

log = logging.getLogger(__name__)

# Declared for the OpenAPI document; the check is ours, so that its refusals are problems.
_SCHEME = HTTPBearer(auto_error=False, description="A token of `retally serve --new-token`")


def loopback(host: str) -> bool:
    """Whether an address or name is this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Access:
    """Decides for each request who it is of."""

    def __init__(self, tokens: Tokens, host: str) -> None:
        self._tokens = tokens
        self._on_loopback = loopback(host)

    @property
    def open_to_all(self) -> bool:
        return self._on_loopback and not self._tokens.any

    def check(self, request: Request, needed: Role) -> None:
        if self.open_to_all:
            _local_only(request)
            request.state.who = "local"
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        known = self._tokens.role_of(token.strip()) if scheme.lower() == "bearer" else None
        if known is None:
            raise Problem(
                "unauthorized",
                401,
                "send the header Authorization: Bearer TOKEN with a valid token",
                headers={"WWW-Authenticate": 'Bearer realm="retally"'},
            )
        name, role = known
        request.state.who = name
        if role < needed:
            raise Problem(
                "forbidden",
                403,
                f"the token's role is {role.name.lower()}; this needs {needed.name.lower()}",
            )


def _local_only(request: Request) -> None:
    host = request.headers.get("host", "")
    name = urlsplit(f"//{host}").hostname or ""
    if not loopback(name):
        raise Problem("host-refused", 403, "without tokens, only loopback names are served")
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        raise Problem("host-refused", 403, "without tokens, pages of other sites are refused")


def needs(role: Role) -> Callable[..., Awaitable[None]]:
    """The dependency of a route: who may use it."""

    async def dependency(request: Request) -> None:  # async: else it would go to a thread
        access: Access = request.app.state.access
        access.check(request, role)

    dependency.__name__ = f"needs_{role.name.lower()}"
    return dependency


SCHEME = _SCHEME
