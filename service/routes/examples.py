"""Bodies and responses of routes in the OpenAPI document: schemas and examples from structs.

struct ──► schema, a component of the document
      └──► fields ──► the values in examples.yaml ──► example
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import msgspec.yaml
from msgspec import inspect

from schemas.documents.answers import Problem
from schemas.types.json_types import JsonObject

_VALUES = msgspec.yaml.decode(Path(__file__).with_suffix(".yaml").read_bytes())
SPEC_DOCUMENT: JsonObject = _VALUES["structs"]["Job"]["spec"]
_STATUS = {
    400: "The request cannot be parsed",
    401: "No valid token",
    403: "The role of the token is too low",
    404: "Not found",
    406: "Unsupported media type",
    409: "The job's state does not allow it",
    410: "Retention has removed the history",
    412: "A precondition of the request failed",
    413: "The body is too large",
    422: "Invalid request; `errors` lists every error",
    429: "Too many requests",
    501: "Not supported by this installation",
    502: "The brokers advertise an address that is not allowed",
    503: "Temporarily unavailable",
}
# The structs of responses, in the order of their routes.
_DOCUMENTS: dict[type[msgspec.Struct], None] = {}
# The response to a client that has the newest epoch already, without a body.
NOT_MODIFIED: dict[int | str, Any] = {304: {"description": "Nothing newer than If-None-Match"}}


def describe_responses(
    document: type[msgspec.Struct] | None,
    *problems: int,
    status: int = 200,
    media: Mapping[str, Any] = MappingProxyType({}),
    **shown: Any,
) -> dict[int | str, Any]:
    """Return the responses of a route: success with an example, and the possible problems.

    `media` are other media types of the response with their examples, None for binary data. `shown`
    are fields of the example that differ from those of other routes.
    """
    content: JsonObject = {}
    if document is not None:
        example = make_example(document) | shown
        content["application/json"] = {"schema": make_reference(document), "example": example}
    for name, text in media.items():
        schema = {"schema": {"type": "string", "format": "binary"}}
        content[str(name)] = schema if text is None else {"example": text}
    found: dict[int | str, Any] = {}
    found[status] = {"description": "Success"} | ({"content": content} if content else {})
    for each in sorted({401, 403, 422, *problems}):
        problem = {"application/problem+json": {"schema": make_reference(Problem)}}
        found[each] = {"description": _STATUS[each], "content": problem}
    return found


def make_reference(document: type[msgspec.Struct]) -> dict[str, str]:
    """Return a reference to the schema of a document, which becomes a component."""
    _DOCUMENTS[document] = None
    return {"$ref": f"#/components/schemas/{document.__name__}"}


def list_documents() -> list[type[msgspec.Struct]]:
    """Return the structs of all responses."""
    return list(_DOCUMENTS)


def make_schemas() -> JsonObject:
    """Return the JSON schemas of all responses and of the structs in them, by name."""
    template = "#/components/schemas/{name}"
    return msgspec.json.schema_components(list_documents(), ref_template=template)[1]


def describe_body(form: type[msgspec.Struct]) -> JsonObject:
    """Return the schema of a body, with an example."""
    _, schemas = msgspec.json.schema_components((form,))
    schema = schemas[form.__name__]
    del schema["title"]  # generated clients name a body by its route
    content = {"application/json": {"schema": schema, "example": make_example(form)}}
    return {"requestBody": {"required": bool(schema["required"]), "content": content}}


def make_example(document: type[msgspec.Struct]) -> JsonObject:
    known = inspect.type_info(document)
    assert isinstance(known, inspect.StructType)
    own, common = _VALUES["structs"].get(document.__name__, {}), _VALUES["fields"]
    return {
        name: own[name] if name in own else common[name] if name in common else _of_type(field.type)
        for field in known.fields
        for name in [field.encode_name]
        if field.required or name in own
    }


def _of_type(kind: inspect.Type) -> Any:
    """Return a value of a type; None if that is one."""
    match kind:
        case inspect.StructType(cls):
            return make_example(cls)
        case inspect.ListType(inspect.StructType(cls)):
            return [make_example(cls)]
        case inspect.ListType():
            return []
        case inspect.LiteralType(values):
            return values[0]
        case inspect.BoolType():
            return False
        case inspect.IntType():
            return 0
        case inspect.DictType():
            return {}
    assert isinstance(kind, inspect.AnyType | inspect.UnionType), "add a value to examples.yaml"
    return None
