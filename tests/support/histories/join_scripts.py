"""Join scripts: changes of several tables and the expected changelog, in tests/vectors/joins.

    # Why this must be so.
    orders id INT, customer INT                       the tables and their columns
    customers id INT, region STRING

    query
    SELECT region, COUNT(*) AS n FROM orders o JOIN customers c ON o.customer = c.id GROUP BY region

    epoch
    customers +I 7 north                              table, op and values
    orders +I 1 7
    ----
    +I north 1                                        the changelog of the epoch

Words are those of change scripts. The order of different keys may differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from jobs.core.values.change import Op, Row
from schemas.types.sql_types import SqlType
from tests.support.histories.change_scripts import SEPARATOR, VECTORS
from tests.support.histories.joined_query import Change

_WORDS = re.compile(r'"[^"]*"|\S+')


@dataclass(frozen=True, slots=True)
class JoinScript:
    path: Path
    tables: dict[str, dict[str, SqlType]]
    query: str
    epochs: list[tuple[list[Change], list[str]]]


def join_scripts() -> list[JoinScript]:
    """Every join script, in the order of their names."""
    return [read(path) for path in sorted((VECTORS / "joins").glob("*.changes"))]


def read(path: Path) -> JoinScript:
    lines = path.read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    declared, query, *epochs = [block.split("\n") for block in text.strip().split("\n\n")]
    tables = {}
    for line in declared:
        name, columns = line.split(None, 1)
        parts = [part.split(None, 1) for part in columns.split(", ")]
        tables[name] = {column: SqlType.parse(kind) for column, kind in parts}
    assert query[0] == "query"
    assert all(epoch[0] == "epoch" for epoch in epochs)
    read_epochs = []
    for _, *epoch in epochs:
        at = epoch.index(SEPARATOR)
        read_epochs.append(([_change(line, tables) for line in epoch[:at]], epoch[at + 1 :]))
    return JoinScript(path, tables, " ".join(query[1:]), read_epochs)


def _change(line: str, tables: dict[str, dict[str, SqlType]]) -> Change:
    table, op, *words = _WORDS.findall(line)
    values = zip(words, tables[table].values(), strict=True)
    row: Row = tuple(_value(word, kind) for word, kind in values)
    return table, Op(op).weight, row


def _value(word: str, kind: SqlType) -> int | str | None:
    if word == "NULL":
        return None
    return int(word) if kind.integer else word.strip('"')
