"""Pages of a quarantine read the bytes of the messages that they show, and a few at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.core.values.change import RejectCode
from jobs.edge.table.epoch_files import Reject
from jobs.edge.table.file_writer import file_name, write_file
from jobs.reading.files import LiveFile
from jobs.reading.parts import QUARANTINE
from jobs.reading.quarantine import count_reasons, list_messages, read_message
from jobs.reading.version import TableVersion
from schemas.directory.quarantine import Quarantined, QuarantineRow, UnknownMessage
from schemas.table.object_path import TablePath
from schemas.types.sql_types import INT, STRING
from tests.support.service.tables import QUERY
from tests.support.tables.written_table import WrittenTable

RAW_ROWS = 2


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenTable:
    monkeypatch.setattr("jobs.reading.quarantine.QUARANTINE_RAW_ROWS", RAW_ROWS)
    monkeypatch.setattr("jobs.reading.quarantine.QUARANTINE_SCAN_ROWS", 3)
    return WrittenTable(tmp_path, QUERY, {"name": STRING, "v": INT})


def add_file(written: WrittenTable, root: TablePath, epochs: Sequence[int]) -> LiveFile:
    """Write one file, as of a merge, with four messages of each epoch; the last is of the query."""
    tables = []
    for epoch in epochs:
        rejects = [
            Reject(
                *("t", 0, 10 * epoch + number, None, f"bad number {number}", "$.v"),
                f"message {epoch} {number}".encode(),
                99 if number == 1 else len(f"message {epoch} {number}"),
                RejectCode.EXPRESSION if number == 3 else RejectCode.MESSAGE,
            )
            for number in range(4)
        ]
        tables.append(written.layout.quarantine_table(epoch, rejects))
    rows = pa.concat_tables(tables)
    added = write_file(root, file_name(QUARANTINE, epochs[0], "u", "c1-0"), rows)
    return LiveFile(added.path, QUARANTINE, added.size, rows.num_rows, epochs[0], epochs[-1])


def open_with(written: WrittenTable, files: list[LiveFile]) -> TableVersion:
    table = TableVersion(written.place.table)
    table.__dict__["files"] = files  # a cached property
    return table


@pytest.fixture
def table(written: WrittenTable) -> TableVersion:
    files = [add_file(written, written.place.table, epochs) for epochs in ((1, 2, 3), (4, 5))]
    return open_with(written, files)


def ids(messages: list[Quarantined]) -> list[str]:
    return [each.id for each in messages]


EVERY = [f"{epoch}-t-0-{10 * epoch + number}" for epoch in range(1, 6) for number in range(4)]


def test_pages_have_all_messages_in_order(table: TableVersion) -> None:
    assert ids(list_messages(table, None, 100)) == EVERY
    assert ids(list_messages(table, None, 100, newest_first=True)) == EVERY[::-1]
    assert ids(list_messages(table, (2, "t", 0, 21), 7)) == EVERY[6:13]
    assert ids(list_messages(table, (4, "t", 0, 41), 7, newest_first=True)) == EVERY[6:13][::-1]
    first = list_messages(table, None, 2)
    assert [each.raw for each in first] == ["message 1 0", "message 1 1"]
    assert [each.cut for each in first] == [False, True]
    assert first[0].reason == "bad number 0"


def test_a_message_that_two_sources_refuse_is_listed_for_each(written: WrittenTable) -> None:
    rejects = [
        Reject("t", 0, 7, None, f"not for {source}", "$", b"{", 1, source=source)
        for source in ("orders", "items")
    ]
    rows = written.layout.quarantine_table(1, rejects)
    added = write_file(written.place.table, file_name(QUARANTINE, 1, "u", "w"), rows)
    file = LiveFile(added.path, QUARANTINE, added.size, rows.num_rows, 1, 1)
    found = list_messages(open_with(written, [file]), None, 10)
    assert [(each.id, each.source, each.reason) for each in found] == [
        ("1-t-0-7", source, f"not for {source}") for source in ("orders", "items")
    ]


def test_messages_are_found_by_reason_and_by_their_bytes(table: TableVersion) -> None:
    def of_reason(row: QuarantineRow) -> bool:
        return (row.raw, row.reason, row.path) == (None, "bad number 2", "$.v")

    found = list_messages(table, None, 3, of_reason, newest_first=True)
    assert ids(found) == [EVERY[18], EVERY[14], EVERY[10]]

    def of_bytes(row: QuarantineRow) -> bool:
        return row.raw == b"message 2 1"

    assert ids(list_messages(table, None, 3, of_bytes, by_bytes=True, newest_first=True)) == [
        "2-t-0-21"
    ]
    assert count_reasons(table) == {"bad number N": 20}


def test_one_message_has_all_its_bytes(table: TableVersion) -> None:
    found = read_message(table, (5, "t", 0, 52))
    assert (found.id, found.raw) == ("5-t-0-52", "message 5 2")
    for missing in ((5, "t", 0, 54), (3, "t", 0, 40), (6, "t", 0, 52)):
        with pytest.raises(UnknownMessage, match="no such message"):
            read_message(table, missing)


def test_bytes_are_read_a_few_rows_at_once(
    table: TableVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, int]] = []  # files and rows of the batches with bytes
    batches = TableVersion.batches

    def record(
        self: TableVersion, file: LiveFile, columns: Sequence[str], rows: int
    ) -> Iterator[pa.Table]:
        for batch in batches(self, file, columns, rows):
            if "raw" in columns:
                read.append((file.path, batch.num_rows))
            yield batch

    def fail(*_: object) -> None:
        raise AssertionError("a whole file was read")

    monkeypatch.setattr(TableVersion, "batches", record)
    monkeypatch.setattr(TableVersion, "read", fail)
    old, new = (file.path for file in table.files)
    list_messages(table, None, 3)
    assert read == [(old, RAW_ROWS)] * 2
    read.clear()
    list_messages(table, None, 3, newest_first=True)
    assert set(read) == {(new, RAW_ROWS)}
    read.clear()
    count_reasons(table)
    assert read == []


def test_a_view_lists_no_message_that_only_the_query_of_the_job_refused(
    written: WrittenTable,
) -> None:
    own = add_file(written, written.place.table, (1,))
    shared = add_file(written, written.place.home, (2,))
    shared = replace(shared, path=f"../{shared.path}")
    table = open_with(written, [own, shared])
    listed = ids(list_messages(table, None, 100))
    assert listed == EVERY[:7]  # without the last of the shared file
    assert ids(list_messages(table, None, 100, newest_first=True)) == listed[::-1]
    assert count_reasons(table).total() == 7
    with pytest.raises(UnknownMessage, match="no such message"):
        read_message(table, (2, "t", 0, 23))
    assert table.read(shared, ["offset", "topic"]).to_pydict() == {
        "offset": [20, 21, 22],
        "topic": ["t"] * 3,
    }
    (batch,) = table.batches(shared, ["offset", "quarantine_code"], 10)
    assert batch.column_names == ["offset", "quarantine_code"]
    assert batch["offset"].to_pylist() == [20, 21, 22]
