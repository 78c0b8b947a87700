"""The application in the process of the test, without a server in front of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.types import ASGIApp

from service import app
from service.live.reader_process import ReaderSpawner
from service.settings import Settings

# One for all tests of a worker: each is a fork of the worker, with all that it has in memory.
_spawner = cache(ReaderSpawner.start)


def create_application(settings: Settings) -> tuple[FastAPI, ASGIApp]:
    """Return the application and its gate; nothing of it is started."""
    return app.create(settings, _spawner())


def spawn_attempt() -> Connection:
    """Fork a process for one attempt; return the connection to it."""
    return _spawner().spawn_attempt()


def find_routes(application: FastAPI) -> Iterator[APIRoute]:
    """Yield all routes, those of its routers too."""
    yield from _flatten(application.routes)


def is_address_of(path: str, address: str) -> bool:
    """Return whether an address, without its query, is one of a route's path."""
    pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))
    pattern = re.sub(r"\\\{\w+:path\\\}", ".+", pattern)
    return re.fullmatch(pattern, address) is not None


def _flatten(routes: Any) -> Iterator[APIRoute]:
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        else:
            yield from _flatten(getattr(getattr(route, "original_router", route), "routes", ()))
