"""The joined rows behind a group, from stored sides: the newest weights, within limits."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.core.fold.program import Program
from jobs.core.fold.state import Group
from jobs.core.join.stages import trees_of
from jobs.core.sql.select import parse_joins
from jobs.core.values.change import Row
from jobs.core.values.json_values import renderer
from jobs.edge.table.epoch_files import TableLayout
from jobs.reading.joined_rows import JoinedGroup
from schemas.limits import EXPLAINED_ROWS_MAX
from schemas.types.sql_types import INT, STRING

TABLES = {"a": {"k": INT, "v": INT}, "b": {"k": INT, "w": STRING}}
INNER = "SELECT w, SUM(v) AS s FROM a JOIN b ON a.k = b.k GROUP BY w"
LEFT = INNER.replace("JOIN", "LEFT JOIN")
Stored = tuple[int, int, Row, int]  # epoch, key, row, weight
A: list[Stored] = [(1, 1, (1, 5), 1), (1, 2, (2, 6), 1), (2, 1, (1, 5), 2)]
B: list[Stored] = [(1, 1, (1, "x"), 1), (1, 2, (2, "x"), 1), (3, 2, (2, "x"), 0)]


def read(query: str, key: Row, *sides: Sequence[Stored]) -> list[Any]:
    """Return the joined rows of a group: weight, rows of the sides, epochs that wrote these."""
    plan = parse_joins(query, TABLES)
    (tree,) = trees_of({"": plan})
    stage = tree.stages[-1]
    files, stored = list[Any](), dict[int, Any]()
    for side, rows in zip((stage.left, stage.right), sides, strict=True):
        layout = TableLayout(Program(side.state))
        for epoch in {each[0] for each in rows}:
            entries: list[Any] = [
                ((k, *row), Group((weight,), (weight,)))
                for at, k, row, weight in rows
                if at == epoch
            ]
            file = SimpleNamespace(
                part=f"{side.name}:accumulators",
                rows=len(entries),
                epoch_max=epoch,
                path=len(files),
            )
            files.append(file)
            stored[file.path] = layout.accumulators_table(epoch, [0] * len(entries), entries)
    table: Any = SimpleNamespace(
        of_part=lambda part: [file for file in files if file.part == part],
        batches=lambda file, columns, _: [stored[file.path].select(list(columns))],
    )
    found = JoinedGroup(table, tree, plan, key).read(renderer)
    return [
        (weight, [tuple(row.values()) for row, _ in rows], [epoch for _, epoch in rows])
        for weight, rows in found
    ]


@pytest.mark.parametrize(
    ("query", "key", "rows"),
    [
        (INNER, ("x",), [(2, [(1, 5), (1, "x")], [2, 1])]),
        (LEFT, (None,), [(1, [(2, 6)], [1])]),
        (INNER, ("y",), []),
    ],
    ids=["both sides", "no match any more", "no row"],
)
def test_a_group_has_the_newest_rows_of_both_sides(query: str, key: Row, rows: list[Any]) -> None:
    assert read(query, key, A, B) == rows


def test_of_many_joined_rows_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    many: list[Stored] = [(1, 1, (1, value), 1) for value in range(2 * EXPLAINED_ROWS_MAX)]
    assert len(read(INNER, ("x",), many, B)) == EXPLAINED_ROWS_MAX
    monkeypatch.setattr("jobs.reading.joined_rows.EXPLAINED_STORED_ROWS_MAX", len(many))
    assert read(INNER, ("x",), many, B) == []
