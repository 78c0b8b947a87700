"""A table that is dropped and made anew has the same epochs: nothing of the old one answers."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.reading.version import TableVersion
from schemas.spec.file import load_spec
from schemas.types.sql_types import INT, STRING
from service.answers.changes import find_newest_position, parse_position
from service.answers.difference import read_difference_page
from service.answers.event_stream import Events, EventStream
from service.answers.listing import parse_listing
from service.answers.results import Results, TableReads
from service.live.index_writer import IndexWriter
from service.live.reader import IndexOpened
from service.live.table import LiveTable
from service.paths import JobPaths
from service.problems import Problem
from tests.support.service.tables import QUERY
from tests.support.tables.written_table import WrittenTable


class FollowedTable:
    """A job's table and its live table, which a test tells what its reader has read."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.make("old")
        paths = JobPaths(data, "items")
        self.live = LiveTable(paths, load_spec(paths.spec), cast(Any, None), None)
        self.writer = IndexWriter(paths.index, self.live.shape).open()
        self.results = Results(TableReads())
        self.read()

    def make(self, name: str) -> None:
        written = WrittenTable(self.data, QUERY, {"name": STRING, "v": INT})
        for number in range(3):
            written.epoch({(f"{name}{each}",): (number,) for each in range(4)})
        self.root = written.place.own_table

    def replace(self) -> None:
        """Drop the table and make another one with as many epochs, on the same inode or not."""
        shutil.rmtree(self.root)
        self.make("new")

    def fill(self) -> TableVersion:
        table = TableVersion(self.root)
        self.writer.fill(table, table.epochs())
        return table

    def read(self) -> None:
        table = self.fill()
        self.live._handle(IndexOpened(table.newest, table.epochs(), table.tag, refilled=True))

    def page(self, as_of: str | None = None, cursor: str | None = None) -> tuple[str, str | None]:
        """Return the first group of a page of two, and the cursor of the next page."""
        listing = parse_listing(self.live, [], None, as_of)
        page = self.results.read_page(self.live, listing, 2, as_of, cursor)
        return page.documents[0].decode(), page.cursor


@pytest.fixture
def followed(tmp_path: Path) -> FollowedTable:
    return FollowedTable(tmp_path)


def test_a_past_epoch_is_that_of_the_table_there_is(followed: FollowedTable) -> None:
    assert '"old0"' in followed.page("epoch:2")[0]
    followed.replace()
    followed.read()
    assert '"new0"' in followed.page("epoch:2")[0]


def test_a_past_epoch_is_not_read_from_a_table_that_the_index_does_not_know(
    followed: FollowedTable,
) -> None:
    followed.replace()
    with pytest.raises(Problem) as refused:
        followed.page("epoch:2")
    assert (refused.value.code, refused.value.status) == ("history-gone", 410)


@pytest.mark.parametrize("as_of", [None, "epoch:2"])
def test_a_cursor_does_not_continue_in_another_table(
    followed: FollowedTable, as_of: str | None
) -> None:
    cursor = followed.page(as_of)[1]
    assert '"old2"' in followed.page(as_of, cursor)[0]
    followed.replace()
    followed.read()
    with pytest.raises(Problem) as refused:
        followed.page(as_of, cursor)
    assert (refused.value.code, refused.value.status) == ("cursor-invalid", 422)


def test_the_rows_of_a_table_are_its_own_before_the_service_knows_of_it(
    followed: FollowedTable,
) -> None:
    """Its reader has filled the index; that it has, the service has not read yet."""
    cursor = followed.page()[1]
    followed.replace()
    tag = followed.fill().tag
    assert followed.live.table_tag != tag
    with pytest.raises(Problem) as refused:
        followed.page(cursor=cursor)
    assert refused.value.code == "cursor-invalid"
    listing = parse_listing(followed.live, [], None, None)
    assert followed.results.read_page(followed.live, listing, 2, None, None).table_tag == tag
    key = followed.live.shape.key_bytes(("new0",))
    assert followed.live.index.lookup(key)[2] == tag


def test_a_page_of_differences_does_not_continue_in_another_table(followed: FollowedTable) -> None:
    def read(cursor: str | None) -> Any:
        table = TableVersion(followed.root)
        return read_difference_page(table, followed.live.shape, "items", 1, 2, 2, cursor)

    cursor = read(None).next_cursor
    assert read(cursor).rows
    followed.replace()
    with pytest.raises(Problem) as refused:
        read(cursor)
    assert refused.value.code == "cursor-invalid"


def test_a_position_of_changes_belongs_to_its_table(followed: FollowedTable) -> None:
    position = str(find_newest_position(followed.live))
    assert parse_position(position, "query.since", followed.live).epoch == 3
    followed.replace()
    followed.read()
    with pytest.raises(Problem) as refused:
        parse_position(position, "query.since", followed.live)
    assert (refused.value.code, refused.value.status) == ("history-gone", 410)
    assert "oldest_id" not in refused.value.extensions  # nothing to skip to without the results


@pytest.mark.parametrize("text", ["3", "3:12"])
def test_a_position_without_a_table_is_one_of_the_table_there_is(
    followed: FollowedTable, text: str
) -> None:
    at = parse_position(text, "query.since", followed.live)
    assert (at.epoch, at.table) == (3, TableVersion(followed.root).tag)


def test_a_stream_ends_with_its_table(followed: FollowedTable) -> None:
    """Also if the new table has fewer epochs than the stream has sent."""
    at = find_newest_position(followed.live)
    stream = EventStream(followed.live, at, None, followed.results, Events, lambda: True)
    followed.replace()
    followed.read()

    async def read_all() -> bytes:
        return b"".join([piece async for piece in stream._make_pieces()])

    sent = asyncio.run(asyncio.wait_for(read_all(), 10))
    assert b"event: gone" in sent
    assert b'"history-gone"' in sent


def test_the_id_of_a_change_is_its_place_and_that_of_a_progress_names_its_table(
    followed: FollowedTable,
) -> None:
    at = parse_position("2", "query.since", followed.live)
    stream = EventStream(followed.live, at, None, followed.results, Events, lambda: True)

    async def read_first() -> bytes:
        async for piece in stream._follow(at):
            return piece
        raise AssertionError("the stream ended")

    sent = asyncio.run(asyncio.wait_for(read_first(), 10)).decode()
    ids = [line.removeprefix("id: ") for line in sent.splitlines() if line.startswith("id: ")]
    *changes, progress = ids
    documents = [json.loads(line[6:]) for line in sent.splitlines() if line.startswith("data: ")]
    assert changes == [f"{each['epoch']}:{each['seq']}" for each in documents[:-1]] != []
    assert progress.split(":")[2] == TableVersion(followed.root).tag
