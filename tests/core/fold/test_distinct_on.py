"""SELECT DISTINCT ON over histories with retractions: of each group one row, as DuckDB has it."""

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
# ORDER BY of retally, and the same with every tie and NULL written out for DuckDB.
ORDERS = [
    ("ORDER BY k, o DESC", "o DESC NULLS LAST, v NULLS FIRST, s NULLS FIRST"),
    ("ORDER BY o NULLS LAST, 3 DESC", "o NULLS LAST, s DESC NULLS LAST, v NULLS FIRST"),
    ("", "v NULLS FIRST, s NULLS FIRST"),
]


@pytest.mark.parametrize(("ours", "theirs"), ORDERS, ids=[each[1] for each in ORDERS])
@pytest.mark.parametrize("seed", range(4))
def test_a_row_of_distinct_on_is_one_row(ours: str, theirs: str, seed: int) -> None:
    plan = parse_query(f"SELECT DISTINCT ON (k) k, v, s FROM live {ours}", COLUMNS)
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
        assert found == ask_duckdb(theirs, live)


def ask_duckdb(order: str, live: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    columns = list(zip(*live, strict=True)) or [()] * len(COLUMNS)
    arrays = [
        pa.array(each, ARROW[kind]) for each, kind in zip(columns, COLUMNS.values(), strict=True)
    ]
    connection = duckdb.connect()
    connection.register("live", pa.Table.from_arrays(arrays, names=list(COLUMNS)))
    query = f"SELECT DISTINCT ON (k) k, v, s FROM live ORDER BY k, {order}"
    return set(connection.execute(query).fetchall())
