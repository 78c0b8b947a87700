"""docs/extending.md says where things happen: each file is there, and has each name beside it."""

from __future__ import annotations

import re

import pytest

from tests.support.documents import CHECKOUT

TEXT = (CHECKOUT / "docs" / "extending.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!what|---)(.*?) \| (.*) \|$", TEXT, re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


def test_the_table_has_rows() -> None:
    assert len(ROWS) > 5


@pytest.mark.parametrize(("what", "where"), ROWS, ids=[what for what, _ in ROWS])
def test_a_row_names_files_and_what_is_in_them(what: str, where: str) -> None:
    named = CODE.findall(where)
    files = [CHECKOUT / each for each in named if "/" in each]
    source = "\n".join(path.read_text(encoding="utf-8") for path in files)
    for name in (part for each in named if "/" not in each for part in each.split(".")):
        assert re.search(rf"^\s*(?:def|class) {name}\b", source, re.MULTILINE), (what, name)
