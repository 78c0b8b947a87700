"""Lookup: the most frequent request, answered before routing.

    GET /v1/jobs/NAME/results/KEY, no parameters ──► authorize ──► index ──► 200
                                     everything else ──► the route in service.routes.results

Routing and parameter checks take about a millisecond, a lookup in the index a tenth of that. So
plain lookups of existing groups are answered here. The route handles all errors, conditions and
other forms, and repeats every check.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from service.access.tokens import Role
from service.problems import Problem
from service.routes.answering import make_epoch_headers, parse_key
from service.runtime import Runtime

LOOKUP = "/v1/jobs/{name}/results/{key}"  # the route that it replaces
_PLAIN = re.compile(r"/v1/jobs/([a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)?)/results/([^/]+)")


def answer_lookup(runtime: Runtime, scope: Scope) -> Response | None:
    """Return the response to a plain lookup; None if the route has to handle it."""
    if scope["method"] != "GET" or scope["query_string"]:
        return None
    found = _PLAIN.fullmatch(scope["path"])
    if found is None:
        return None
    request = Request(scope)
    if "if-none-match" in request.headers:
        return None
    try:
        runtime.access.authorize(request, Role.VIEWER)
        live_table = runtime.find_live_table(found[1])
        newest = live_table.newest
        if newest is None or (live_table.paths.view and "." not in found[1]):
            return None
        group = live_table.shape.key_bytes(parse_key(live_table, found[2]))
        epoch, document, tag = live_table.index.lookup(group)
    except Problem:
        return None
    if document is None:
        return None
    headers = make_epoch_headers(tag, epoch, newest.watermark)
    body = b'{"epoch":%d,"row":%b}' % (epoch, document)
    return Response(body, headers=headers, media_type="application/json")
