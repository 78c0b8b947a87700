"""docs/rest.md is true: every curl line names a route, and the other way; every code is one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import pytest

from schemas.failures.catalogue import failure_kinds
from schemas.spec.connections import load_connections
from service.settings import Settings
from tests.support.service.application import create_application, is_address_of
from tests.support.service.curl_lines import CHECKOUT, CURLS, TEXT


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Any]:
    """Each path of the API, with its methods."""
    settings = Settings(tmp_path, load_connections(None, "127.0.0.1:9"))
    application, _ = create_application(settings)
    return dict(application.openapi()["paths"])


@pytest.mark.parametrize("line", CURLS)
def test_every_curl_line_asks_for_what_is_there(line: str, paths: dict[str, Any]) -> None:
    method, address = _request_of(line)
    for path, methods in paths.items():
        if method in methods and is_address_of(path, address.path):
            known = {p["name"] for p in methods[method].get("parameters", ()) if p["in"] == "query"}
            asked = {part.split("=")[0] for part in address.query.split("&") if part}
            assert asked <= known
            return
    pytest.fail(f"no route takes {method} {address.path}")


def test_every_route_has_a_curl_line_or_is_named(paths: dict[str, Any]) -> None:
    asked = [_request_of(line) for line in CURLS]
    undescribed = [
        f"{method} {path}"
        for path, methods in paths.items()
        for method in methods
        if path not in TEXT
        and not any(method == of and is_address_of(path, address.path) for of, address in asked)
    ]
    # What a view answers is what its job answers, which the page says once.
    assert [each for each in undescribed if "/views/{view}/" not in each] == []


def _request_of(line: str) -> tuple[str, SplitResult]:
    words = shlex.split(line)
    method = words[words.index("-X") + 1].lower() if "-X" in words else "get"
    return method, urlsplit(next(word for word in words if word.startswith("$U"))[2:])


def test_codes_in_the_document_are_codes() -> None:
    for code in re.findall(r'"code": "([a-z-]+)"', TEXT):
        assert failure_kinds()[code].status


def test_every_code_that_is_raised_has_a_title_and_no_title_is_for_nothing() -> None:
    source = "".join(path.read_text() for path in (CHECKOUT / "service").rglob("*.py"))
    raised = set(re.findall(r'(?:Problem|super\(\).__init__)\(\s*"([a-z-]+)"', source))
    raised |= set(re.findall(r'"((?:not-found|method-not-allowed|body-invalid))"', source))
    raised |= set(re.findall(r'"(key-invalid|parameter-invalid)"', source))
    assert raised == {code for code, kind in failure_kinds().items() if kind.status}
