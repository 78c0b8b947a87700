"""The visitor of a page: the user, their role and their session.

request ──► service.access, as for every route ──► Visitor ──► page
                   └ unknown user ──► the login page, then back to the requested page
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from fastapi import Request

from service.access.requirements import Access
from service.access.sessions import derive_csrf_token
from service.access.tokens import Role

_NEXT_CHARACTERS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Visitor:
    who: str
    role: Role
    csrf: str | None  # for X-CSRF-Token; None if the request needs no session
    logged_in: bool  # by a session, so the page shows a logout button

    @property
    def can_operate(self) -> bool:
        return self.role >= Role.OPERATOR

    @property
    def can_administer(self) -> bool:
        return self.role >= Role.ADMIN

    @property
    def role_name(self) -> str:
        return self.role.name.lower()


def require_visitor(request: Request, needed: Role = Role.VIEWER) -> Visitor:
    """Return the user of a request; raise a Problem if unknown or without the role."""
    access: Access = request.app.state.access
    access.authorize(request, needed)
    cookie = access.find_session(request) if request.state.by == "session" else None
    return Visitor(
        who=request.state.who,
        role=request.state.role,
        csrf=None if cookie is None else derive_csrf_token(cookie),
        logged_in=cookie is not None,
    )


def login_address(request: Request) -> str:
    """Return the address of the login page, which leads back to this page."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return "/login" if wanted == "/" else f"/login?next={quote(safe_path(wanted), safe='')}"


def safe_path(wanted: str) -> str:
    """Return a path of this service; / for an address that leads to another site."""
    parts = urlsplit(wanted)
    leads_away = parts.scheme or parts.netloc or not wanted.startswith("/") or "\\" in wanted
    unsafe = len(wanted) > _NEXT_CHARACTERS_MAX or not wanted.isprintable()
    return "/" if leads_away or unsafe or wanted.startswith("//") else wanted
