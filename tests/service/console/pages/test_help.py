"""Help: each word has its section of a document, and each document is a page that leads on."""

from __future__ import annotations

import asyncio
import posixpath
import re
from pathlib import Path

import httpx
import pytest

from schemas.spec.connections import load_connections
from service.console.pages.help import _find_documents
from service.settings import Settings
from tests.support.documents import CHECKOUT, DOCS, find_anchors, name_of
from tests.support.service.application import create_application

TEMPLATES = CHECKOUT / "service" / "console" / "templates"
WORDS = dict(
    re.findall(
        r'^  "([^"]+)": \("[^"]+", "([^"]+)"\)', (TEMPLATES / "words.html").read_text(), re.M
    )
)
NAMES = sorted(name_of(path) for path in DOCS.rglob("*.md"))
UNKNOWN = ("none.md", "%2e%2e/README.md", "pictures")
PICTURES = [name_of(path) for path in DOCS.rglob("*.png")]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, httpx.Response]:
    """The page of each document, and of others, as a browser gets it."""
    settings = Settings(tmp_path_factory.mktemp("data"), load_connections(None, "127.0.0.1:9"))
    _, gated = create_application(settings)

    async def read() -> dict[str, httpx.Response]:
        transport = httpx.ASGITransport(gated, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            found = {
                name: await client.get(f"/docs/{name}") for name in (*NAMES, *UNKNOWN, *PICTURES)
            }
            return found | {"": await client.get("/help")}

    return asyncio.run(read())


def ids_of(page: httpx.Response) -> list[str]:
    return re.findall(r'\bid="([^"]*)"', page.text)


@pytest.mark.parametrize("name", NAMES)
def test_a_document_is_a_page_with_all_its_headings(
    answers: dict[str, httpx.Response], name: str
) -> None:
    page = answers[name]
    assert page.status_code == 200
    assert "style=" not in page.text and page.text.count("<script") == 1  # that of each page
    assert "&lt;!--" not in page.text and "<!--" not in page.text
    ids = ids_of(page)
    assert find_anchors(DOCS / name) <= set(ids)
    assert len(ids) == len(set(ids)), "the browser goes to the first of two"
    assert f'href="/docs/{name}"' in answers[""].text


@pytest.mark.parametrize("name", NAMES)
def test_the_links_of_a_document_lead_on(answers: dict[str, httpx.Response], name: str) -> None:
    article = answers[name].text.partition("<article")[2].partition("</article>")[0]
    links = re.findall(r'(?:href|src)="([^"]*)"', article)
    for path, _, anchor in (each.partition("#") for each in links if ":" not in each):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path or name))
        page = answers[target if path else name]
        assert page.status_code == 200 and (not anchor or anchor in ids_of(page)), (path, anchor)


def test_only_documents_and_their_pictures_are_served(answers: dict[str, httpx.Response]) -> None:
    assert {answers[name].status_code for name in UNKNOWN} == {404}
    for picture in map(answers.__getitem__, PICTURES):
        assert (picture.status_code, picture.headers["content-type"]) == (200, "image/png")
    assert answers[PICTURES[0]].content == (DOCS / PICTURES[0]).read_bytes()
    links = re.findall(r'href="([^"]*)"', answers["upgrade.md"].text)
    assert "deploy.md#upgrade" in links
    assert "<span>CHANGELOG.md</span>" in answers["upgrade.md"].text  # it is not below docs


def test_what_is_hidden_linked_or_unreadable_is_not_served(tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("# Secret\n")
    root = tmp_path / "docs"
    for folder in (root / ".git", root / "lab"):
        folder.mkdir(parents=True)
    for name in (".env", ".hidden.md", ".git/x.md", "notes.sqlite", "lab/b.md", "a.md", "c.png"):
        (root / name).write_text("# Größe\n", encoding="utf-8")
    (root / "linked.md").symlink_to(secret)
    (root / "linked").symlink_to(tmp_path)
    (root / "latin.md").write_bytes(b"# Gr\xf6\xdfe\n")
    (root / "folder.md").mkdir()
    files, titles = _find_documents(root)
    assert list(files) == ["a.md", "c.png", "lab/b.md"]
    assert titles == {"a.md": "Größe", "lab/b.md": "Größe"}


@pytest.mark.parametrize("word", WORDS)
def test_a_word_leads_to_its_section(answers: dict[str, httpx.Response], word: str) -> None:
    name, _, anchor = WORDS[word].partition("#")
    assert not anchor or anchor in ids_of(answers[name])
    assert f'href="/docs/{WORDS[word]}"' in answers[""].text


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
