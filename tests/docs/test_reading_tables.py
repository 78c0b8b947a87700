"""docs/reading-tables.md, run against a table that real folds have written."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from jobs.edge.table.compaction import due_merge
from tests.docs.documents import RESULT_COLUMNS, Items, Row, block, ordered, text
from tests.support.documents import TABLE_IN_DOCS
from tests.support.tables.folded_table import delete, insert


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> Items:
    """Enough epochs that the older ones have been merged."""
    table = Items(tmp_path_factory.mktemp("job") / "epochs")
    table.first()
    for number in range(40):
        table.change([*insert("bolt", number), *insert("nut", number % 3)])
    table.second()
    while (merge := due_merge(table.table.live_files(), table.newest.epoch)) is not None:
        table.merge(merge)
    return table


@pytest.fixture
def epochs(items: Items) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("epochs", DeltaTable(str(items.root)).to_pyarrow_dataset())
    return connection


def statements(about: str) -> list[str]:
    found = block("reading-tables.md", "sql", about).split(";")
    return [statement for statement in found if statement.strip()]


def as_rows(found: list[tuple[Any, ...]]) -> list[Row]:
    return ordered(dict(zip(RESULT_COLUMNS, row, strict=True)) for row in found)


def current_by_arrow_alone(root: Path) -> list[Row]:
    """Run the page's query for the current results on a table."""
    source = block("reading-tables.md", "python", "to_pyarrow_dataset")
    assert TABLE_IN_DOCS in source
    names: dict[str, Any] = {}
    exec(source.replace(TABLE_IN_DOCS, str(root)), names)
    return ordered(names["current"].to_pylist())


def test_arrow_alone_gives_the_current_results(items: Items) -> None:
    assert current_by_arrow_alone(items.root) == items.results()


def test_arrow_alone_reads_results_of_money(items: Items, tmp_path: Path) -> None:
    money = DeltaTable(str(items.root)).to_pyarrow_table()
    at = money.schema.get_field_index("sum_cnt")
    money = money.set_column(at, "sum_cnt", money["sum_cnt"].cast(pa.decimal128(38, 2)))
    write_deltalake(str(tmp_path), money, partition_by=["part"])
    assert current_by_arrow_alone(tmp_path) == items.results()  # 3.00 is 3


@pytest.mark.parametrize("epoch", [1, 2, 3, 20, 44])
def test_an_earlier_epoch_is_what_it_was(
    items: Items, epochs: duckdb.DuckDBPyConnection, epoch: int
) -> None:
    (statement,) = statements("WITH later")
    found = epochs.sql(statement.replace("epoch > 2", f"epoch > {epoch}")).fetchall()
    assert as_rows(found) == items.results(epoch)


def test_history_is_the_changelog_with_its_moments(
    items: Items, epochs: duckdb.DuckDBPyConnection
) -> None:
    history, moment, standing = (epochs.sql(each).fetchall() for each in statements("c.op"))
    of_bolt = [(epoch, op) for epoch, _, (op, key, _) in items.changelog if key == ("bolt",)]
    assert [(row[0], row[2]) for row in reversed(history)] == of_bolt
    assert all(isinstance(row[1], datetime) for row in history)
    assert moment == [(items.newest.epoch,)]
    assert standing[0][:2] == (items.newest.epoch, "data")


def test_state_shows_what_a_result_is_made_of(
    items: Items, epochs: duckdb.DuckDBPyConnection
) -> None:
    items.change([*insert("bolt", 99, 99), *delete("bolt", 0)])
    epochs.register("epochs", DeltaTable(str(items.root)).to_pyarrow_dataset())
    values, largest = (epochs.sql(each).fetchall() for each in statements("multiplicity <>"))
    assert values[0] == (99, 2)
    assert 0 not in dict(values)
    (bolt,) = (row for row in items.results() if row["name"] == "bolt")
    assert sum(count for _, count in values) == bolt["n"]
    assert sum(value * count for value, count in values) == bolt["sum_cnt"]
    assert largest == sorted(
        ((row["name"], row["n"]) for row in items.results()), key=lambda row: -row[1]
    )


def test_the_page_says_how_long_old_files_are_kept(items: Items) -> None:
    configuration = DeltaTable(str(items.root)).metadata().configuration
    assert configuration["delta.logRetentionDuration"] == "interval 1 hours"
    assert configuration["delta.deletedFileRetentionDuration"] == "interval 1 hours"
    assert "A long query has an hour." in text("reading-tables.md")
