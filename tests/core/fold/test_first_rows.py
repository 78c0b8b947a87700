"""The first row of each group over histories with retractions: one row, and that of DuckDB."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.fold.state import Key
from jobs.core.rows.projection import row_projection
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row
from schemas.types.sql_types import INT, STRING, SqlType
from tests.support.histories.folded_changelog import fold_changelog

COLUMNS: dict[str, SqlType] = {"k": INT, "o": INT, "v": INT, "s": STRING}
ARROW = {INT: pa.int32(), STRING: pa.string()}
NUMBERED = (
    "SELECT k, v, s FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) AS n FROM live)"
)
# A query, its order with every tie and NULL written out, and what DuckDB keeps of the first rows.
QUERIES = [
    (
        "SELECT DISTINCT ON (k) k, v, s FROM live ORDER BY k, o DESC",
        "o DESC NULLS LAST, v DESC NULLS LAST, s DESC NULLS LAST",
        "TRUE",
    ),
    (
        "SELECT DISTINCT ON (k) k, v, s FROM live ORDER BY o NULLS LAST, 3 DESC",
        "o NULLS LAST, s DESC NULLS LAST, v DESC NULLS LAST",
        "TRUE",
    ),
    ("SELECT DISTINCT ON (k) k, v, s FROM live", "v NULLS FIRST, s NULLS FIRST", "TRUE"),
    (
        NUMBERED.format("o DESC") + " WHERE n = 1",
        "o DESC NULLS LAST, v DESC NULLS LAST, s DESC NULLS LAST",
        "TRUE",
    ),
    (
        NUMBERED.format("o, v DESC") + " AS t WHERE t.n <= 1 AND t.v > 1",
        "o NULLS FIRST, v DESC NULLS LAST, s DESC NULLS LAST",
        "v > 1",
    ),
    (
        NUMBERED.format("o + v, s DESC NULLS FIRST") + " WHERE k IS NOT NULL AND n < 2",
        "o + v NULLS FIRST, s DESC NULLS FIRST, v DESC NULLS LAST",
        "k IS NOT NULL",
    ),
    (
        "SELECT k, v, s FROM live QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) = 1",
        "v NULLS FIRST, s NULLS FIRST",
        "TRUE",
    ),
]


@pytest.mark.parametrize(("ours", "order", "kept"), QUERIES, ids=[each[0] for each in QUERIES])
@pytest.mark.parametrize("seed", range(4))
def test_the_values_of_a_group_are_those_of_its_first_row(
    ours: str, order: str, kept: str, seed: int
) -> None:
    plan = parse_query(ours, COLUMNS)
    assert len(plan.arguments) == 1
    projection = row_projection(plan)
    assert projection is not None
    places = [list(COLUMNS).index(column.name) for column in plan.used]
    fold, rng = MemoryFold(plan, projection), random.Random(seed)
    table: dict[Key, Row] = {}
    live: list[tuple[Any, ...]] = []
    for offset in range(12):
        bundle = Bundle()
        for _ in range(rng.randint(1, 6)):
            weight = -1 if live and rng.random() < 0.4 else 1
            if weight < 0:
                row = live.pop(rng.randrange(len(live)))
            else:
                few = (None, 1, 2)
                row = (*(rng.choice(few) for _ in range(3)), rng.choice((None, "a", "b")))
                live.append(row)
            bundle.add(0, offset, [(weight, tuple(row[place] for place in places))])
        table = fold_changelog(table, fold.fold(bundle.consolidate()).changelog)
        found = {(*key, *row) for key, row in table.items()}
        assert found == ask_duckdb(order, kept, live)


def ask_duckdb(order: str, kept: str, live: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    columns = list(zip(*live, strict=True)) or [()] * len(COLUMNS)
    arrays = [
        pa.array(each, ARROW[kind]) for each, kind in zip(columns, COLUMNS.values(), strict=True)
    ]
    connection = duckdb.connect()
    connection.register("live", pa.Table.from_arrays(arrays, names=list(COLUMNS)))
    query = (
        f"SELECT k, v, s FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY {order}) AS n "
        f"FROM live) WHERE n = 1 AND {kept}"
    )
    return set(connection.execute(query).fetchall())
