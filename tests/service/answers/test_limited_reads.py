"""Old changes are read from the table by a limited number of requests at once."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from jobs.reading.version import TableVersion
from schemas.limits import TABLE_READS_MAX
from schemas.spec.file import load_spec
from service.answers.changes import ChangePosition, check_position, read_epochs
from service.answers.event_stream import EventStream, Lines
from service.answers.results import Results, TableReads, TableReadsBusy
from service.live.recent_changes import EpochChanges
from service.live.table import LiveTable
from service.paths import JobPaths
from tests.support.tables.written_table import write_random_history


@pytest.fixture
def live_table(tmp_path: Path) -> LiveTable:
    """A table that is not followed, so that none of its changes are in memory."""
    written = write_random_history(tmp_path)
    spec = load_spec(written.place.spec)
    live_table = LiveTable(JobPaths(tmp_path, "items"), spec, cast(Any, None), None)
    table = TableVersion(written.place.table)
    live_table.newest, live_table.table_tag = table.newest, table.tag
    return live_table


@pytest.fixture
def start(live_table: LiveTable) -> ChangePosition:
    return ChangePosition(0, table=live_table.table_tag)


def take_all(reads: TableReads) -> ExitStack:
    """Take all reads, until the stack is closed."""
    stack = ExitStack()
    for _ in range(TABLE_READS_MAX):
        stack.enter_context(reads.limit())
    return stack


def test_reads_of_old_changes_are_counted(live_table: LiveTable, start: ChangePosition) -> None:
    reads = TableReads()
    for _ in range(TABLE_READS_MAX + 1):  # each gives its read back
        check_position(live_table, start, reads)
        assert read_epochs(live_table, start, reads)[0].epoch == 1
    with take_all(reads):
        with pytest.raises(TableReadsBusy) as busy:
            read_epochs(live_table, start, reads)
        assert (busy.value.code, busy.value.status) == ("too-many-requests", 429)
        with pytest.raises(TableReadsBusy):
            check_position(live_table, start, reads)


def test_changes_in_memory_are_not_counted(live_table: LiveTable, start: ChangePosition) -> None:
    reads = TableReads()
    for epoch in read_epochs(live_table, start, reads):
        live_table.recent.add(epoch)
    with take_all(reads):
        check_position(live_table, start, reads)
        assert read_epochs(live_table, start, reads)[0].epoch == 1


def test_a_stream_waits_for_its_turn(live_table: LiveTable, start: ChangePosition) -> None:
    reads = TableReads()
    stream = EventStream(live_table, start, None, Results(reads), Lines, lambda: True)
    expected: list[EpochChanges] = read_epochs(live_table, start, reads)

    async def read_first() -> bytes:
        async for piece in stream._follow(start):
            return piece
        raise AssertionError("the stream ended")

    async def follow() -> bytes:
        with take_all(reads):
            waiting = asyncio.create_task(read_first())
            await asyncio.sleep(0.5)
            assert not waiting.done()
        return await asyncio.wait_for(waiting, 10)

    assert b'{"progress":%b}' % expected[0].progress in asyncio.run(follow())
