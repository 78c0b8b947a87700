"""The commit of an epoch: one function, one writer, all of it or nothing.

Rivals are real: a second handle, or a second process. Lost replies come from the product's own
failpoint, full disks from a limit of the kernel.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.core.fold.program import Program
from jobs.edge.process import failpoints
from jobs.edge.table.delta_epochs import CommitFailed, EpochTable, Fenced
from jobs.edge.table.epoch_files import TableLayout
from jobs.edge.table.file_writer import file_name, write_file
from jobs.reading.epoch_rows import epoch_rows, newest_epoch
from jobs.reading.files import live_files, log_entry, open_table
from jobs.reading.parts import ACCUMULATORS, EPOCHS
from schemas.limits import CLAIM_TRIES_MAX
from schemas.table.epoch import EpochRow
from tests.support.epoch_rows import epoch_row
from tests.support.forks import Fork, Say
from tests.support.tables.folded_table import FoldedTable, a_plan, entries, insert, rival_of

# --- one commit, or none ----------------------------------------------------------------------


def test_a_commit_whose_reply_is_lost_is_recognised_as_ours(
    made: FoldedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(failpoints._POINTS, "commit_reply_lost", ("lost", 1))
    monkeypatch.setattr(failpoints, "_passed", {})
    before = entries(made.root)
    row = made.epoch(insert("c", 4))
    assert failpoints._passed["commit_reply_lost"] == 1, "it was committed once"
    assert len(entries(made.root)) == len(before) + 1
    assert made.table.newest() == row
    assert made.epoch(insert("d", 5)) == made.table.newest(), "and the next one goes on"


def test_a_commit_that_lands_after_it_was_looked_for_is_ours(
    made: FoldedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, looks = EpochTable._writer_of, 0

    def look_too_soon(table: EpochTable, version: int) -> str | None:
        nonlocal looks
        looks += 1
        return None if looks == 1 else look(table, version)

    before = entries(made.root)
    monkeypatch.setattr(EpochTable, "_writer_of", look_too_soon)
    row = made.epoch(insert("c", 4))
    assert made.table.newest() == row
    assert len(entries(made.root)) == len(before) + 1


def test_an_error_before_the_commit_is_tried_again(
    made: FoldedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = DeltaTable.create_write_transaction
    tries = 0

    def shaky(*arguments: Any, **named: Any) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError("the disk is busy")
        real(*arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", shaky)
    row = made.epoch(insert("c", 4))
    assert tries == 3
    assert made.table.newest() == row


def test_another_writers_version_fences_us_and_nothing_of_ours_is_in_the_table(
    made: FoldedTable,
) -> None:
    ours = rival_of(made.table)
    theirs = made.epoch(insert("c", 4))
    name = file_name(ACCUMULATORS, 2, "ours", "f0")
    upserts = ours.layout.accumulators_table(2, [0], [(("x",), None)])
    mine = write_file(made.root, name, upserts)
    with pytest.raises(Fenced, match=r"version after 2.*another writer"):
        ours.commit_epoch(epoch_row(2), [mine])
    found = open_table(made.root)
    assert newest_epoch(made.root, live_files(found)) == theirs
    assert name not in {file.path for file in live_files(found)}


@pytest.mark.parametrize("what", ["epoch", "compaction"])
def test_a_rival_that_commits_between_our_look_and_our_commit_fences_us(
    made: FoldedTable, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    ours, theirs = rival_of(made.table), epoch_row(2)
    real = DeltaTable.create_write_transaction

    def overtaken(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        if self is ours.handle and made.table.version == ours.version:
            made.table.commit_epoch(theirs, ())
        real(self, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", overtaken)
    files = ours.live_files()
    with pytest.raises(Fenced, match="belongs to another writer"):
        if what == "epoch":
            ours.commit_epoch(epoch_row(2), ())
        else:
            ours.commit([], files[:1], uuid="ours", what=what)
    found = open_table(made.root)
    assert newest_epoch(made.root, live_files(found)) == theirs
    assert found.version() == ours.version + 1, "ours did not move to a later version"
    assert set(files) <= set(live_files(found))
    with pytest.raises(Fenced):
        ours.commit_epoch(epoch_row(3), ())


def committing_before(
    table: EpochTable, rival: EpochTable, times: int, monkeypatch: pytest.MonkeyPatch
) -> list[EpochRow]:
    """Let a rival commit an epoch just before each of the first commits of a table."""
    committed: list[EpochRow] = []
    real = DeltaTable.create_write_transaction

    def overtaken(self: DeltaTable, *arguments: Any, **named: Any) -> None:
        if self is table.handle and len(committed) < times:
            newest = rival.newest()
            assert newest is not None
            committed.append(epoch_row(newest.epoch + 1))
            rival.commit_epoch(committed[-1], ())
        real(self, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", overtaken)
    return committed


def test_a_claim_follows_a_writer_that_commits_and_fences_it(
    made: FoldedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = rival_of(made.table)
    theirs = committing_before(ours, made.table, 3, monkeypatch)
    assert ours.claim(), "others had committed"
    assert len(theirs) == 3
    assert ours.newest() == theirs[-1]
    with pytest.raises(Fenced):
        made.table.commit_epoch(epoch_row(5), ())
    ours.commit_epoch(epoch_row(5), ())
    assert not rival_of(ours).claim(), "nobody had committed since it was opened"


def test_a_claim_that_comes_too_late_each_time_is_fenced(
    made: FoldedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = rival_of(made.table)
    theirs = committing_before(ours, made.table, CLAIM_TRIES_MAX, monkeypatch)
    with pytest.raises(Fenced, match="belongs to another writer"):
        ours.claim()
    assert made.table.newest() == theirs[-1], "the other one goes on"


def commit_without_a_pause(say: Say, root: Path) -> None:
    table = EpochTable.open(root, TableLayout(Program(a_plan())))
    newest = table.newest()
    assert newest is not None
    with suppress(Fenced):
        for epoch in count(newest.epoch + 1):
            table.commit_epoch(epoch_row(epoch), ())
            say(epoch)


def test_a_claim_ends_a_process_that_commits_without_a_pause(made: FoldedTable) -> None:
    ours = rival_of(made.table)
    committer = Fork(commit_without_a_pause, made.root)
    first = committer.read()
    assert ours.claim()
    assert committer.wait() == 0
    newest = ours.newest()
    assert newest is not None and newest.epoch == [first, *committer.read_all()][-1]


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_an_epoch_that_does_not_follow_is_refused(made: FoldedTable, epoch: int) -> None:
    with pytest.raises(Fenced, match="is at epoch 1"):
        made.table.commit_epoch(epoch_row(epoch), ())
    assert made.table.newest() == made.newest


def test_a_table_begins_with_epoch_zero(tmp_path: Path) -> None:
    table = EpochTable.create(tmp_path / "epochs", TableLayout(Program(a_plan())))
    assert table.newest() is None
    with pytest.raises(Fenced):
        table.commit_epoch(epoch_row(1), ())
    table.commit_epoch(epoch_row(0), ())


def race(say: Say, root: Path, last: int) -> None:
    """Commit epochs up to the last one; say those that were committed, and how often it lost."""
    layout, refused = TableLayout(Program(a_plan())), 0
    while True:
        table = EpochTable.open(root, layout)
        newest = table.newest()
        assert newest is not None
        try:
            for epoch in range(newest.epoch + 1, last + 1):
                row = epoch_row(epoch)
                table.commit_epoch(row, ())
                say((epoch, row.uuid))
            break
        except Fenced:
            refused += 1
    say(refused)


def test_two_racing_processes_lose_no_commit(made: FoldedTable) -> None:
    last = 60
    racers = [Fork(race, made.root, last) for _ in range(2)]
    said = [each for racer in racers for each in racer.read_all()]
    assert [racer.wait() for racer in racers] == [0, 0]
    committed = [each for each in said if isinstance(each, tuple)]
    rows = epoch_rows(made.root, live_files(open_table(made.root)))
    assert [(row.epoch, row.uuid) for row in rows[2:]] == sorted(committed)
    assert len(committed) == last - 1
    assert sum(each for each in said if isinstance(each, int)) > 0, "they never met"


# --- failing disks ----------------------------------------------------------------------------


def commit_on_a_full_disk(say: Say, root: Path, bytes_max: int, what: str) -> None:
    table = EpochTable.open(root, TableLayout(Program(a_plan())))
    big = {str(number): number for number in range(20_000)}
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, resource.RLIM_INFINITY))
    try:
        if what == "row":
            table.commit_epoch(epoch_row(2, counters=big), ())
        else:
            table.commit([], table.live_files() * 9, uuid="u", what="compaction")
    except CommitFailed:
        say("failed")
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    table.commit_epoch(epoch_row(2), ())


@pytest.mark.parametrize(("bytes_max", "what"), [(8_000, "row"), (600, "log")])
def test_a_write_that_fails_fails_the_commit_and_the_next_try_goes_on(
    made: FoldedTable, bytes_max: int, what: str
) -> None:
    before = entries(made.root)
    child = Fork(commit_on_a_full_disk, made.root, bytes_max, what)
    assert child.read() == "failed"
    assert child.wait() == 0
    assert len(entries(made.root)) == len(before) + 1, "only the second try is in the log"
    assert [row.epoch for row in epoch_rows(made.root, live_files(open_table(made.root)))] == [
        0,
        1,
        2,
    ]


def test_files_that_were_never_committed_are_invisible(made: FoldedTable) -> None:
    before = open_table(made.root).to_pyarrow_table().num_rows
    upserts = made.layout.accumulators_table(2, [0], [(("x",), None)])
    left = write_file(made.root, file_name(ACCUMULATORS, 2, "gone", "f0"), upserts)
    found = open_table(made.root)
    assert left.path not in {file.path for file in live_files(found)}
    assert found.to_pyarrow_table().num_rows == before


def test_a_durable_commit_syncs_data_log_and_directories(
    made: FoldedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def seen(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", seen)
    made.table.commit_epoch(epoch_row(2), (), durable=True)
    row_file = next(f.path for f in made.table.live_files() if f.epoch_min == 2)
    log = log_entry(made.root, made.table.version)
    expected = [made.root / row_file, made.root / f"part={EPOCHS}", log, log.parent]
    assert synced == [str(path) for path in expected]
    made.table.commit_epoch(epoch_row(3), ())
    assert len(synced) == 4, "without it nothing is synced"


def test_a_failed_commit_says_what_was_to_be_committed(
    made: FoldedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", refused)
    with pytest.raises(CommitFailed, match=r"epoch 2 could not be committed.*no space left"):
        made.table.commit_epoch(epoch_row(2), ())
    monkeypatch.undo()
    assert made.table.newest() == made.newest
