"""The visitor: who looks at a page, and what they may do there.

request ──► service.access, as for every route ──► Visitor ──► page
                   └ nobody that is known ──► the login page, and back to where they wanted to
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from fastapi import Request

from service.access.requirements import Access
from service.access.sessions import change_word
from service.access.tokens import Role

_NEXT_CHARACTERS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Visitor:
    who: str
    role: Role
    csrf: str | None  # what a change has to say; None where no session is needed
    logged_in: bool  # by a session, which they can end

    @property
    def operates(self) -> bool:
        return self.role >= Role.OPERATOR

    @property
    def administers(self) -> bool:
        return self.role >= Role.ADMIN

    @property
    def role_name(self) -> str:
        return self.role.name.lower()


def visitor_of(request: Request, needed: Role = Role.VIEWER) -> Visitor:
    """Who asks for a page; a Problem where they are not known, or may not see it."""
    access: Access = request.app.state.access
    access.check(request, needed)
    cookie = access.session_of(request) if request.state.by == "session" else None
    return Visitor(
        who=request.state.who,
        role=request.state.role,
        csrf=None if cookie is None else change_word(cookie),
        logged_in=cookie is not None,
    )


def login_address(request: Request) -> str:
    """The login page, which leads back to this one."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return "/login" if wanted == "/" else f"/login?next={quote(own_place(wanted), safe='')}"


def own_place(wanted: str) -> str:
    """A path of this service; whatever leads elsewhere becomes the first page."""
    parts = urlsplit(wanted)
    leads_away = parts.scheme or parts.netloc or not wanted.startswith("/") or "\\" in wanted
    unsafe = len(wanted) > _NEXT_CHARACTERS_MAX or not wanted.isprintable()
    return "/" if leads_away or unsafe or wanted.startswith("//") else wanted
