"""A file or a module that the code or a page names exists."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.documents import CHECKOUT, DOCUMENTS

AREAS = ("jobs", "service", "schemas")
SOURCES = [path for area in AREAS for path in sorted((CHECKOUT / area).rglob("*.py"))]
PATH = re.compile(
    r"(?<![\w/.-])(?:jobs|service|schemas|tests|docs|bench|setup)/[\w/.-]+\.(?:py|md)\b"
)
MODULE = re.compile(
    r"(?<![\w/.])(?:jobs|service|schemas|tests|core|edge)(?:\.[A-Za-z_]\w*)+(?![\w/])"
)
FILE = re.compile(r"`(\w+\.py)`")
NOT_MODULES = {"schemas.enable": "a setting of Kafka Connect"}
PAST = ("lab/", "CHANGELOG.md")  # pages about what was, and where it was


def comments_and_docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings and comments of a module with their lines."""
    source = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the names that a module or package binds at its top level."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return frozenset(names)


def exists(name: str) -> bool:
    """Return whether a dotted name is a package, a module, or a name in one.

    `core.x` and `edge.x` stand for `jobs.core.x` and `jobs.edge.x`.
    """
    parts = name.split(".")
    if parts[0] in ("core", "edge"):
        parts = ["jobs", *parts]
    for count in range(len(parts), 0, -1):
        folder = CHECKOUT.joinpath(*parts[:count])
        module = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        if folder.is_dir() and count == len(parts):
            return True
        if module.is_file():
            return count == len(parts) or parts[count] in names_in(module)
    return False


@cache
def _file_names() -> frozenset[str]:
    folders = (*AREAS, "tests", "bench", "setup")
    return frozenset(path.name for each in folders for path in (CHECKOUT / each).rglob("*.py"))


def find_dead(text: str) -> Iterator[str]:
    """Yield the paths and dotted names in a text that do not exist."""
    for match in PATH.finditer(text):
        if not (CHECKOUT / match[0]).exists():
            yield match[0]
    for match in MODULE.finditer(text):
        if match[0] not in NOT_MODULES and not exists(match[0]):
            yield match[0]
    for match in FILE.finditer(text):
        if match[1] not in _file_names():
            yield match[1]


@pytest.mark.parametrize("area", AREAS)
def test_comments_and_docstrings_name_what_exists(area: str) -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}:{number}: {name}"
        for path in SOURCES
        if path.relative_to(CHECKOUT).parts[0] == area
        for number, text in comments_and_docstrings(path)
        for name in find_dead(text)
    ]
    assert found == []


def test_pages_name_what_exists() -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}:{number}: {name}"
        for path in DOCUMENTS
        if not any(past in path.as_posix() for past in PAST)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for name in find_dead(line)
    ]
    assert found == []
