"""Help: the words of the pages, and the documents that explain them.

    docs/*.md ──► Markdown ──► HTML with an id for each heading ──► /docs/PAGE.md#HEADING

The address of a document is the path of its file, so links between documents work as they are. A
link to a file that is not served, such as one of the source, is shown as text.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.token import Token

from service.console.page import HEADERS, PageRoute, render_page
from service.console.visitor import require_visitor
from service.problems import Problem

log = logging.getLogger(__name__)
router = APIRouter(include_in_schema=False, route_class=PageRoute)

_ROOT = Path(__file__).resolve().parents[3] / "docs"


def _find_documents(root: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the documents and pictures below a directory, and the titles of the documents.

    Others may have left something there, so nothing hidden is served, nor what a link leads to.
    """
    files, titles = dict[str, Path](), dict[str, str]()
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix not in (".md", ".png") or "/." in f"/{name}":
            continue
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        try:
            content = path.read_bytes()
            if path.suffix == ".md":
                titles[name] = content.decode().partition("\n")[0].removeprefix("# ")
        except (OSError, UnicodeDecodeError) as error:
            log.warning("does not serve the document %s: %s", path, error)
            continue
        files[name] = path
    return files, titles


_FILES, _TITLES = _find_documents(_ROOT)
# Wide ones scroll, by the keyboard too.
_TABLE = '<div class="scroll" role="group" aria-label="Table" tabindex="0"><table>'
# Of HTML the documents have only comments.
_RULES: dict[str, Callable[..., str]] = {
    "table_open": lambda *_: _TABLE,
    "table_close": lambda *_: "</table></div>",
    "fence": lambda _, tokens, at, *__: (
        f'<pre tabindex="0"><code>{escapeHtml(tokens[at].content)}</code></pre>'
    ),
    "html_block": lambda *_: "",
}
_MARKDOWN = MarkdownIt("js-default", {"html": True}).disable("html_inline")
for _name, _render in _RULES.items():
    _MARKDOWN.add_render_rule(_name, _render)


@router.get("/help")
async def help_page(request: Request) -> Response:
    """Show the words of the pages, each with the document about it, and all documents."""
    return await render_page(request, require_visitor(request), "help.html", titles=_TITLES)


@router.get("/docs/{name:path}")
async def document_page(request: Request, name: str) -> Response:
    """Show a document, or a picture in one."""
    visitor = require_visitor(request)
    if name not in _FILES:
        raise Problem("not-found", f"there is no document {name[:80]!r}; the page Help lists them")
    if name not in _TITLES:
        return Response(_FILES[name].read_bytes(), headers=HEADERS, media_type="image/png")
    html = await run_in_threadpool(_render_document, name)
    return await render_page(request, visitor, "document.html", title=_TITLES[name], html=html)


@cache
def _render_document(name: str) -> str:
    """Return a document as HTML, with an id for each heading, as links to it have it."""
    tokens = _MARKDOWN.parse(_FILES[name].read_text(encoding="utf-8"))
    seen = Counter[str]()
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            anchor = re.sub(r"[^\w\- ]", "", tokens[at + 1].content.lower()).replace(" ", "-")
            token.attrSet("id", f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
        elif token.type == "th_open" and not tokens[at + 1].content:
            token.tag = tokens[at + 2].tag = "td"  # without a text it is no heading
        elif token.type == "inline":
            _unlink(name, token.children or [])
    return str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))


def _unlink(name: str, tokens: list[Token]) -> None:
    """Make a text of each link to a file that is not served."""
    ends = (each for each in tokens if each.type == "link_close")
    for token in tokens:
        if token.type == "link_open":
            end, path = next(ends), str(token.attrs["href"]).partition("#")[0]
            served = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) in _FILES
            if path and ":" not in path and not served:
                token.attrs, token.tag, end.tag = {}, "span", "span"
