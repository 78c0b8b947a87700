"""The results index by itself: what lookups see while an epoch is being written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.reading.row_shape import RowShape
from jobs.reading.version import TableVersion
from schemas.types.sql_types import INT, STRING
from service.live.index_writer import IndexWriter
from service.live.recent_changes import render_epoch
from service.live.results_index import ResultsIndex
from tests.support.service.tables import QUERY
from tests.support.tables.written_table import WrittenTable


@pytest.fixture
def written(tmp_path: Path) -> WrittenTable:
    written = WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})
    written.epoch({("a",): (1,), ("b",): (2,), ("c",): (3,)})
    return written


@pytest.fixture
def writer(written: WrittenTable, tmp_path: Path) -> Iterator[IndexWriter]:
    writer = IndexWriter(tmp_path / "index", RowShape(written.plan, safe=True)).open()
    table = TableVersion(written.place.table)
    writer.fill(table, table.epochs())
    yield writer
    writer.close()


@pytest.fixture
def index(writer: IndexWriter, tmp_path: Path) -> Iterator[ResultsIndex]:
    index = ResultsIndex(tmp_path / "index", writer.shape)
    index.open()
    yield index
    index.close()


def seen(index: ResultsIndex) -> list[tuple[int, bytes | None]]:
    return [index.lookup(index.shape.key_bytes((name,)))[:2] for name in "abcd"]


def test_lookups_see_an_epoch_before_it_is_written(
    written: WrittenTable, writer: IndexWriter, index: ResultsIndex
) -> None:
    before = [
        b'{"name":"a","total":1,"top":1}',
        b'{"name":"b","total":2,"top":2}',
        b'{"name":"c","total":3,"top":3}',
    ]
    assert seen(index) == [(1, row) for row in (*before, None)]

    written.epoch({("a",): (1,), ("b",): (7,), ("d",): (4,)})
    table = TableVersion(written.place.table)
    changelog = table.changelog(1, 2)
    (row,) = table.epochs(1)
    changes = render_epoch(row, changelog, index.shape, "")
    after = [before[0], b'{"name":"b","total":7,"top":7}', None, b'{"name":"d","total":4,"top":4}']
    index.announce(changes)
    assert writer.position is not None
    assert writer.position[0] == 1  # listings wait for its rows
    assert seen(index) == [(2, row) for row in after]
    writer.apply(row, changes, changelog)
    assert seen(index) == [(2, row) for row in after]
    index.clear_announced()
    assert seen(index) == [(2, row) for row in after]


def test_groups_that_expire_without_a_change_are_gone_at_once(
    written: WrittenTable, index: ResultsIndex
) -> None:
    written.epoch({("a",): (1,)})
    expired = TableVersion(written.place.table).read_tombstones(2)
    assert expired is not None
    (row,) = TableVersion(written.place.table).epochs(1)
    index.announce(render_epoch(row, None, index.shape, ""), index.shape.encode_keys(expired))
    assert [row for _, row in seen(index)] == [b'{"name":"a","total":1,"top":1}', None, None, None]
