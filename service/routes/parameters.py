"""Parameters: a request names none that its route does not have.

    GET /v1/jobs/items/results?asof=epoch:3 ──► 422: asof is unknown; known: as_of, cursor, ...

What is not known would be passed over, and the answer be another one than was asked for.
"""

from __future__ import annotations

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from service.problems import Problem

_SHOWN = 80  # characters of a name that is repeated


async def require_known(request: Request) -> None:  # async: else it would go to a thread
    """Raise a Problem for a query parameter that the request's route does not have; a dependency
    of every route."""
    if not request.scope["query_string"]:
        return
    route: APIRoute = request.scope["route"]
    known = sorted(_names(route.dependant))
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        detail = f"unknown parameter {unknown[0][:_SHOWN]!r}; known: {', '.join(known) or 'none'}"
        errors = [{"path": f"query.{name[:_SHOWN]}", "message": "is unknown"} for name in unknown]
        raise Problem("parameter-unknown", 422, detail, errors=errors)


def _names(dependant: Dependant) -> set[str]:
    own = {each.alias for each in dependant.query_params}
    return own.union(*map(_names, dependant.dependencies))
