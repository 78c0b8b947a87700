"""The documents of the product, and the examples in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    CHECKOUT / "README.md",
    CHECKOUT / "ARCHITECTURE.md",
    *sorted((CHECKOUT / "docs").glob("*.md")),
]
TABLE_IN_DOCS = "data/jobs/items/epochs"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    document: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}-{self.kind}-{' '.join(self.text.split())[:30]}"


def blocks(kind: str) -> list[Block]:
    found = [
        Block(path.name, match[1], match[2])
        for path in DOCUMENTS
        for match in _FENCE.finditer(path.read_text())
    ]
    return [block for block in found if block.kind == kind]


COLUMNS = {"id": "BIGINT", "name": "STRING", "cnt": "INT"}
QUERY = "SELECT name, SUM(cnt), MAX(cnt) AS top, COUNT(*) AS n FROM product GROUP BY name"
