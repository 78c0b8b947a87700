"""The files of types are those of the definitions, which are the service's and the coroutines'."""

from __future__ import annotations

import ast
import inspect

import pytest

from retally import Answer, AsyncAnswer, AsyncClient, AsyncResults, Client, Results
from retally import documents as client_documents
from setup import client_types


def test_the_files_of_types_are_current() -> None:
    for path, text in client_types.write_all().items():
        assert path.read_text() == text, f"{path.name}: run python -m setup.client_types"


def test_fields_that_may_be_missing_are_known_while_the_client_runs() -> None:
    assert client_types.optional_fields() == client_documents.OPTIONAL
    for answer in client_types.ANSWERS:
        assert issubclass(getattr(client_documents, answer.__name__), client_documents.Document)


@pytest.mark.parametrize(
    ("blocking", "original"),
    [(Client, AsyncClient), (Results, AsyncResults), (Answer, AsyncAnswer)],
    ids=lambda each: each.__name__,
)
def test_what_the_types_promise_is_there(blocking: type, original: type) -> None:
    tree = ast.parse((client_types.PACKAGE / "blocking.pyi").read_text())
    classes = {each.name: each for each in tree.body if isinstance(each, ast.ClassDef)}
    body = classes[blocking.__name__].body
    typed = {each.name for each in body if isinstance(each, ast.FunctionDef)}
    public = {name for name, each in inspect.getmembers(original, callable) if name[0] != "_"}
    of_frames = {"to_pandas", "to_polars"}  # from a base class
    assert {name for name in typed if name[0] != "_"} == public - of_frames
    assert all(hasattr(blocking, name) for name in typed | public)
    assert not any(inspect.iscoroutinefunction(getattr(blocking, name)) for name in typed)
