"""A schema registry of the tests: Confluent's REST API, as far as its documents describe it.

register ──► ids, subjects   ──► GET /schemas/ids/N, GET /subjects/NAME/versions/N
POST /subjects/NAME/versions ──► an id, the same for the same schema
answers  ──► what it answers instead, once each: a status, or a body
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from pydantic import SecretStr

from schemas.spec.connections import Registry, Tls

_UNKNOWN = {"error_code": 40403, "message": "Schema not found"}
_TYPE = "application/vnd.schemaregistry.v1+json"


class FakeRegistry:
    """Schemas by id and by subject, and what was requested."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, Any]] = {}
        self.answers: list[int | bytes] = []
        self.message = b"busy"  # of a status among them
        self.requests: list[tuple[str, str | None]] = []  # path and Authorization
        self.url = ""

    def register(
        self, number: int, schema: Any, subject: str = "", references: Sequence[Any] = ()
    ) -> None:
        """Register a schema of Avro, or a .proto text."""
        document: dict[str, Any] = {"schema": json.dumps(schema)}
        if isinstance(schema, str) and "message" in schema:
            document = {"schema": schema, "schemaType": "PROTOBUF"}
        if references:
            document["references"] = list(references)
        self.documents[f"/schemas/ids/{number}"] = document
        if subject:
            self.documents[f"/subjects/{subject}/versions/1"] = document

    def take(self, path: str, document: dict[str, Any]) -> int:
        """Register a document under a subject, as a POST does."""
        known = [each for each in self.documents if each.startswith("/schemas/ids/")]
        same = [each for each in known if self.documents[each] == document]
        place = same[0] if same else f"/schemas/ids/{len(known) + 1}"
        self.documents[place] = self.documents[f"{path}/1"] = document
        return int(place.rpartition("/")[2])

    @property
    def subjects(self) -> set[str]:
        """The subjects that have a schema."""
        paths = (path.partition("/subjects/")[2] for path in self.documents)
        return {path.rpartition("/versions/")[0] for path in paths if path}

    def forget(self) -> None:
        """Lose all schemas, as a registry whose topic was deleted."""
        self.documents.clear()

    def connection(self, username: str | None = None, secret: str | None = None) -> Registry:
        own = None if secret is None else SecretStr(secret)
        return Registry("schemas", self.url, username, own, Tls())


@contextmanager
def open_registry(context: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """Serve a registry of its own on a free port, until the end of the block."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(registry.documents.get(unquote(self.path.partition("?")[0])))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.answer({"id": registry.take(unquote(self.path), json.loads(body))})

        def answer(self, document: dict[str, Any] | None) -> None:
            registry.requests.append((self.path, self.headers.get("Authorization")))
            answer = registry.answers.pop(0) if registry.answers else None
            status, body = 200, json.dumps(document or _UNKNOWN).encode()
            if isinstance(answer, bytes):
                body = answer
            elif answer is not None:
                status, body = answer, registry.message
            elif document is None:
                status = 404
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{registry.url}/schemas/ids/1")
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    registry.url = f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
