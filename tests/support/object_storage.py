"""S3-compatible object storage in its own process, for tests: moto's server, in memory.

    with Storage() as storage: storage.environment ──► environment of its clients

It handles one request at a time, so that a conditional put is atomic, and keeps connections open:
both as real storage. It can lose a reply: it executes the request, and then closes the connection.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import IO, Any, cast
from wsgiref.types import StartResponse, WSGIEnvironment

BUCKET = "tables"
_LOSE = "/-lose-the-reply-to-a-put-of/"
_LOST = "/-lost"
_SIGNED = (
    "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)
_CONDITIONAL = "/-conditional-puts"
_REQUESTS = "/-requests"
_CONNECTION = "tests.connection"


class Storage:
    """The process, and the environment of its clients."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **_credentials()},
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        assert port, "the storage did not start"
        self.endpoint = f"http://{host}:{port}"
        self.ask(f"/{BUCKET}", "PUT")

    @property
    def environment(self) -> dict[str, str]:
        return {**_credentials(), "AWS_ENDPOINT_URL": self.endpoint}

    def __enter__(self) -> Storage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, path: str, method: str = "GET", **headers: str) -> str:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named["Authorization"] = _SIGNED  # unchecked by moto
        data = b"x" if method == "PUT" and path.count("/") > 1 else None
        request = urllib.request.Request(self.endpoint + path, data, named, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return str(answer.read().decode())

    def lose_reply_to(self, name: str) -> None:
        """Lose the reply to the next put of an object whose key ends like this."""
        self.ask(f"{_LOSE}{name}")

    @property
    def lost(self) -> int:
        """Return the number of lost replies."""
        return int(self.ask(_LOST))

    @property
    def conditional_puts(self) -> int:
        """Return the number of puts with a condition that the object does not exist."""
        return int(self.ask(_CONDITIONAL))

    @property
    def requests(self) -> int:
        """Return the number of all requests."""
        return int(self.ask(_REQUESTS))


def _credentials() -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-tests",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",  # no looking for other credentials
    }


# --- the process ----------------------------------------------------------------------------------


class _OneAtATime:
    """A WSGI application around another one."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._to_lose: list[str] = []
        self._lost = 0
        self._conditional = 0
        self._requests = 0

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        with self._lock:
            path = str(environ["PATH_INFO"])
            if path.startswith(_LOSE):
                self._to_lose.append(path.removeprefix(_LOSE))
                return self._said(start, "")
            if path == _LOST:
                return self._said(start, str(self._lost))
            if path == _CONDITIONAL:
                return self._said(start, str(self._conditional))
            if path == _REQUESTS:
                return self._said(start, str(self._requests))
            self._requests += 1
            put = environ["REQUEST_METHOD"] == "PUT"
            self._conditional += put and environ.get("HTTP_IF_NONE_MATCH") == "*"
            answer = list(self._application(environ, start))
            if put and any(path.endswith(name) for name in self._to_lose):
                self._to_lose = [name for name in self._to_lose if not path.endswith(name)]
                self._lost += 1
                environ[_CONNECTION].shutdown(socket.SHUT_RDWR)
            return answer

    @staticmethod
    def _said(start: StartResponse, text: str) -> list[bytes]:
        start("200 OK", [("Content-Type", "text/plain")])
        return [text.encode()]


class _Handler(BaseHTTPRequestHandler):
    """Requests of one connection. Werkzeug's own server closes the connection after each."""

    application: Any
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and content of an answer in one packet

    def _answer(self) -> None:
        from werkzeug.serving import DechunkedInput
        from werkzeug.test import EnvironBuilder, run_wsgi_app

        if "Transfer-Encoding" in self.headers:
            content = DechunkedInput(cast(IO[bytes], self.rfile)).readall()
            del self.headers["Transfer-Encoding"]
        else:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        built = EnvironBuilder(
            self.path,
            f"http://{self.headers['Host']}",
            method=self.command,
            headers=list(self.headers.items()),
            input_stream=BytesIO(content),
            environ_overrides={_CONNECTION: self.connection},
        )
        parts, status, headers = run_wsgi_app(self.application, built.get_environ())
        answer = b"".join(parts)
        code, _, reason = status.partition(" ")
        self.send_response(int(code), reason)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers and code != "204":
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def handle(self) -> None:
        with suppress(ConnectionError):  # the client has gone, or its reply was to be lost
            super().handle()

    def log_message(self, format: str, *_: Any) -> None:
        pass


def _serve() -> None:
    """Serve until the parent process has ended."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    _Handler.application = staticmethod(
        _OneAtATime(DomainDispatcherApplication(create_backend_app))
    )
    server = ThreadingHTTPServer((sys.argv[1], 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
