"""The commit of an epoch: one function, one writer, all of it or nothing.

Rivals are real: a second handle, or a second process. Lost replies come from the product's own
failpoint, full disks from a limit of the kernel.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from jobs.command import _explained
from jobs.core.program import Program
from jobs.edge import delta_epochs, failpoints
from jobs.edge.bucket_states import StateFiles
from jobs.edge.compaction import Merge
from jobs.edge.delta_epochs import (
    APPLICATION,
    CommitFailed,
    EpochTable,
    Fenced,
    FormatTooNew,
    FormatTooOld,
    epoch_rows,
    live_files,
    log_entry,
    newest_epoch,
    opened,
    start_row,
    write_checkpoint,
)
from jobs.edge.epoch_files import ACCUMULATORS, EPOCHS, TableLayout, file_name, write_file
from schemas.epoch import FORMAT_VERSION
from schemas.table_file import TableDamaged
from tests.edge.folded_table import FoldedTable, a_plan, epoch_row, insert

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture
def made(tmp_path: Path) -> FoldedTable:
    made = FoldedTable(tmp_path / "epochs")
    made.epoch(insert("a", 1, 2) + insert("b", 3))
    return made


def rival_of(table: EpochTable) -> EpochTable:
    return EpochTable.open(table.root, table.layout)


def entries(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_delta_log").glob("*.json"))


def in_child(body: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        child(body, *arguments), cwd=CHECKOUT, text=True, capture_output=True, timeout=120
    )


def child(body: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(body), *map(str, arguments)]


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
    found = opened(made.root)
    assert newest_epoch(made.root, found) == theirs
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
    found = opened(made.root)
    assert newest_epoch(made.root, found) == theirs
    assert found.version() == ours.version + 1, "ours did not move to a later version"
    assert set(files) <= set(live_files(found))
    with pytest.raises(Fenced):
        ours.commit_epoch(epoch_row(3), ())


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_an_epoch_that_does_not_follow_is_refused(made: FoldedTable, epoch: int) -> None:
    with pytest.raises(Fenced, match="stands at epoch 1"):
        made.table.commit_epoch(epoch_row(epoch), ())
    assert made.table.newest() == made.newest


def test_a_table_begins_with_epoch_zero(tmp_path: Path) -> None:
    table = EpochTable.create(tmp_path / "epochs", TableLayout(Program(a_plan())))
    assert table.newest() is None
    with pytest.raises(Fenced):
        table.commit_epoch(epoch_row(1), ())
    table.commit_epoch(epoch_row(0), ())


def test_a_compaction_of_a_stale_handle_is_fenced_too(made: FoldedTable) -> None:
    ours = rival_of(made.table)
    files = ours.live_files()
    made.epoch(insert("c", 4))
    with pytest.raises(Fenced):
        ours.commit([], files, uuid="ours", what="compaction")
    assert {file.path for file in files} <= {file.path for file in live_files(opened(made.root))}


RACER = """
    import sys
    from pathlib import Path
    from jobs.core.program import Program
    from jobs.edge.delta_epochs import EpochTable, Fenced
    from jobs.edge.epoch_files import TableLayout
    from tests.edge.folded_table import a_plan, epoch_row

    root, rounds = Path(sys.argv[1]), int(sys.argv[2])
    layout = TableLayout(Program(a_plan()))
    refused = 0
    while True:
        table = EpochTable.open(root, layout)
        newest = table.newest()
        try:
            while newest.epoch < rounds:
                row = epoch_row(newest.epoch + 1)
                table.commit_epoch(row, ())
                print("committed", row.epoch, row.uuid)
                newest = row
            break
        except Fenced:
            refused += 1
    print("refused", refused)
"""


def test_two_racing_processes_lose_no_commit(made: FoldedTable) -> None:
    rounds = 150
    racers = [
        subprocess.Popen(
            child(RACER, made.root, rounds), cwd=CHECKOUT, text=True, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    said = [racer.communicate(timeout=120)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    committed = [
        (int(words[1]), words[2])
        for text in said
        for words in map(str.split, text.splitlines())
        if words[0] == "committed"
    ]
    refused = sum(int(text.split()[-1]) for text in said)
    rows = epoch_rows(made.root, opened(made.root))
    assert [(row.epoch, row.uuid) for row in rows[2:]] == sorted(committed)
    assert len(committed) == rounds - 1
    assert refused > 0, "they never met; nothing has been tested"


# --- failing disks ----------------------------------------------------------------------------


FULL_DISK = """
    import resource, sys
    from pathlib import Path
    from jobs.core.program import Program
    from jobs.edge.delta_epochs import CommitFailed, EpochTable
    from jobs.edge.epoch_files import TableLayout
    from tests.edge.folded_table import a_plan, epoch_row

    root, bytes_max = Path(sys.argv[1]), int(sys.argv[2])
    table = EpochTable.open(root, TableLayout(Program(a_plan())))
    big = {str(number): number for number in range(20_000)}
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, resource.RLIM_INFINITY))
    try:
        if sys.argv[3] == "row":
            table.commit_epoch(epoch_row(2, counters=big), ())
        else:
            table.commit([], table.live_files() * 9, uuid="u", what="compaction")
    except CommitFailed as error:
        print("failed", error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    table.commit_epoch(epoch_row(2), ())
"""


@pytest.mark.parametrize(("bytes_max", "what"), [(8_000, "row"), (600, "log")])
def test_a_write_that_fails_fails_the_commit_and_the_next_try_goes_on(
    made: FoldedTable, bytes_max: int, what: str
) -> None:
    before = entries(made.root)
    done = in_child(FULL_DISK, made.root, bytes_max, what)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("failed "), done.stdout
    assert len(entries(made.root)) == len(before) + 1, "only the second try is in the log"
    assert [row.epoch for row in epoch_rows(made.root, opened(made.root))] == [0, 1, 2]


def test_files_that_were_never_committed_are_invisible(made: FoldedTable) -> None:
    before = opened(made.root).to_pyarrow_table().num_rows
    upserts = made.layout.accumulators_table(2, [0], [(("x",), None)])
    left = write_file(made.root, file_name(ACCUMULATORS, 2, "gone", "f0"), upserts)
    found = opened(made.root)
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


# --- where the table stands -------------------------------------------------------------------


def test_newest_comes_from_the_row_and_outlives_compaction_checkpoint_and_log_cleanup(
    made: FoldedTable,
) -> None:
    for value in range(40):
        made.epoch(insert("a", value))
    rows = tuple(file for file in made.table.live_files() if file.part == EPOCHS)
    made.merge(Merge(EPOCHS, 1, rows))
    handle = opened(made.root)
    handle.create_checkpoint()
    long_ago = time.time() - 7_300
    for path in (made.root / "_delta_log").iterdir():
        os.utime(path, (long_ago, long_ago))
    handle.cleanup_metadata()
    fresh = EpochTable.open(made.root, made.layout)
    told = json.dumps(fresh.handle.history())
    assert "epoch 41" not in told, "the log has forgotten it, so this is no proof"
    assert fresh.newest() == made.newest
    assert fresh.handle.transaction_version(APPLICATION) == 41
    assert [row.epoch for row in epoch_rows(made.root, fresh.handle)] == list(range(42))
    assert [row.epoch for row in epoch_rows(made.root, fresh.handle, since=39)] == [40, 41]
    fresh.commit_epoch(epoch_row(42), ())
    start = start_row(made.root, fresh.handle)
    assert start is not None and start.kind == "start"


def test_file_statistics_outlive_a_checkpoint(made: FoldedTable) -> None:
    before = made.table.live_files()
    assert {file.part for file in before} >= {EPOCHS, ACCUMULATORS}
    opened(made.root).create_checkpoint()
    assert live_files(opened(made.root)) == before
    for file in before:
        assert file.rows > 0
        assert file.size == (made.root / file.path).stat().st_size


def test_files_that_left_the_table_are_known_for_a_while_to_a_new_writer_too(
    made: FoldedTable,
) -> None:
    files = tuple(file for file in made.table.live_files() if file.part == EPOCHS)
    assert made.table.lately_removed(0) == set()
    began = time.time_ns() // 1_000_000
    made.merge(Merge(EPOCHS, 1, files))
    gone = {file.path for file in files}
    assert made.table.lately_removed(began) == gone
    assert rival_of(made.table).lately_removed(began) == gone
    assert rival_of(made.table).lately_removed(began + 3_600_000) == set()


# --- a log that is trimmed --------------------------------------------------------------------


def trimmed(made: FoldedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve epochs on, and of the log no more than three commits before its checkpoint."""
    monkeypatch.setattr(delta_epochs, "LOG_ENTRIES_MAX", 3)
    for value in range(12):
        made.epoch(insert("c", value))
    write_checkpoint(made.root, made.table.version)


def test_a_log_is_trimmed_to_what_is_near_its_checkpoint(
    made: FoldedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = entries(made.root)[0]
    before = made.table.live_files()
    trimmed(made, monkeypatch)
    version = made.table.version
    assert entries(made.root) == [f"{at:020d}.json" for at in range(version - 3, version + 1)]
    assert first not in entries(made.root)
    fresh = EpochTable.open(made.root, made.layout)
    assert fresh.newest() == made.newest
    assert set(fresh.live_files()) >= set(before)
    row = made.epoch(insert("d", 5))
    assert rival_of(made.table).newest() == row


def test_files_that_left_the_table_are_known_when_their_log_entry_is_trimmed(
    made: FoldedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tuple(file for file in made.table.live_files() if file.part == EPOCHS)
    began = time.time_ns() // 1_000_000
    made.merge(Merge(EPOCHS, 1, files))
    trimmed(made, monkeypatch)
    gone = {file.path for file in files}
    assert "remove" not in "".join(
        path.read_text() for path in (made.root / "_delta_log").glob("*.json")
    )
    assert rival_of(made.table).lately_removed(began) == gone
    assert rival_of(made.table).lately_removed(began + 3_600_000) == set()


def test_a_writer_that_stood_still_until_the_next_entry_was_trimmed_is_fenced(
    made: FoldedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep = rival_of(made.table)
    following = log_entry(made.root, asleep.version + 1)
    row = epoch_row(made.newest.epoch + 1)
    trimmed(made, monkeypatch)
    assert not following.exists(), "so that its name is free"
    before = entries(made.root)
    with pytest.raises(Fenced):
        asleep.commit_epoch(row, ())
    assert entries(made.root) == before


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["empty", "half", "garbage"])
@pytest.mark.parametrize("back", [0, 2])
def test_a_damaged_log_entry_is_named_and_no_epoch_is_lost_in_silence(
    made: FoldedTable, damage: str, back: int
) -> None:
    for value in range(3):
        made.epoch(insert("a", value))
    path = made.root / "_delta_log" / f"{made.table.version - back:020d}.json"
    whole = path.read_bytes()
    cut = {"empty": b"", "half": whole[: len(whole) // 2], "garbage": b"\xff\x00" + whole}
    path.write_bytes(cut[damage])
    with pytest.raises(TableDamaged, match=path.name):
        EpochTable.open(made.root, made.layout)


def test_a_missing_log_entry_is_named(made: FoldedTable) -> None:
    for value in range(3):
        made.epoch(insert("a", value))
    path = log_entry(made.root, made.table.version - 1)
    path.unlink()
    with pytest.raises(TableDamaged, match=path.name):
        EpochTable.open(made.root, made.layout)


@pytest.mark.parametrize("content", ["", "{", '{"version":-1}', "[]"])
def test_a_damaged_hint_at_the_checkpoint_costs_nothing(made: FoldedTable, content: str) -> None:
    opened(made.root).create_checkpoint()
    made.epoch(insert("a", 5))
    (made.root / "_delta_log" / "_last_checkpoint").write_text(content)
    try:
        found = EpochTable.open(made.root, made.layout)
    except Exception as error:
        assert "_last_checkpoint" in str(error)
    else:
        assert found.newest() == made.newest


@pytest.mark.parametrize("damage", ["gone", "empty", "half"])
def test_a_damaged_checkpoint_is_told_as_such(made: FoldedTable, damage: str) -> None:
    made.epoch(insert("a", 4))
    opened(made.root).create_checkpoint()
    made.epoch(insert("a", 5))
    (path,) = (made.root / "_delta_log").glob("*.checkpoint.parquet")
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[: len(whole) // 2] if damage == "half" else b"")
    with pytest.raises(TableDamaged, match=r"checkpoint in .*_delta_log is damaged"):
        EpochTable.open(made.root, made.layout)


@pytest.mark.parametrize("part", [EPOCHS, ACCUMULATORS])
def test_a_file_that_the_table_has_lost_is_named(made: FoldedTable, part: str) -> None:
    """To who opens the table, and to a task that builds its state anew."""
    made.epoch(insert("a", 4))
    mine = [file for file in made.table.live_files() if file.part == part]
    lost = max(mine, key=lambda file: file.epoch_max).path
    (made.root / lost).unlink()
    with pytest.raises(TableDamaged, match=f"{Path(lost).name} is gone; restore"):
        if part == EPOCHS:
            EpochTable.open(made.root, made.layout).newest()
        else:
            StateFiles(made.root, made.layout, [part]).of_bucket(0, [(part, lost)])


def test_a_damaged_epoch_file_is_named(made: FoldedTable) -> None:
    newest = max(
        (file for file in made.table.live_files() if file.part == EPOCHS),
        key=lambda file: file.epoch_max,
    )
    path = made.root / newest.path
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TableDamaged, match=path.name):
        EpochTable.open(made.root, made.layout).newest()


# --- the format -------------------------------------------------------------------------------


def test_the_format_version_is_stored_in_the_table(made: FoldedTable) -> None:
    configuration = DeltaTable(str(made.root)).metadata().configuration
    assert configuration["retally.formatVersion"] == str(FORMAT_VERSION)


def test_a_newer_format_is_refused_with_a_sentence(made: FoldedTable) -> None:
    handle = DeltaTable(str(made.root))
    newer = {delta_epochs._VERSION_PROPERTY: str(FORMAT_VERSION + 1)}
    handle.alter.set_table_properties(newer, raise_if_not_exists=False)
    with pytest.raises(FormatTooNew) as refused:
        opened(made.root)
    code, said = _explained(refused.value)
    assert code == 1
    assert f"format version {FORMAT_VERSION + 1}" in said and "install the newer" in said
    with pytest.raises(FormatTooNew):
        EpochTable.open(made.root, made.layout)


def test_a_format_from_before_the_first_release_is_refused_with_a_sentence(
    made: FoldedTable,
) -> None:
    handle = DeltaTable(str(made.root))
    older = {delta_epochs._VERSION_PROPERTY: "1"}
    handle.alter.set_table_properties(older, raise_if_not_exists=False)
    with pytest.raises(FormatTooOld, match="give the job a new name"):
        opened(made.root)


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
