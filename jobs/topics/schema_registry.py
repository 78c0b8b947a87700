"""Read and register schemas in a schema registry, through Confluent's REST API.

    id ──► GET /schemas/ids/ID ──► references ──► GET /subjects/NAME/versions/N, each before
           its schema. An id never gets another schema, so this process keeps what it has read.
    schema of a sink ──► POST /subjects/NAME/versions ──► its id, the same for the same schema

A registry that is away says nothing about a message: the task fails, and is tried again. Only an
id that the registry does not know, also after a while, is a reason to refuse a message.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import lru_cache, partial
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from jobs.core.formats.registered import FindSchema, UnknownSchemaError
from jobs.core.formats.registry import MessageDecoder
from jobs.core.formats.row_fields import clip
from jobs.core.job.refused_message import why_refused
from schemas import limits
from schemas.failures.catalogue import CodedError
from schemas.spec.connections import Connections, Registry
from schemas.spec.job import JobSpec
from schemas.spec.source import FORMATS_OF_REGISTRY

_UNKNOWN, _REFUSED = 404, (409, 422)
_TYPE = "application/vnd.schemaregistry.v1+json"
_unknown: dict[tuple[Registry, str, int], tuple[float, str]] = {}  # until when, and why


class RegistryUnavailable(CodedError, code="registry-unavailable"):
    """The schema registry does not answer as one; a later attempt may succeed."""


class SchemaRefused(CodedError, code="publisher-refused"):
    """The schema registry refuses a schema, for example because it is incompatible."""


def register(registry: Registry, subject: str, schema: str) -> int:
    """Return the id of an Avro schema, which the registry then has as the subject's newest."""
    body = json.dumps({"schema": schema}).encode()
    path = f"/subjects/{quote(subject, safe='')}/versions"
    number: int = _request(registry, path, "id", int, body)["id"]
    return number


def find_by(connections: Connections, spec: JobSpec) -> FindSchema | None:
    """Return that function for a source; None if it has no schema registry."""
    name, format = spec.source.schema_registry, spec.source.format
    return None if name is None else schema_finder(connections.lookup_registry(name), format)


def finders_of(connections: Connections) -> dict[str, dict[str, FindSchema]]:
    """Return how to find the schemas of sampled messages, by registry and format."""
    return {
        name: {
            format: partial(_find_for_sample, registry, FORMATS_OF_REGISTRY[format])
            for format in ("avro", "protobuf")
        }
        for name, registry in connections.registries.items()
    }


def _find_for_sample(registry: Registry, kind: str, number: int) -> tuple[str, ...]:
    try:
        return _find_schema(registry, kind, number)
    except RegistryUnavailable as error:  # another registry may have it
        raise UnknownSchemaError(str(error)) from None


def find_refusal(decoders: Mapping[str, MessageDecoder], value: bytes) -> tuple[str, str] | None:
    """Return the reason and the path for which a job refuses a message, or cannot tell."""
    try:
        return why_refused(decoders, value)
    except RegistryUnavailable as error:
        return str(error), "$"


def schema_finder(registry: Registry | None, format: str) -> FindSchema | None:
    """Return the function that finds the schemas of a source's messages."""
    kind = FORMATS_OF_REGISTRY.get(format, "")
    return None if registry is None else partial(_find_schema, registry, kind)


def _find_schema(registry: Registry, kind: str, number: int) -> tuple[str, ...]:
    """Return the schema of an id, after those that it names; raise RegistryUnavailable.

    Raise UnknownSchemaError for an unknown id; messages with it do not ask again for a while."""
    until, why = _unknown.get((registry, kind, number), (0.0, ""))
    if time.monotonic() < until:
        raise UnknownSchemaError(why)
    try:
        return _read_schema(registry, kind, number)
    except UnknownSchemaError as error:
        if len(_unknown) >= limits.REGISTRY_SCHEMAS_MAX:
            _unknown.clear()
        forgotten = time.monotonic() + limits.REGISTRY_UNKNOWN_SECONDS
        _unknown[registry, kind, number] = forgotten, str(error)
        raise


@lru_cache(limits.REGISTRY_SCHEMAS_MAX)
def _read_schema(registry: Registry, kind: str, number: int) -> tuple[str, ...]:
    found: dict[str, str] = {}
    asked = set()  # references may form a circle

    def read(path: str) -> None:
        asked.add(path)
        if len(asked) > limits.REGISTRY_REFERENCES_MAX:
            raise UnknownSchemaError(
                f"schema {number} of registry {registry.name!r} names more than "
                f"{limits.REGISTRY_REFERENCES_MAX} others"
            )
        document = _request(registry, path, "schema", str)
        found_kind = document.get("schemaType") or "AVRO"
        if found_kind != kind:
            reason = f"schema {number} of registry {registry.name!r} is {found_kind}, not {kind}"
            raise UnknownSchemaError(reason)
        for each in document.get("references") or ():
            subject, version = str(each.get("subject")), each.get("version")
            inner = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            if inner not in asked:
                read(inner)
        found[path] = document["schema"]

    read(f"/schemas/ids/{number}")
    return tuple(found.values())


def _request(
    registry: Registry, path: str, member: str, kind: type, body: bytes | None = None
) -> dict[str, Any]:
    """Return a document with a member of this kind; try again until the time for it is over."""
    started, pause = time.monotonic(), 0.1
    opener = _open(registry)
    place = f"{registry.url}{path}"  # http or https, as the connections file is read
    request = urllib.request.Request(place, body, _headers(registry))  # noqa: S310
    while True:
        patience, unknown = limits.REGISTRY_SECONDS_MAX, False
        try:
            with opener.open(request, timeout=limits.REGISTRY_REQUEST_SECONDS_MAX) as answer:
                content = answer.read(limits.REGISTRY_BYTES_MAX + 1)
            document = json.loads(content[: limits.REGISTRY_BYTES_MAX])
            if isinstance(document, dict) and isinstance(document.get(member), kind):
                return document
            problem = f"the answer has no {member}"
        except urllib.error.HTTPError as error:
            code, message = _read_error(error)
            problem = f"HTTP {error.code}"
            if body is not None and error.code in _REFUSED and code:
                raise SchemaRefused(
                    f"schema registry {registry.name!r} refuses {path}: {message}"
                ) from None
            unknown = error.code == _UNKNOWN and code // 100 == _UNKNOWN
            if unknown:
                patience = limits.REGISTRY_FOLLOW_SECONDS_MAX
        except (OSError, ValueError, HTTPException) as error:  # a ValueError is no JSON
            problem = str(getattr(error, "reason", error)) or type(error).__name__
        if time.monotonic() - started + pause > patience:
            break
        time.sleep(pause)
        pause = min(2 * pause, 2.0)
    if unknown:
        raise UnknownSchemaError(
            f"the schema registry has no {path.removeprefix('/')} ({registry.name})"
        )
    raise RegistryUnavailable(
        f"schema registry {registry.name!r}: {place}: {problem}; check that it runs, and its url "
        "and credentials in the file of --connections"
    )


def _read_error(error: urllib.error.HTTPError) -> tuple[int, str]:
    """Return the registry's own code and message; a proxy or another server has none: 0."""
    try:
        document = json.loads(error.read(limits.REGISTRY_BYTES_MAX))
        return int(document["error_code"]), clip(str(document.get("message")))
    except (OSError, ValueError, KeyError, TypeError):
        return 0, ""


def _headers(registry: Registry) -> dict[str, str]:
    headers = {"Accept": f"{_TYPE}, application/json", "Content-Type": _TYPE}
    if registry.secret is not None:
        secret = registry.secret.get_secret_value()
        if registry.username is None:
            return {**headers, "Authorization": f"Bearer {secret}"}
        basic = base64.b64encode(f"{registry.username}:{secret}".encode()).decode()
        headers["Authorization"] = f"Basic {basic}"
    return headers


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: another server must not get the credentials."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _open(registry: Registry) -> urllib.request.OpenerDirector:
    tls = registry.tls
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.certificate is not None:
        password = None if tls.key_password is None else tls.key_password.get_secret_value()
        context.load_cert_chain(tls.certificate, tls.key, password)
    return urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))
