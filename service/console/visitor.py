"""The visitor of a page: the user, their role and their session.

request ──► service.access, as for every route ──► Visitor ──► page
                   └ unknown user ──► the login page, then back to the requested page
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from urllib.parse import quote, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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


@dataclass(frozen=True, slots=True)
class Preferences:
    """What a browser prefers, by cookies that assets/preferences.js sets."""

    theme: str = ""  # light or dark; "" follows the system
    zone: str = "UTC"
    keys: str = ""  # off without keyboard shortcuts

    @property
    def tzinfo(self) -> tzinfo:
        return UTC if self.zone == "UTC" else ZoneInfo(self.zone)


def read_preferences(request: Request) -> Preferences:
    """Return the preferences in the cookies of a request; other values than ours are ignored."""
    theme, zone, keys = (
        request.cookies.get(f"retally-{name}", "") for name in ("theme", "zone", "keys")
    )
    try:
        ZoneInfo(zone or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        zone = ""
    return Preferences(
        theme if theme in ("light", "dark") else "", zone or "UTC", "off" if keys == "off" else ""
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
