"""Lookup: the one question that is asked most, answered before any routing.

    GET /v1/jobs/NAME/results/KEY, no parameters ──► who asks ──► index ──► 200
                                     anything else about it ──► the route in service.routes.results

A route costs about a millisecond of routing and checking parameters, a look into the index a tenth
of that. So what is plain, and is there, is answered here; every refusal, condition and other form
is the route's, which asks all of it again.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from service.access.tokens import Role
from service.problems import Problem
from service.routes.answering import key_of, of_epoch
from service.runtime import Runtime

LOOKUP = "/v1/jobs/{name}/results/{key}"  # the route that it stands in for
_PLAIN = re.compile(r"/v1/jobs/([a-z][a-z0-9-]*)/results/([^/]+)")


def looked_up(runtime: Runtime, scope: Scope) -> Response | None:
    """The answer to a plain lookup; None where the route has to see to it."""
    if scope["method"] != "GET" or scope["query_string"]:
        return None
    found = _PLAIN.fullmatch(scope["path"])
    if found is None:
        return None
    request = Request(scope)
    if "if-none-match" in request.headers:
        return None
    try:
        runtime.access.check(request, Role.VIEWER)
        follower = runtime.follower(found[1])
        newest = follower.newest
        if newest is None:
            return None
        group = follower.shape.key_bytes(key_of(follower, found[2]))
        epoch, document = follower.index.lookup(group)
    except Problem:
        return None
    if document is None:
        return None
    headers = of_epoch(epoch, newest.watermarks.get("combined"))
    body = b'{"epoch":%d,"row":%b}' % (epoch, document)
    return Response(body, headers=headers, media_type="application/json")
