"""The log of a table: where it says that the table stands, however it was shortened or damaged."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.cli.main import describe_error
from jobs.edge.state.bucket_states import StateFiles
from jobs.edge.table.compaction import Merge
from jobs.edge.table.delta_epochs import APPLICATION, EpochTable, Fenced, write_checkpoint
from jobs.reading.epoch_rows import epoch_rows, start_row
from jobs.reading.files import (
    VERSION_PROPERTY,
    FormatTooNew,
    FormatTooOld,
    live_files,
    log_entry,
    open_table,
)
from jobs.reading.parts import ACCUMULATORS, EPOCHS
from schemas import limits
from schemas.table.epoch import FORMAT_VERSION
from schemas.table.parquet_file import TableDamaged
from tests.support.epoch_rows import epoch_row
from tests.support.tables.folded_table import FoldedTable, entries, insert, rival_of

# --- where the table stands -------------------------------------------------------------------

CLOCK_STEP_MS = 60_000  # the clock of a machine may be set back meanwhile


def test_newest_comes_from_the_row_and_outlives_compaction_checkpoint_and_log_cleanup(
    made: FoldedTable,
) -> None:
    for value in range(40):
        made.epoch(insert("a", value))
    rows = tuple(file for file in made.table.live_files() if file.part == EPOCHS)
    made.merge(Merge(EPOCHS, 1, rows))
    handle = open_table(made.root)
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
    assert [row.epoch for row in epoch_rows(made.root, live_files(fresh.handle))] == list(range(42))
    assert [row.epoch for row in epoch_rows(made.root, live_files(fresh.handle), since=39)] == [
        40,
        41,
    ]
    fresh.commit_epoch(epoch_row(42), ())
    start = start_row(made.root, live_files(fresh.handle))
    assert start is not None and start.kind == "start"


def test_file_statistics_outlive_a_checkpoint(made: FoldedTable) -> None:
    before = made.table.live_files()
    assert {file.part for file in before} >= {EPOCHS, ACCUMULATORS}
    open_table(made.root).create_checkpoint()
    assert live_files(open_table(made.root)) == before
    for file in before:
        assert file.rows > 0
        assert file.size == (made.root / file.path).stat().st_size


def test_files_that_left_the_table_are_known_for_a_while_to_a_new_writer_too(
    made: FoldedTable,
) -> None:
    files = tuple(file for file in made.table.live_files() if file.part == EPOCHS)
    assert made.table.removed_since(0) == set()
    began = time.time_ns() // 1_000_000 - CLOCK_STEP_MS
    made.merge(Merge(EPOCHS, 1, files))
    gone = {file.path for file in files}
    assert made.table.removed_since(began) == gone
    assert rival_of(made.table).removed_since(began) == gone
    assert rival_of(made.table).removed_since(began + CLOCK_STEP_MS + 3_600_000) == set()


# --- a log that is trimmed --------------------------------------------------------------------


def trimmed(made: FoldedTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve epochs on, and of the log no more than three commits before its checkpoint."""
    monkeypatch.setattr(limits, "LOG_ENTRIES_MAX", 3)
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
    began = time.time_ns() // 1_000_000 - CLOCK_STEP_MS
    made.merge(Merge(EPOCHS, 1, files))
    trimmed(made, monkeypatch)
    gone = {file.path for file in files}
    assert "remove" not in "".join(
        path.read_text() for path in (made.root / "_delta_log").glob("*.json")
    )
    assert rival_of(made.table).removed_since(began) == gone
    assert rival_of(made.table).removed_since(began + CLOCK_STEP_MS + 3_600_000) == set()


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
    open_table(made.root).create_checkpoint()
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
    open_table(made.root).create_checkpoint()
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
    newer = {VERSION_PROPERTY: str(FORMAT_VERSION + 1)}
    handle.alter.set_table_properties(newer, raise_if_not_exists=False)
    with pytest.raises(FormatTooNew) as refused:
        open_table(made.root)
    code, said = describe_error(refused.value)
    assert code == 1
    assert f"format version {FORMAT_VERSION + 1}" in said and "install a newer" in said
    with pytest.raises(FormatTooNew):
        EpochTable.open(made.root, made.layout)


def test_a_format_from_before_the_first_release_is_refused_with_a_sentence(
    made: FoldedTable,
) -> None:
    handle = DeltaTable(str(made.root))
    older = {VERSION_PROPERTY: "1"}
    handle.alter.set_table_properties(older, raise_if_not_exists=False)
    with pytest.raises(FormatTooOld, match="give the job a new name"):
        open_table(made.root)
