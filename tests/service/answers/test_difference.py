"""The differences between two epochs are refused before too many changes are read."""

from __future__ import annotations

import pytest

from jobs.reading.difference import DifferenceTooLarge, compare_epochs
from jobs.reading.row_shape import RowShape
from jobs.reading.version import TableVersion
from service.answers.difference import read_difference_page
from service.answers.results import TableReads
from service.problems import Problem
from tests.support.tables.written_table import WrittenTable, write_random_history


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> WrittenTable:
    return write_random_history(tmp_path_factory.mktemp("data"))


def test_only_the_changes_between_the_epochs_count(
    written: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, shape = TableVersion(written.place.table), RowShape(written.plan, safe=True)
    counts = {row.epoch: row.counts.changelog_rows for row in table.epochs()}
    first = next(epoch for epoch in counts if counts.get(epoch + 1) and counts.get(epoch + 2))
    rows_max = counts[first + 1]
    assert len(compare_epochs(table, shape, first, first + 1, rows_max)) <= rows_max
    monkeypatch.setattr("service.answers.difference.DIFFERENCE_ROWS_MAX", rows_max)
    with pytest.raises(Problem) as refused, TableReads().limit():
        read_difference_page(table, shape, "items", first, first + 2, 10, None)
    assert (refused.value.code, refused.value.status) == ("difference-too-large", 422)
    assert str(counts[first + 1] + counts[first + 2]) in refused.value.detail


def test_too_many_changes_are_refused_before_they_are_read(
    written: WrittenTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the changelog was read")

    monkeypatch.setattr("service.answers.difference.DIFFERENCE_ROWS_MAX", 0)
    monkeypatch.setattr(TableVersion, "changelog", fail)
    table, shape = TableVersion(written.place.table), RowShape(written.plan, safe=True)
    newest = len(written.history) - 1
    for epochs in ((0, newest), (newest, 0)):
        with pytest.raises(DifferenceTooLarge, match="choose closer epochs"):
            read_difference_page(table, shape, "items", *epochs, 10, None)
