"""The OpenAPI document is valid, and its examples fit; test_clients.py has a generated client."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import msgspec
import pytest

from schemas.spec.connections import load_connections
from service.routes.examples import list_documents, make_example
from service.settings import Settings
from tests.support.service.application import create_application


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed; make setup brings it")


def test_every_response_has_an_example_that_fits_its_struct(tmp_path: Path) -> None:
    settings = Settings(tmp_path, load_connections(None, "127.0.0.1:9"))
    application, _ = create_application(settings)
    structs = {each.__name__: each for each in list_documents()}
    named = set(re.findall(r"#/components/schemas/(\w+)", str(application.openapi()["paths"])))
    assert len(named) > 20 and named == structs.keys()
    for name in named - {"Health", "Problem"}:  # these have no example
        struct = structs[name]
        msgspec.convert(make_example(struct), struct)


@needs("openapi_spec_validator")
def test_the_document_is_valid_openapi(tmp_path: Path) -> None:
    from openapi_spec_validator import validate

    settings = Settings(tmp_path, load_connections(None, "127.0.0.1:9"))
    application, _ = create_application(settings)
    validate(application.openapi())
