"""The OpenAPI document is valid, and a client generated from it returns typed responses."""

from __future__ import annotations

import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.spec.connections import load_connections
from schemas.table.explanation import Explained
from service import documents
from service.routes.examples import make_example
from service.settings import Settings
from tests.support.service.application import create_application
from tests.support.service.served import Served
from tests.support.service.tables import WatchedTable


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed; make setup brings it")


def test_every_response_has_an_example_that_fits_its_struct(tmp_path: Path) -> None:
    settings = Settings(tmp_path, load_connections(None, "127.0.0.1:9"))
    application, _ = create_application(settings)
    named = set(re.findall(r"#/components/schemas/(\w+)", str(application.openapi()["paths"])))
    structs = [getattr(documents, name, Explained) for name in named - {"Health", "Problem"}]
    assert len(structs) > 20
    for struct in structs:
        msgspec.convert(make_example(struct), struct)


@needs("openapi_spec_validator")
def test_the_document_is_valid_openapi(tmp_path: Path) -> None:
    from openapi_spec_validator import validate

    settings = Settings(tmp_path, load_connections(None, "127.0.0.1:9"))
    application, _ = create_application(settings)
    validate(application.openapi())


@pytest.mark.slow
@needs("openapi_python_client")
def test_a_generated_client_parses_every_kind_of_response(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = WatchedTable(served)
    watched.write({"a": (1, 5), "b": (2,)})
    watched.seen()
    address, made = f"{served.address}/openapi.json", str(tmp_path / "generated")
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    done = subprocess.run(
        [*command, "--url", address, "--output-path", made],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    # A spec may be YAML too, which generated clients leave out: they send JSON.
    output = done.stdout.replace("Unsupported content type application/yaml", "")
    assert "Unsupported" not in output and "Unable" not in output and "Cannot parse" not in output

    monkeypatch.syspath_prepend(str(tmp_path))
    client = importlib.import_module("generated").Client(base_url=served.address)

    def call(operation: str, *names: str, **arguments: Any) -> Any:
        module = importlib.import_module(f"generated.api.{operation}")
        return module.sync_detailed(*names, client=client, **arguments).parsed

    listed = call("results.list_results", "items", limit=1)
    assert [row.to_dict()["name"] for row in listed.rows] == ["a"]
    assert call("time.get_watermarks", "items").held_by == []
    assert call("views.list_views", "items").views == []
    statement = importlib.import_module("generated.models").AnswerSqlBody("SELECT 1 AS n")
    answered = call("results.answer_sql", body=statement)
    assert [row.to_dict() for row in answered.rows] == [{"n": 1}]
    missing = call("jobs.get_job", "nothing")
    assert (missing.status, missing.code) == (404, "job-unknown")
