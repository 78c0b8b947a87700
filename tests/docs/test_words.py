"""Markdown is written as CONTRIBUTING.md asks: short lines, and the industry's words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import DOCUMENTS, name_of
from tests.support.words import WORDS, words_of

COLUMNS_MAX = 100
TABLE = re.compile(r"\s*\|")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a document outside its code blocks."""
    inside = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield number, line


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_lines_outside_of_code_and_tables_fit_the_page(path: Path) -> None:
    long = [n for n, line in prose(path) if len(line) > COLUMNS_MAX and not TABLE.match(line)]
    assert long == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_a_document_uses_the_words_of_the_industry(path: Path) -> None:
    found = [
        f"{number}: {match[0]!r}; write: {better}"
        for number, line in prose(path)
        for pattern, better in WORDS.items()
        for match in re.finditer(rf"\b(?:{pattern})\b", words_of(line), re.IGNORECASE)
    ]
    assert found == []
