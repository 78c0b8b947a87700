"""The documents of the product, and the examples in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = CHECKOUT / "docs"
DOCUMENTS = [*sorted(CHECKOUT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
TABLE_IN_DOCS = "data/jobs/items/epochs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    document: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}-{self.kind}-{' '.join(self.text.split())[:30]}"


def name_of(path: Path) -> str:
    """Return a document's path below docs, or its file name if it is elsewhere."""
    inside = path.is_relative_to(DOCS)
    return path.relative_to(DOCS).as_posix() if inside else path.name


def blocks(kind: str) -> list[Block]:
    found = [
        Block(name_of(path), match[1], match[2])
        for path in DOCUMENTS
        for match in FENCE.finditer(path.read_text())
    ]
    return [block for block in found if block.kind == kind]


def find_anchors(path: Path) -> set[str]:
    """What the headings of a document are called in links to them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


COLUMNS = {"id": "BIGINT", "name": "STRING", "cnt": "INT"}
QUERY = "SELECT name, SUM(cnt), MAX(cnt) AS top, COUNT(*) AS n FROM product GROUP BY name"
