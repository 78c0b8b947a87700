"""Runtime: the parts of a running service, put together once."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from service.access import Access
from service.jobs import Jobs
from service.register import Register
from service.settings import Settings
from service.supervisor import Supervisor
from service.tokens import Tokens


class Runtime:
    """Made before the first request, closed after the last; the jobs go on without it."""

    def __init__(self, settings: Settings) -> None:
        places = settings.places
        places.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.settings = settings
        self.tokens = Tokens(places.tokens)
        self.access = Access(self.tokens, settings.host)
        self.register = Register(places.register)
        self.jobs = Jobs(settings, self.register)
        self.supervisor = Supervisor(self.register, places, settings.run_arguments)

    def start(self) -> None:
        self.supervisor.start()

    def close(self) -> None:
        self.supervisor.close()
        self.register.close()

    def standing(self, name: str) -> dict[str, Any]:
        """How far a job is, as its table says."""
        return {}

    def delete(self, name: str, *, drop_data: bool, if_match: str | None) -> None:
        self.jobs.delete(name, drop_data=drop_data, if_match=if_match)


def runtime_of(request: Request) -> Runtime:
    runtime: Runtime = request.app.state.runtime
    return runtime
