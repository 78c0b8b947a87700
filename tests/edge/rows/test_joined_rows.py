"""Random histories of joined tables: after every epoch the result is that of DuckDB.

An epoch has changes of all tables. In a shuffled history a retraction may come before its row, so
that a table has rows below zero; no query explains these epochs, but any cut of the same changes
into epochs and batches ends in the same rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from jobs.core.join.pairing import join_rows
from jobs.core.join.row_joins import RowJoins
from jobs.core.join.stages import trees_of
from jobs.core.sql.select import parse_joins
from jobs.core.values.change import Row
from jobs.edge.rows import arranged_rows, joined_rows
from jobs.edge.rows.arranged_rows import Arrangement, Run
from jobs.edge.rows.join_inputs import list_rows, to_keyed_rows
from jobs.edge.rows.joined_rows import JoinOperator, TooManyPairs, gather
from schemas.types.sql_types import STRING, SqlType
from tests.support.examples import scale
from tests.support.histories.joined_query import Change, JoinedQuery

COLUMNS = {
    "a": {"id": "INT", "k": "INT", "v": "INT"},
    "b": {"id": "INT", "k": "INT", "w": "STRING"},
    "c": {"id": "INT", "k": "INT", "x": "INT"},
}
TABLES = {
    table: {name: SqlType.parse(kind) for name, kind in columns.items()}
    for table, columns in COLUMNS.items()
}
ARROW = {
    table: pa.schema(
        [(name, pa.string() if kind == "STRING" else pa.int32()) for name, kind in columns.items()]
    )
    for table, columns in COLUMNS.items()
}
QUERIES = [
    "SELECT w, COUNT(*) AS n, SUM(v) AS s FROM a JOIN b ON a.k = b.k GROUP BY w",
    "SELECT w, COUNT(*) AS n FROM a JOIN b ON a.k = b.k AND v < b.id AND w <> 'x' GROUP BY w",
    "SELECT a.k, COUNT(*) AS n, MAX(w) AS m FROM a, b WHERE a.k = b.k AND v <> b.id GROUP BY a.k",
    "SELECT w, COUNT(*) AS n, SUM(v) AS s FROM a LEFT JOIN b ON a.k = b.k GROUP BY w",
    "SELECT w, COUNT(*) AS n FROM a LEFT JOIN b ON a.k = b.k AND v > 1 AND w <> 'x' GROUP BY w",
    "SELECT v, COUNT(*) AS n FROM a LEFT JOIN b ON a.k = b.k WHERE w IS NULL OR v > 1 GROUP BY v",
    "SELECT w, COUNT(*) AS n, MIN(v) AS s FROM a RIGHT JOIN b ON a.k = b.k AND v > 1 GROUP BY w",
    "SELECT w, COUNT(*) AS n FROM a RIGHT JOIN b ON a.k = b.k AND w <> 'x' GROUP BY w",
    "SELECT k, COUNT(*) AS n, SUM(v) AS s, COUNT(w) AS c FROM a FULL JOIN b USING (k) GROUP BY k",
    "SELECT v, COUNT(*) AS n, COUNT(w) AS c FROM a FULL JOIN b ON a.k = b.k AND v > 1 AND w <> 'x' "
    "GROUP BY v",
    "SELECT v, COUNT(*) AS n FROM a WHERE k IN (SELECT k FROM b WHERE w <> 'x') GROUP BY v",
    "SELECT k, COUNT(*) AS n FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND a.v > 1) "
    "GROUP BY k",
    "SELECT k, COUNT(*) AS n FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND a.v > 1 "
    "AND w <> 'x') GROUP BY k",
    "SELECT u, COUNT(*) AS n FROM a LEFT JOIN (SELECT k, COALESCE(w, '?') AS u FROM b WHERE id > 1)"
    " AS d ON a.k = d.k GROUP BY u",
    "SELECT p.v, COUNT(*) AS n, SUM(q.v) AS s FROM a AS p JOIN a AS q ON p.id = q.k GROUP BY p.v",
    "SELECT p.v, COUNT(*) AS n FROM a AS p LEFT JOIN a AS q ON p.k = q.k AND q.v > 1 GROUP BY p.v",
    "SELECT w, COUNT(*) AS n, SUM(x) AS s FROM a JOIN b ON a.k = b.k JOIN c ON c.k = b.id "
    "GROUP BY w",
    "SELECT w, COUNT(*) AS n, SUM(x) AS s FROM a LEFT JOIN b ON a.k = b.k LEFT JOIN c ON c.k = b.id"
    " GROUP BY w",
    "SELECT w, COUNT(*) AS n, SUM(x) AS s FROM a FULL JOIN b ON a.k = b.k FULL JOIN c ON c.k = a.k "
    "GROUP BY w",
    "SELECT x, COUNT(*) AS n, SUM(v) AS s FROM a JOIN b ON a.k = b.k AND v <= b.id RIGHT JOIN c "
    "ON c.k = b.k GROUP BY x",
    "SELECT w, COUNT(*) AS n FROM a LEFT JOIN b ON a.k = b.k WHERE a.id IN (SELECT k FROM c) "
    "AND NOT EXISTS (SELECT 1 FROM c WHERE c.x = a.v) GROUP BY w",
]
HISTORIES = scale(2)
Epoch = list[Change]


def random_changes(rng: random.Random, count: int) -> list[Change]:
    """Return inserts, updates and deletes of all tables; a row may be in a table twice."""
    live: dict[str, list[tuple[object, ...]]] = {table: [] for table in COLUMNS}
    changes: list[Change] = []

    def random_row(table: str) -> tuple[object, ...]:
        key = rng.choice([None, 0, 1, 1, 2, 3])
        last = rng.choice([None, "x", "y"]) if table == "b" else rng.choice([None, 1, 2, 3])
        return (rng.randint(0, 3), key, last)

    for _ in range(count):
        table, rows = rng.choice(list(live.items()))
        removed = rows and rng.random() < 0.55
        if removed:
            changes.append((table, -1, rows.pop(rng.randrange(len(rows)))))  # type: ignore[arg-type]
        if not removed or rng.random() < 0.6:
            rows.append(random_row(table))
            changes.append((table, 1, rows[-1]))  # type: ignore[arg-type]
    return changes


def cut(rng: random.Random, changes: list[Change], mean: float) -> Iterator[Epoch]:
    epoch: Epoch = []
    for change in changes:
        epoch.append(change)
        if rng.random() < 1 / mean:
            yield epoch
            epoch = []
    yield epoch


def recompute(
    connection: duckdb.DuckDBPyConnection, sql: str, tables: Counter[tuple[str, object]]
) -> Counter[tuple[object, ...]]:
    for table, schema in ARROW.items():
        rows = [row for (of, row), count in tables.items() if of == table for _ in range(count)]
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(c, kind) for c, kind in zip(columns, schema.types, strict=True)]
        connection.register(table, pa.Table.from_arrays(arrays, schema=schema))
    return Counter(connection.execute(sql).fetchall())


def check_epochs(sql: str, epochs: Iterator[Epoch], rows_max: int) -> tuple[JoinedQuery, int]:
    """Run the epochs and compare each that a query explains; return how many these were."""
    query, tables, checked = JoinedQuery(sql, TABLES), Counter[tuple[str, object]](), 0
    connection = duckdb.connect()
    for epoch in epochs:
        query.run_epoch(epoch, rows_max)
        for table, weight, row in epoch:
            tables[table, row] += weight
        if min(tables.values(), default=0) < 0:
            continue
        mine = Counter((*key, *row) for key, row in query.table.items())
        assert mine == recompute(connection, sql, tables)
        checked += 1
    return query, checked


@pytest.mark.parametrize("sql", QUERIES)
def test_after_every_epoch_the_result_is_that_of_the_tables(sql: str) -> None:
    for seed in range(HISTORIES):
        rng = random.Random(f"{sql} {seed}")
        epochs = cut(rng, random_changes(rng, 40), rng.choice([1.5, 4, 15]))
        _, checked = check_epochs(sql, epochs, rng.choice([1, 3, 1_000]))
        assert checked > 0


@pytest.mark.parametrize("sql", QUERIES)
def test_retractions_before_their_rows_end_in_the_same_result(sql: str) -> None:
    for seed in range(HISTORIES):
        rng = random.Random(f"{sql} {seed}")
        changes = random_changes(rng, 40)
        ordered, _ = check_epochs(sql, cut(rng, changes, 7), 1_000)
        rng.shuffle(changes)
        query, checked = check_epochs(sql, cut(rng, changes, rng.choice([1.5, 4, 30])), 3)
        assert checked > 0  # at least the last epoch
        assert query.joined == ordered.joined
        assert query.table == ordered.table


@pytest.mark.parametrize("sql", QUERIES)
def test_rows_that_all_leave_leave_nothing_in_the_state(sql: str) -> None:
    rng = random.Random(sql)
    changes = random_changes(rng, 40)
    query = JoinedQuery(sql, TABLES)
    for epoch in cut(rng, changes + [(t, -w, row) for t, w, row in reversed(changes)], 5):
        query.run_epoch(epoch)
    assert (query.table, query.joined) == ({}, {})
    assert not any(side.runs for side in query.inputs.sides.values())


@pytest.mark.parametrize("sql", QUERIES)
def test_keys_and_rows_with_equal_hashes_are_told_apart(
    sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arranged_rows, "_KEY", np.uint64(1 << 63))
    monkeypatch.setattr(arranged_rows, "_REST_BITS", np.uint64(63))
    rng = random.Random(f"{sql} equal hashes")
    _, checked = check_epochs(sql, cut(rng, random_changes(rng, 30), 5), 3)
    assert checked > 0


@pytest.mark.parametrize("sql", QUERIES)
def test_the_rows_of_one_key_are_shown_as_they_are_joined(sql: str) -> None:
    (tree,) = trees_of({"": parse_joins(sql, TABLES)})
    stage = tree.stages[0]
    join = replace(stage.join, columns=stage.join.inputs)
    operator, rng = JoinOperator(join, lambda *_: None), random.Random(sql)
    key = (1,) * len(stage.left.inputs.group)
    for _ in range(20):
        sides: list[dict[Row, int]] = [
            {
                tuple(
                    rng.choice([None, "x"] if each.type == STRING else [None, 1, 2])
                    for each in columns
                ): rng.choice([-1, 1, 2])
                for _ in range(rng.randint(0, 4))
            }
            for columns in (join.left.columns, join.right.columns)
        ]
        runs = [
            Run.of(to_keyed_rows(side, [(key + row, weight) for row, weight in rows.items()]))
            for side, rows in zip((stage.left, stage.right), sides, strict=True)
        ]
        joined = Counter[Row]()
        for piece in operator.advance(runs[0], runs[1], Arrangement(), Arrangement()):
            for row, weight in list_rows(piece, join.columns):
                joined[row] += weight
        shown = Counter[Row]()
        for row, weight in join_rows(join, *sides):
            shown[row] += weight
        assert +joined == +shown
        assert -joined == -shown


@pytest.mark.parametrize("sql", QUERIES)
def test_rows_that_are_joined_one_by_one_are_those_of_the_arrays(sql: str) -> None:
    for seed in range(HISTORIES):
        changes = random_changes(random.Random(f"{sql} {seed}"), 40)
        query, checked = check_epochs(sql, iter([changes]), 1_000)
        assert checked == 1
        one_by_one = RowJoins(query.plan, query.sources)
        joined = Counter[Row]()
        for table, weight, row in changes:
            one_by_one.add(table, row, weight)
        for batch in one_by_one.join():
            for row, weight in batch:
                joined[row] += weight
        assert {row: weight for row, weight in joined.items() if weight} == query.joined


def test_a_change_that_many_rows_join_comes_in_batches_of_bounded_size() -> None:
    sql = "SELECT w, COUNT(*) AS n, SUM(a.id) AS s FROM a JOIN b ON a.k = b.k GROUP BY w"
    query = JoinedQuery(sql, TABLES)
    query.run_epoch([("b", 1, (0, 1, "x")), *(("a", 1, (i, 1, 0)) for i in range(1_000))])
    query.largest = 0
    query.run_epoch([("b", -1, (0, 1, "x")), ("b", 1, (0, 1, "y"))], rows_max=10)
    assert query.largest == 10
    assert query.table == {("y",): (1_000, sum(range(1_000)))}


def test_a_long_text_that_many_rows_join_comes_in_batches_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a document of 110 kB that 20,000 rows join: no array has texts of more than 2 GiB."""
    for module in (arranged_rows, joined_rows):
        monkeypatch.setattr(module, "JOIN_BATCH_BYTES", 10_000)
    (tree,) = trees_of(
        {"": parse_joins("SELECT v, w FROM a JOIN b ON a.k = b.k GROUP BY v, w", TABLES)}
    )
    (stage,) = tree.stages
    lefts, rights = (
        [((1, 1, i), 1) for i in range(100)],
        [((1, 1, "x" * 900), 1), ((1, 1, ""), 1)],
    )
    left, right = (
        Run.of(to_keyed_rows(side, rows))
        for side, rows in ((stage.left, lefts), (stage.right, rights))
    )
    operator = JoinOperator(stage.join, lambda *_: None)
    pieces = [*gather(operator.advance(left, right, Arrangement(), Arrangement()), 1_000)]
    sizes = [sum(map(len, piece.columns[1].to_pylist())) for piece in pieces]
    assert sum(sizes) == 100 * 900
    assert max(sizes) <= 10_000
    assert sum(len(piece.weights) for piece in pieces) == 200


def test_rows_that_are_equal_in_what_the_query_uses_are_one_row_of_a_batch() -> None:
    sql = "SELECT w, COUNT(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY w"
    query = JoinedQuery(sql, TABLES)
    many: list[Change] = [("a", 1, (i, 1, i)) for i in range(1_000)]
    query.run_epoch([("b", 1, (0, 1, "x")), *many], rows_max=1)
    assert query.joined == {("x",): 1_000}


def test_a_row_that_is_there_too_often_stops_the_job_before_its_count_is_wrong() -> None:
    sql = "SELECT a.k, COUNT(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k"
    often = 30_000_000
    query = JoinedQuery(sql, TABLES)
    query.run_epoch([("a", often, (0, 1, 0)), ("b", 3, (0, 1, "x")), ("b", often, (0, 2, "x"))])
    assert query.table == {(1,): (3 * often,)}
    with pytest.raises(TooManyPairs, match="900,000,000,000,000 times, and it may"):
        query.run_epoch([("b", often, (0, 1, "y"))])
