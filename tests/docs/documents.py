"""What the documents say, for tests that run it: their blocks, and the job that they speak of."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jobs.core.plan.tree import Plan
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Op
from schemas.table.epoch import EpochRow
from schemas.types.sql_types import SqlType
from tests.support.documents import COLUMNS, DOCS, QUERY, blocks
from tests.support.tables.folded_table import FoldedTable, delete, insert

Row = dict[str, Any]
RESULT_COLUMNS = ("name", "sum_cnt", "top", "n")


def plan() -> Plan:
    """That of the job `items`, which the examples are of."""
    return parse_query(QUERY, {name: SqlType.parse(kind) for name, kind in COLUMNS.items()})


def block(document: str, kind: str, about: str, **replaced: str) -> str:
    """The one block of a document that says something, with places of ours in it."""
    (found,) = (b.text for b in blocks(kind) if b.document == document and about in b.text)
    for old, new in replaced.items():
        old = old.replace("__", "-")
        assert old in found, old
        found = found.replace(old, new)
    return found


def text(document: str) -> str:
    return (DOCS / document).read_text(encoding="utf-8")


def rows_of(document: str, heading: str) -> list[str]:
    """The first cell of each row of the table under a heading."""
    section = text(document).partition(f"\n{heading}\n")[2]
    assert section, f"{document} has no {heading!r}"
    body = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0]
    cells = re.findall(r"^\| `([^`]+)`", body, re.MULTILINE)
    assert cells
    return cells


class Items(FoldedTable):
    """The table of the job `items`, folded for real, and what it must say now."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, plan())

    def first(self) -> None:
        """Groups that come, change and go, one that comes back, one of NULL."""
        self.change([*insert("bolt", 3, 8), *insert("saw", 5), *insert(None, 7)])
        self.change([*delete("bolt", 8), *insert("nut", 1, 1), *delete("saw", 5)])
        self.change([*insert("größe {1}", 2), *delete("nut", 1), *insert("saw", 6, 4)])

    def second(self) -> None:
        self.change([*insert("bolt", 20), *delete(None, 7), *insert("washer", 9)])
        self.change([*delete("washer", 9), *insert("nut", 30)])

    def change(self, rows: Iterable[Any]) -> EpochRow:
        before = len(self.changelog)
        row = self.epoch(rows)
        assert len(self.changelog) > before
        return row

    def results(self, epoch: int | None = None) -> list[Row]:
        """What the changelog, folded up to an epoch, gives: the columns of the query."""
        found: dict[object, Row] = {}
        for number, _, (op, key, values) in self.changelog:
            if epoch is not None and number > epoch:
                continue
            if op in (Op.INSERT, Op.UPDATE_AFTER):
                found[key] = dict(zip(RESULT_COLUMNS, (*key, *values), strict=True))
            elif op == Op.DELETE:
                del found[key]
        return ordered(found.values())


def ordered(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str(row["name"]))
