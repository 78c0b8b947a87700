"""The page of a group: why it is what it is."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Annotated
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from schemas.limits import CONSOLE_STORIES_KEPT
from service.console.job_view import followed_job
from service.console.page import PageRoute, page
from service.console.rows import key_label, key_part
from service.console.story.group_story import Known, Story, known_of
from service.console.visitor import visitor_of
from service.live.follower import Follower
from service.routes.answering import key_of, read_table
from service.runtime import Runtime, runtime_of
from service.table.job_table import Key, Table

router = APIRouter(include_in_schema=False, route_class=PageRoute)


_REST = 4.0  # times as long as it took


class _Kept:
    """What was read of some groups, while their job's newest epoch is the same: a page that is
    looked at asks every few seconds. What took long to read is told again for longer, so that a
    giant group that somebody looks at takes a part of a core at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: WeakKeyDictionary[Follower, OrderedDict[bytes, tuple[str, float, Known]]]
        self._found = WeakKeyDictionary()

    def of(self, runtime: Runtime, follower: Follower, key: Key) -> Known:
        name = follower.shape.key_bytes(key)
        newest = "" if follower.newest is None else follower.newest.uuid
        with self._lock:
            known = self._found.setdefault(follower, OrderedDict()).get(name)
        began = time.monotonic()
        if known is not None and (known[0] == newest or began < known[1]):
            return known[2]

        def look(table: Table) -> Known:
            return known_of(table, follower.shape, key, follower.spec.state.buckets)

        made = read_table(runtime, follower, look)
        with self._lock:
            kept = self._found.setdefault(follower, OrderedDict())
            now = time.monotonic()
            kept[name] = (newest, now + _REST * (now - began), made)
            while len(kept) > CONSOLE_STORIES_KEPT:
                kept.popitem(last=False)
        return made


_kept = _Kept()


@router.get("/jobs/{name}/results/{key}")
async def key_page(
    request: Request,
    name: str,
    key: str,
    epoch: Annotated[int | None, Query(ge=0, le=2**62)] = None,
) -> Response:
    """One group of a job."""
    visitor = visitor_of(request)
    runtime = runtime_of(request)
    follower, job = await followed_job(request, name)
    group = key_of(follower, key)
    known = await run_in_threadpool(_kept.of, runtime, follower, group)
    story = Story(follower.shape, known, epoch)
    named = follower.shape.key(group)
    return await page(
        request, visitor, "key.html",
        job=job, tab="results", story=story, document=known.document,
        label=key_label(named), part=key_part(named), asked=epoch,
    )  # fmt: skip
