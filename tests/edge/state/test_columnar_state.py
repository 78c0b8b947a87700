"""The state in arrays: it is at one committed epoch, or it says that it is not.

Processes here are real ones, killed with SIGKILL, and damage is done to real files.
"""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jobs.core.fold.columnar.bucket_fold import BucketFold, room_of
from jobs.core.fold.columnar.query import columnar_query
from jobs.core.fold.program import Program
from jobs.core.fold.state import Stamp
from jobs.core.kernels.apply_records import RecordArrays
from jobs.core.kernels.fold_rows import Rows
from jobs.core.kernels.group_table import CHECK, GROUPS, KEY_PAD, check_of
from jobs.edge.machine.memory import Memory
from jobs.edge.process import failpoints
from jobs.edge.state import columnar_state
from jobs.edge.state.catch_up import ZombieTask, catch_up
from jobs.edge.state.columnar_state import ColumnarState, open_columns
from jobs.edge.state.errors import BucketLocked, HotStateDamaged, StampMoved
from tests.support.forks import Fork, Say
from tests.support.sampling import quick
from tests.support.tables.folded_table import a_plan

PLAN = a_plan()  # SUM(v), MAX(v), COUNT(*) by name
QUERY = columnar_query(Program(PLAN))
NAMES = 300
ROWS_WORD, SUM_HIGH, SUM_LOW, COUNT, HAS, TOP = range(6)


def stamp(epoch: int, *, generation: int = 0) -> Stamp:
    return Stamp(epoch, f"a{epoch}", generation)


def keys_of(names: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys of different lengths, so that the heap has no rhythm."""
    texts = [f"group {number}".encode() + b"x" * (number % 17) for number in range(names)]
    data = np.frombuffer(b"".join(texts) + bytes(KEY_PAD), np.uint8).copy()
    return data, np.cumsum([0, *map(len, texts)])


def records_at(epoch: int, names: int = NAMES, lives: int | None = None) -> RecordArrays:
    """Each group with the one value `epoch`, in its multiset instead of the epoch before."""
    data, ends = keys_of(names)
    values = np.zeros((names, QUERY.values), np.int64)
    values[:, [ROWS_WORD, COUNT, HAS]] = 1
    values[:, [SUM_LOW, TOP]] = epoch
    entries = [
        (key, 0, value, times)
        for key in range(names)
        for value, times in ((epoch, 1), (epoch - 1, 0))
    ]
    if lives is not None:
        values[lives:] = 0
        entries = [(key, 0, value, times * (key < lives)) for key, _, value, times in entries]
    return RecordArrays(data, ends, values, np.array(entries, np.int64))


def opened(directory: Path, **options: float) -> ColumnarState:
    return ColumnarState(directory, QUERY, PLAN.fingerprint, **options)


def built(directory: Path, epoch: int = 1) -> ColumnarState:
    state = opened(directory)
    state.rebuild([(stamp(epoch), records_at(epoch))], since=state.read_stamp())
    return state


def test_a_step_that_cannot_be_loaded_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    state = built(tmp_path)

    def steps() -> Iterator[tuple[Stamp, RecordArrays | None]]:
        raise OSError("the storage does not answer")
        yield

    with pytest.raises(OSError, match="does not answer"):
        state.advance(steps(), since=stamp(1))
    assert epoch_of(state) == 1


def test_a_disk_that_is_full_gets_its_room_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = built(tmp_path)

    def refuse(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(OSError, match="No space left"):
            state.advance([(stamp(2), records_at(2, 50 * NAMES))], since=stamp(1))
    assert not (tmp_path / "columns.new").exists()
    assert epoch_of(state) == 1
    state.advance([(stamp(2), records_at(2))], since=stamp(1))
    assert epoch_of(state) == 2


def test_a_row_of_zeros_is_damage_at_every_number() -> None:
    rows = np.zeros((3, 8), np.int64)
    assert all(check_of(rows, number, CHECK) != 0 for number in range(3))


def epoch_of(state: ColumnarState) -> int:
    """The epoch of the state, after every group and entry was found to be of that epoch."""
    found = state.read_stamp()
    assert found is not None
    data, ends = keys_of(NAMES)
    nothing = np.zeros((1, NAMES), np.int64)
    # Taking the value away leaves each group without rows: the fold shows all that it had.
    rows = Rows(
        data, ends, nothing + found.epoch, np.ones((1, NAMES), np.uint8), np.full(NAMES, -1)
    )
    fold = BucketFold(QUERY, lambda rows: np.arange(len(rows)))
    with state.view(found) as table:
        touched = fold.touch(table, rows, np.arange(NAMES))
        folded = fold.fold(table, rows, np.arange(NAMES))
    assert touched >= 2 * NAMES  # each group and its entry
    assert len(folded.rows) == NAMES
    assert folded.old[:, [ROWS_WORD, COUNT, HAS]].all()
    assert (folded.old[:, [SUM_LOW, TOP]] == found.epoch).all()
    assert not folded.new.any()
    assert folded.entries[:, 2].tolist() == [found.epoch] * NAMES
    assert not folded.entries[:, 3].any()
    return found.epoch


def test_what_was_applied_is_there_for_the_next_process(tmp_path: Path) -> None:
    state = built(tmp_path)
    state.advance([(stamp(2), records_at(2)), (stamp(3), None)], since=stamp(1))
    assert state.read_stamp() == stamp(3)
    state.advance([(stamp(4), records_at(4))], since=stamp(3))
    assert opened(tmp_path).read_stamp() == stamp(4)


def test_a_state_of_another_query_or_boot_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert epoch_of(built(tmp_path)) == 1
    assert ColumnarState(tmp_path, QUERY, "another plan").read_stamp() is None
    boot = tmp_path / "boot"
    boot.write_text("another boot")
    monkeypatch.setattr(columnar_state, "BOOT_ID", boot)
    assert opened(tmp_path).read_stamp() is None


def test_steps_do_not_apply_to_a_state_that_has_moved(tmp_path: Path) -> None:
    state = built(tmp_path)
    with pytest.raises(StampMoved, match="epoch=1"):
        state.advance([(stamp(3), records_at(3))], since=stamp(2))
    with pytest.raises(StampMoved), state.view(stamp(2)):
        pass
    assert epoch_of(state) == 1


def test_a_process_sees_what_another_one_applied_or_built(tmp_path: Path) -> None:
    state = built(tmp_path)
    other = opened(tmp_path)
    assert other.read_stamp() == stamp(1)
    other.advance([(stamp(2), records_at(2))], since=stamp(1))
    assert epoch_of(state) == 2
    other.rebuild([(stamp(5), records_at(5))], since=stamp(2))
    assert epoch_of(state) == 5
    other.reset()
    assert state.read_stamp() is None


def test_catching_up_uses_the_epochs_since_and_never_goes_back(tmp_path: Path) -> None:
    state = opened(tmp_path)
    asked: list[Stamp | None] = []

    def load(since: Stamp | None) -> list[tuple[Stamp, RecordArrays | None]]:
        asked.append(since)
        first = 4 if since is None else since.epoch + 1
        return [(stamp(epoch), records_at(epoch)) for epoch in range(first, 5)]

    line = [stamp(epoch) for epoch in range(1, 5)]
    for base in (4, 4):
        catch_up(state, stamp(base), line, load)
        assert epoch_of(state) == 4
    assert asked == [None]
    with pytest.raises(ZombieTask):
        catch_up(state, stamp(3), line, load)


def test_a_full_file_is_copied_without_what_has_ended(tmp_path: Path) -> None:
    state = built(tmp_path)
    size = (tmp_path / "columns").stat().st_size
    for epoch in range(2, 8):  # each of them adds an entry a group, and ends another one
        state.advance([(stamp(epoch), records_at(epoch))], since=stamp(epoch - 1))
    assert epoch_of(state) == 7
    assert (tmp_path / "columns").stat().st_size <= 2 * size
    state.advance([(stamp(8), records_at(8, 9_000))], since=stamp(7))
    large = (tmp_path / "columns").stat().st_size
    state.advance([(stamp(9), records_at(9, 9_000, lives=NAMES))], since=stamp(8))
    for epoch in range(10, 140):
        state.advance([(stamp(epoch), records_at(epoch))], since=stamp(epoch - 1))
    assert epoch_of(state) == 139
    assert (tmp_path / "columns").stat().st_size < large / 2
    with state.view(stamp(139)) as table:
        assert table.counts[GROUPS] <= room_of(table).groups


def test_a_directory_that_is_deleted_is_made_again(tmp_path: Path) -> None:
    directory = tmp_path / "bucket"
    state = open_columns(directory, QUERY, PLAN.fingerprint)
    state.rebuild([(stamp(1), records_at(1))], since=None)
    shutil.rmtree(directory)
    again = open_columns(directory, QUERY, PLAN.fingerprint)
    assert again.read_stamp() is None
    again.rebuild([(stamp(2), records_at(2))], since=None)
    assert epoch_of(again) == 2


# The changes of an epoch that may be committed


def test_changes_are_recalled_by_their_stamp_only(tmp_path: Path) -> None:
    state = built(tmp_path)
    state.remember(2, "a2", records_at(2))
    assert state.recall(stamp(3)) is None
    found = state.recall(stamp(2))
    assert found is not None
    for one, other in zip(found, records_at(2), strict=True):
        assert (one == other).all()
    state.remember(3, "a3", records_at(3))
    assert state.recall(stamp(2)) is None, "one epoch's changes are enough"


def test_changes_that_are_cut_off_or_damaged_are_none(tmp_path: Path) -> None:
    state = built(tmp_path)
    state.remember(2, "a2", records_at(2, 5))
    redo = state.directory / "redo"
    data = redo.read_bytes()
    chance = random.Random(7)
    assert state.recall(stamp(2)) is not None
    for size in (0, 8, 55, 56, len(data) - 1):
        redo.write_bytes(data[:size])
        assert state.recall(stamp(2)) is None
    for _ in range(200):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        redo.write_bytes(damaged)
        assert state.recall(stamp(2)) is None


def test_fewer_changes_than_those_of_the_epoch_before_are_recalled(tmp_path: Path) -> None:
    state = built(tmp_path)
    state.remember(2, "a2", records_at(2, 50))
    state.remember(3, "a3", records_at(3, 1))
    found = state.recall(stamp(3))
    assert found is not None
    for one, other in zip(found, records_at(3, 1), strict=True):
        assert (one == other).all()


# Damage


@pytest.mark.parametrize("seed", quick(range(3), [0]))
def test_a_flipped_bit_is_noticed_or_changes_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    state = built(tmp_path / "sound")
    state.advance([(stamp(2), records_at(2))], since=stamp(1))
    sound = (tmp_path / "sound" / "columns").read_bytes()
    noticed = 0
    for number in range(300):
        damaged = bytearray(sound)
        damaged[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "columns").write_bytes(damaged)
        damaged_state = opened(directory)
        try:
            if damaged_state.read_stamp() is None:
                noticed += 1
            else:
                assert epoch_of(damaged_state) == 2
        except HotStateDamaged as error:
            assert "the next task rebuilds it" in str(error)
            assert damaged_state.read_stamp() is None
            noticed += 1
        shutil.rmtree(directory)
    assert noticed > 50


@pytest.mark.parametrize("damage", ["empty", "half", "zeros", "text"])
def test_a_damaged_file_is_built_again(tmp_path: Path, damage: str) -> None:
    state = built(tmp_path)
    path = tmp_path / "columns"
    size = path.stat().st_size
    fresh = tmp_path / "fresh"
    fresh.write_bytes(
        {
            "empty": b"",
            "half": path.read_bytes()[: size // 2],
            "zeros": bytes(size),
            "text": b"not a state" * 1_000,
        }[damage]
    )
    fresh.rename(path)
    assert state.read_stamp() is None
    catch_up(state, stamp(2), [stamp(1)], lambda _: [(stamp(2), records_at(2))])
    assert epoch_of(state) == 2


# Death and company


def advance_for_ever(say: Say, directory: Path) -> None:
    state = opened(directory)
    at = state.read_stamp()
    while at is not None:
        after = stamp(at.epoch + 1)
        state.advance([(after, records_at(after.epoch))], since=at)
        at = after
        say(at.epoch)


def test_killed_at_any_time_it_is_at_one_epoch_or_at_none(tmp_path: Path) -> None:
    chance = random.Random(11)
    state = built(tmp_path)
    for _ in range(3):
        process = Fork(advance_for_ever, tmp_path)
        finished = [process.read() for _ in range(3)][-1]
        time.sleep(chance.uniform(0, 0.01))
        assert process.kill() == -signal.SIGKILL, "it must not have ended by itself"
        if state.read_stamp() is None:
            built(tmp_path, finished)
        assert epoch_of(state) >= finished


def die_at(_: Say, directory: Path, place: str) -> None:
    failpoints._POINTS[place] = ("kill", 0)
    opened(directory).advance([(stamp(2), records_at(2))], since=stamp(1))


@pytest.mark.parametrize("place", ["hot_state_half_built", "hot_state_written"])
def test_killed_within_an_epoch_it_is_at_none(tmp_path: Path, place: str) -> None:
    state = built(tmp_path)
    assert Fork(die_at, tmp_path, place).wait() == -signal.SIGKILL
    assert state.read_stamp() is None
    catch_up(state, stamp(2), [stamp(1)], lambda _: [(stamp(2), records_at(2))])
    assert epoch_of(state) == 2


def read_for_long(say: Say, directory: Path) -> None:
    with opened(directory).view(stamp(1)):
        say("reading")
        time.sleep(60)


def test_a_fold_waits_for_a_change_and_not_for_ever(tmp_path: Path) -> None:
    built(tmp_path)
    state = opened(tmp_path, lock_seconds=0.2)
    holder = Fork(read_for_long, tmp_path)
    assert holder.read() == "reading"
    with pytest.raises(BucketLocked, match=r"more than 0\.2 s"):
        state.advance([(stamp(2), records_at(2))], since=stamp(1))
    holder.kill()
    state.advance([(stamp(2), records_at(2))], since=stamp(1))
    assert epoch_of(state) == 2


def catch_up_to_29(say: Say, directory: Path) -> None:
    def load(since: Stamp | None) -> list[tuple[Stamp, RecordArrays | None]]:
        first = 1 if since is None else since.epoch + 1
        return [(stamp(epoch), records_at(epoch)) for epoch in range(first, 30)]

    state = opened(directory)
    catch_up(state, stamp(29), [stamp(epoch) for epoch in range(1, 30)], load)
    say(epoch_of(state))


def test_processes_that_catch_up_at_once_arrive_at_one_state(tmp_path: Path) -> None:
    processes = [Fork(catch_up_to_29, tmp_path) for _ in range(2)]
    assert [process.read() for process in processes] == [29, 29]


def read_of_single_pages(path: Path) -> list[bool]:
    """Return of each mapping of the file whether the kernel reads nothing around a page."""
    found = re.findall(
        rf"{re.escape(str(path))}\n(?:.*\n)*?VmFlags: (.*)\n", Path("/proc/self/smaps").read_text()
    )
    return ["rr" in flags.split() for flags in found]


@pytest.mark.parametrize(("available", "expected"), [(0, True), (1 << 40, False)])
def test_single_pages_are_read_only_where_the_states_do_not_fit_into_memory(
    available: int, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar_state, "read_memory", lambda: Memory(available, None))
    directory = tmp_path / "bucket-0001"
    state = built(directory)
    assert read_of_single_pages(directory / "columns") == [expected]
    state.advance([(stamp(2), records_at(2, names=20 * NAMES))], since=stamp(1))  # it grows
    assert epoch_of(opened(directory)) == 2
    assert set(read_of_single_pages(directory / "columns")) == {expected}
