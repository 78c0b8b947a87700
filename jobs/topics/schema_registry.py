"""Read the schemas of messages from a schema registry, through Confluent's REST API.

    id ──► GET /schemas/ids/ID ──► references ──► GET /subjects/NAME/versions/N, each before
           its schema. An id never gets another schema, so this process keeps what it has read.

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

from jobs.core.formats.avro import FindSchema
from jobs.core.formats.avro_schema import UnknownSchemaError
from jobs.core.formats.registry import MessageDecoder
from jobs.core.job.refused_message import why_refused
from schemas import limits
from schemas.failures.catalogue import CodedError
from schemas.spec.connections import Connections, Registry
from schemas.spec.job import JobSpec

_UNKNOWN = 404
_unknown: dict[tuple[Registry, int], tuple[float, str]] = {}  # until when, and why


class RegistryUnavailable(CodedError, code="registry-unavailable"):
    """The schema registry does not answer as one; a later attempt may succeed."""


def find_by(connections: Connections, spec: JobSpec) -> FindSchema | None:
    """Return that function for a source; None if it has no schema registry."""
    name = spec.source.schema_registry
    return None if name is None else schema_finder(connections.lookup_registry(name))


def find_refusal(decoders: Mapping[str, MessageDecoder], value: bytes) -> tuple[str, str] | None:
    """Return the reason and the path for which a job refuses a message, or cannot tell."""
    try:
        return why_refused(decoders, value)
    except RegistryUnavailable as error:
        return str(error), "$"


def schema_finder(registry: Registry | None) -> FindSchema | None:
    """Return the function that finds the schemas of a source's messages."""
    return None if registry is None else partial(_find_schema, registry)


def _find_schema(registry: Registry, number: int) -> tuple[str, ...]:
    """Return the schema of an id, after those that it names; raise RegistryUnavailable.

    Raise UnknownSchemaError for an unknown id; messages with it do not ask again for a while."""
    until, why = _unknown.get((registry, number), (0.0, ""))
    if time.monotonic() < until:
        raise UnknownSchemaError(why)
    try:
        return _read_schema(registry, number)
    except UnknownSchemaError as error:
        if len(_unknown) >= limits.REGISTRY_SCHEMAS_MAX:
            _unknown.clear()
        forgotten = time.monotonic() + limits.REGISTRY_UNKNOWN_SECONDS
        _unknown[registry, number] = forgotten, str(error)
        raise


@lru_cache(limits.REGISTRY_SCHEMAS_MAX)
def _read_schema(registry: Registry, number: int) -> tuple[str, ...]:
    found: dict[str, str] = {}

    def read(path: str) -> None:
        document = _get(registry, path)
        kind = document.get("schemaType") or "AVRO"
        if kind != "AVRO":
            raise UnknownSchemaError(f"schema {number} of registry {registry.name!r} is {kind}")
        for each in document.get("references") or ():
            subject, version = str(each.get("subject")), each.get("version")
            inner = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            if inner not in found:
                read(inner)
        found[path] = document["schema"]
        if len(found) > limits.REGISTRY_REFERENCES_MAX:
            raise UnknownSchemaError(
                f"schema {number} of registry {registry.name!r} names more than "
                f"{limits.REGISTRY_REFERENCES_MAX} others"
            )

    read(f"/schemas/ids/{number}")
    return tuple(found.values())


def _get(registry: Registry, path: str) -> dict[str, Any]:
    """Return a document of the registry; try again until the time for it is over."""
    started, pause = time.monotonic(), 0.1
    opener = _open(registry)
    place = f"{registry.url}{path}"  # http or https, as the connections file is read
    request = urllib.request.Request(place, headers=_headers(registry))  # noqa: S310
    while True:
        patience, unknown = limits.REGISTRY_SECONDS_MAX, False
        try:
            with opener.open(request, timeout=limits.REGISTRY_REQUEST_SECONDS_MAX) as answer:
                content = answer.read(limits.REGISTRY_BYTES_MAX + 1)
            document = json.loads(content[: limits.REGISTRY_BYTES_MAX])
            if isinstance(document, dict) and isinstance(document.get("schema"), str):
                return document
            problem = "the answer has no schema"
        except urllib.error.HTTPError as error:
            problem = f"HTTP {error.code}"
            unknown = _is_unknown(error)
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


def _is_unknown(error: urllib.error.HTTPError) -> bool:
    """Return whether the registry itself says so; a proxy or another server has no such code."""
    if error.code != _UNKNOWN:
        return False
    try:
        code = json.loads(error.read(limits.REGISTRY_BYTES_MAX))["error_code"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return isinstance(code, int) and code // 100 == _UNKNOWN


def _headers(registry: Registry) -> dict[str, str]:
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
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
