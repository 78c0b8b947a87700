"""Words of the pages: each has its document, and each page that explains a word has one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.service.served import CHECKOUT

TEMPLATES = CHECKOUT / "service" / "console" / "templates"
WORDS = dict(
    re.findall(r'word\("([^"]+)", "[^"]+", "([^"]+)"\)', (TEMPLATES / "help.html").read_text())
)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("word", WORDS)
def test_the_document_of_a_word_is_there(word: str) -> None:
    name, _, anchor = WORDS[word].partition("#")
    assert not anchor or anchor in anchors(CHECKOUT / "docs" / name)


def test_each_explained_word_is_in_the_list() -> None:
    explained = {
        word
        for template in TEMPLATES.rglob("*.html")
        for word in re.findall(r'(?:help\(|word=)"(\w[\w ]*)"', template.read_text())
    }
    assert {"Watermark", "Epoch"} <= explained <= set(WORDS)


@pytest.mark.parametrize("page", ["job/overview.html", "results/group.html"])
def test_each_panel_of_a_job_has_its_document(page: str) -> None:
    panels = re.findall(r'<h2 id="[\w-]*(?<!phases)-title">.*', (TEMPLATES / page).read_text())
    assert len(panels) >= 3
    assert all("help(" in each for each in panels), panels
