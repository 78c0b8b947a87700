"""The results at an epoch are those of the statements that docs/reading-tables.md gives DuckDB."""

from __future__ import annotations

import math
import random
from itertools import product

import duckdb
import pytest
from deltalake import DeltaTable

from jobs.core.values.change import Row, Value
from jobs.edge.table.reading import TableReader
from jobs.reading.difference import compare_epochs
from jobs.reading.parts import ACCUMULATORS, CHANGELOG
from jobs.reading.results import read_results
from schemas.table.object_path import TablePath
from schemas.types.json_types import JsonObject
from schemas.types.sql_types import DOUBLE, INT
from tests.docs.documents import block
from tests.support.tables.written_table import WrittenTable

KEYS: list[Value] = [1.5, math.nan, None, 0.0, math.inf, -2.25]
EPOCHS = 12


@pytest.fixture(scope="module", params=[False, True], ids=["small files", "merged"])
def written(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TableReader:
    """Groups come, change several times, go and come again; NaN and NULL are groups too."""
    query = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
    table = WrittenTable(tmp_path_factory.mktemp("data"), query, {"name": DOUBLE, "v": INT})
    chance = random.Random(5)
    for number in range(EPOCHS):
        live = dict(table.history[-1])
        for key in chance.sample(KEYS, 3):
            live.pop((key,), None)
            if chance.random() < 0.7:
                live[(key,)] = (chance.randint(-9, 9), number)
        table.epoch(live)
        if request.param and number in (4, 9):
            for part in (ACCUMULATORS, CHANGELOG):
                table.merge(part, 1)
    return table.reader()


def by_duckdb(root: TablePath, epoch: int) -> list[Row]:
    connection = duckdb.connect()
    connection.register("epochs", DeltaTable(str(root)).to_pyarrow_dataset())
    (statement,) = (
        each
        for each in block("reading-tables.md", "sql", "WITH later AS").split(";")
        if "WITH later" in each
    )
    statement = statement.replace("epoch > 2", f"epoch > {epoch}")
    return connection.sql(statement.replace("sum_cnt, top, n", "total, top")).fetchall()


def in_order(rows: list[Row]) -> list[str]:
    return sorted(map(repr, rows))


def test_the_results_of_each_epoch_are_those_of_duckdb(written: TableReader) -> None:
    table = written
    for epoch in range(EPOCHS + 1):
        found = [(*key, *row) for key, row in read_results(table, table.shape, epoch).items()]
        assert in_order(found) == in_order(by_duckdb(table.root, epoch)), epoch
    newest = [(*key, *row) for key, row in read_results(table, table.shape).items()]
    assert in_order(newest) == in_order(by_duckdb(table.root, EPOCHS))


def test_a_difference_leads_from_the_results_of_one_epoch_to_those_of_another(
    written: TableReader,
) -> None:
    def shown(epoch: int) -> dict[str, JsonObject]:
        found = written.results(epoch).items()
        return {str(written.shape.key(key)): written.shape.row(key, row) for key, row in found}

    by_epoch = [shown(epoch) for epoch in range(EPOCHS + 1)]
    for first, last in product(range(EPOCHS + 1), repeat=2):
        led = dict(by_epoch[first])
        for _, each in compare_epochs(written, written.shape, first, last):
            assert led.pop(str(each.key), None) == each.before != each.after
            if each.after is not None:
                led[str(each.key)] = each.after
        assert led == by_epoch[last]
