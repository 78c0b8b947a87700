"""Parameters: refuse query parameters that the route does not have.

    GET /v1/jobs/items/results?asof=epoch:3 ──► 422: asof is unknown; known: as_of, cursor, ...

An ignored parameter would silently change the meaning of a request.
"""

from __future__ import annotations

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from service.problems import Problem

_SHOWN = 80  # characters of an unknown name in the message


async def require_known(request: Request) -> None:  # async: avoids a thread for it
    """Raise a Problem for a query parameter that the route does not have."""
    if not request.scope["query_string"]:
        return
    route: APIRoute = request.scope["route"]
    known = sorted(_list_names(route.dependant))
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        detail = f"unknown parameter {unknown[0][:_SHOWN]!r}; known: {', '.join(known) or 'none'}"
        errors = [{"path": f"query.{name[:_SHOWN]}", "message": "is unknown"} for name in unknown]
        raise Problem("parameter-unknown", 422, detail, errors=errors)


def _list_names(dependant: Dependant) -> set[str]:
    own = {each.alias for each in dependant.query_params}
    return own.union(*map(_list_names, dependant.dependencies))
