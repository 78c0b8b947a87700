"""The REST API as a page, rendered from its OpenAPI document.

Each route has a form that sends a request with the visitor's rights: assets/rest.js.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from markupsafe import Markup, escape

from service.access.tokens import ROLES, Role
from service.console.page import PageRoute, render_page
from service.console.visitor import Visitor, require_visitor
from service.runtime import runtime_of

router = APIRouter(include_in_schema=False, route_class=PageRoute)

_CODE = re.compile(r"`([^`]+)`")
# Beside DELETE: they may drop a job's state, epochs or counted records.
_DESTRUCTIVE = ("/approve", "/rewind", "/offsets")
_METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    location: str  # path, query or header
    type: str
    required: bool
    text: Markup
    choices: tuple[str, ...]  # all of its values, if they are few
    repeatable: bool


@dataclass(frozen=True, slots=True)
class RestOperation:
    method: str
    path: str
    summary: Markup
    text: Markup  # paragraphs after the summary
    parameters: tuple[Parameter, ...]
    needed: Role | None
    media: str | None  # of the body
    body: str | None  # an example as JSON
    example: str | None  # of the answer
    statuses: tuple[tuple[str, str], ...]

    def allows(self, visitor: Visitor) -> bool:
        return self.needed is None or visitor.role >= self.needed

    @property
    def destructive(self) -> bool:
        """Whether the dialog before the request asks for the name that is in its path."""
        changes = self.method != "GET" and self.path.endswith(_DESTRUCTIVE)
        return changes or self.method == "DELETE"

    @property
    def id(self) -> str:
        words = self.path.replace("{", "").replace("}", "").strip("/").replace("/", "-")
        return f"{self.method}-{words}".lower().replace(":", "-")


@router.get("/rest")
async def rest_page(request: Request) -> Response:
    """Show all routes of the REST API."""
    visitor = require_visitor(request)
    groups = await run_in_threadpool(_read_groups, request.app)
    return await render_page(
        request,
        visitor,
        "rest.html",
        groups=groups,
        base=str(request.base_url).rstrip("/"),
        jobs=[each.name for each in runtime_of(request).jobs.list_records()],
    )


@cache
def _read_groups(app: FastAPI) -> list[tuple[str, list[RestOperation]]]:
    """Return the operations by their first tag, in the order of the document."""
    document = app.openapi()
    found: dict[str, list[RestOperation]] = {}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                tag = (methods[method].get("tags") or ["other"])[0]
                found.setdefault(tag, []).append(_read_operation(path, method, methods[method]))
    return list(found.items())


def _read_operation(path: str, method: str, operation: Mapping[str, Any]) -> RestOperation:
    text = str(operation.get("description", "")).strip()
    summary, _, rest = text.partition("\n\n")
    content = operation.get("requestBody", {}).get("content", {})
    answers = operation.get("responses", {})
    needed = [chain(*each.values()) for each in operation.get("security", ())]
    return RestOperation(
        method.upper(),
        path,
        _mark_code(summary or str(operation.get("summary", ""))),
        _mark_code(rest),
        tuple(_read_parameters(operation.get("parameters", ()))),
        max((ROLES[role] for role in chain(*needed)), default=None),
        next(iter(content), None),
        _find_example(content),
        next(
            (
                example
                for status, answer in answers.items()
                if status.startswith("2") and (example := _find_example(answer.get("content", {})))
            ),
            None,
        ),
        tuple((status, str(answer.get("description", ""))) for status, answer in answers.items()),
    )


def _read_parameters(parameters: Any) -> Iterator[Parameter]:
    for each in parameters:
        schema = each.get("schema", {})
        yield Parameter(
            each["name"],
            each["in"],
            _name_type(schema),
            bool(each.get("required")),
            _mark_code(str(each.get("description") or schema.get("description") or "")),
            _list_choices(schema),
            any(part.get("type") == "array" for part in (schema, *schema.get("anyOf", ()))),
        )


def _list_choices(schema: Mapping[str, Any]) -> tuple[str, ...]:
    parts = (schema, *schema.get("anyOf", ()))
    if any(part.get("type") == "boolean" for part in parts):
        return ("true", "false")
    return tuple(str(value) for part in parts for value in part.get("enum", ()))


def _mark_code(text: str) -> Markup:
    """Return a text with `code` as elements."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704


def _name_type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        named = [_name_type(each) for each in schema["anyOf"]]
        return " or ".join(name for name in named if name != "null")
    if schema.get("type") == "array":
        return f"{_name_type(schema.get('items', {}))}, repeatable"
    return str(schema.get("type", "any"))


def _find_example(content: Mapping[str, Any]) -> str | None:
    for media in content.values():
        example = media.get("example")
        if example is None:
            example = next((each.get("value") for each in media.get("examples", {}).values()), None)
        if example is not None:
            return example if isinstance(example, str) else json.dumps(example, indent=2)
    return None
