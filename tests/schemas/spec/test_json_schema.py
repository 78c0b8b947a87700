"""The JSON Schema of a spec, as jsonschema reads it: it takes every spec that we do, and knows the
keys."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from schemas.spec.file import load_spec, spec_schema, spec_text
from schemas.spec.job import SCHEMA_LINE
from service.console.editor.vocabulary import STARTERS
from tests.support.documents import Block, blocks

Draft202012Validator = pytest.importorskip("jsonschema").Draft202012Validator
VALIDATOR = Draft202012Validator(spec_schema())
SPECS = [block for block in blocks("yaml") if "name" in yaml.safe_load(block.text)]
SMALLEST: dict[str, Any] = {
    "name": "items",
    "source": {"topic": "t"},
    "columns": {"v": "INT"},
    "query": "SELECT SUM(v) FROM t",
}


def test_it_is_a_schema_with_the_defaults_that_users_write() -> None:
    Draft202012Validator.check_schema(spec_schema())
    properties = spec_schema()["properties"]
    assert (properties["retention"]["default"], properties["durable"]["default"]) == ("7d", False)
    assert VALIDATOR.is_valid(SMALLEST)


@pytest.mark.parametrize("block", SPECS, ids=str)
def test_specs_of_the_documents_are_valid_as_written_and_in_full(block: Block) -> None:
    VALIDATOR.validate(yaml.safe_load(block.text))
    VALIDATOR.validate(yaml.safe_load(spec_text(load_spec(block.text))))


def test_starters_name_the_schema_and_are_valid() -> None:
    for starter in STARTERS:
        assert starter.text.splitlines()[0] == SCHEMA_LINE
        VALIDATOR.validate(yaml.safe_load(starter.text))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("qurey", "SELECT 1"),
        ("source", {"topik": "t"}),
        ("emit", "finally"),
        ("state", {"buckets": "many"}),
        ("views", {"top": {"sink": {"topic": "t"}}}),
    ],
)
def test_mistakes_are_invalid(key: str, value: Any) -> None:
    assert not VALIDATOR.is_valid(SMALLEST | {key: value})
