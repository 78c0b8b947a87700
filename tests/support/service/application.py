"""The application in the process of the test, without a server in front of it."""

from __future__ import annotations

from functools import cache

from fastapi import FastAPI
from starlette.types import ASGIApp

from service import app
from service.live.reader_process import ReaderSpawner
from service.settings import Settings

# One for all tests of a worker: each is a fork of the worker, with all that it has in memory.
_spawner = cache(ReaderSpawner.start)


def create_application(settings: Settings) -> tuple[FastAPI, ASGIApp]:
    """Return the application and its gate; nothing of it is started."""
    return app.create(settings, _spawner())
