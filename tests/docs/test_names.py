"""Names in the code are the industry's, and the first line of a docstring fits its line.

The words are in tests/support/words.py. First lines use the words of the pages; names have a list
of their own, because a part of a name has no sentence around it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.documents import CHECKOUT
from tests.support.words import ALLOWED, NAME_WORDS, WORDS, words_of

AREAS = ("jobs", "service", "schemas")
FIRST_LINE_MAX = 90
PARTICIPLE = re.compile(
    r"_*(?!feed|need|seed)([a-z]+ed|found|given|held|kept|known|left|met|seen|sent|shown|taken)"
)


@cache
def _better_words() -> dict[str, str]:
    return {word: better for words, better in NAME_WORDS.items() for word in words.split()}


def parts_of(name: str) -> list[str]:
    """Return the words of an identifier in lower case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).strip("_").lower().split("_")


def names_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the names of functions, classes and arguments with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def lone_participles(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield functions whose names are one participle; a property is a noun, so it may be one."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        is_property = any("property" in ast.unparse(each) for each in node.decorator_list)
        if not is_property and PARTICIPLE.fullmatch(node.name) and node.name not in ALLOWED:
            yield node.lineno, node.name


def first_lines(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the first lines of all docstrings with their lines."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text.splitlines()[0]


def find_problems(source: str) -> Iterator[str]:
    """Yield what is wrong with the names and docstrings of a module."""
    tree = ast.parse(source)
    for number, name in names_of(tree):
        for word in parts_of(name):
            if word in _better_words() and name not in ALLOWED:
                yield f"{number}: {name}: {word!r}; write: {_better_words()[word]}"
    for number, name in lone_participles(tree):
        yield f"{number}: {name}: a participle alone; write a verb"
    for number, line in first_lines(tree):
        if len(line) > FIRST_LINE_MAX:
            yield f"{number}: a first line of {len(line)} characters: {line}"
        for pattern, better in WORDS.items():
            for match in re.finditer(rf"\b(?:{pattern})\b", words_of(line), re.IGNORECASE):
                yield f"{number}: {match[0]!r} in {line!r}; write: {better}"


def _packages() -> dict[str, list[Path]]:
    packages: dict[str, list[Path]] = {}
    for area in AREAS:
        for path in sorted((CHECKOUT / area).rglob("*.py")):
            packages.setdefault(path.parent.relative_to(CHECKOUT).as_posix(), []).append(path)
    return packages


PACKAGES = _packages()


@pytest.mark.parametrize("package", PACKAGES)
def test_names_and_first_lines_are_plain(package: str) -> None:
    found = [
        f"{path.relative_to(CHECKOUT)}:{problem}"
        for path in PACKAGES[package]
        for problem in find_problems(path.read_text(encoding="utf-8"))
    ]
    assert found == []
