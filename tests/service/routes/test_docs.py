"""docs/rest.md is true: every curl line names a route, every code and state is one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from schemas.spec.connections import load_connections
from service.problems import TITLES
from service.settings import Settings
from tests.support.service.application import create_application
from tests.support.service.curl_lines import CHECKOUT, CURLS, TEXT


@pytest.mark.parametrize("line", CURLS)
def test_every_curl_line_asks_for_what_is_there(line: str, tmp_path: Path) -> None:
    settings = Settings(tmp_path, load_connections(None, "127.0.0.1:9"))
    application, _ = create_application(settings)
    words = shlex.split(line)
    method = words[words.index("-X") + 1].lower() if "-X" in words else "get"
    address = urlsplit(next(word for word in words if word.startswith("$U"))[2:])
    for path, methods in application.openapi()["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))
        if method in methods and re.fullmatch(pattern, address.path):
            known = {p["name"] for p in methods[method].get("parameters", ()) if p["in"] == "query"}
            asked = {part.split("=")[0] for part in address.query.split("&") if part}
            assert asked <= known
            return
    pytest.fail(f"no route takes {method} {address.path}")


def test_codes_in_the_document_are_codes() -> None:
    for code in re.findall(r'"code": "([a-z-]+)"', TEXT):
        assert code in TITLES


def test_every_code_that_is_raised_has_a_title_and_no_title_is_for_nothing() -> None:
    source = "".join(path.read_text() for path in (CHECKOUT / "service").rglob("*.py"))
    raised = set(re.findall(r'Problem\(\s*"([a-z-]+)"', source))
    raised |= set(re.findall(r'"((?:not-found|method-not-allowed|body-invalid))"', source))
    raised |= set(re.findall(r'"(key-invalid|parameter-invalid)"', source))
    assert raised == set(TITLES)
