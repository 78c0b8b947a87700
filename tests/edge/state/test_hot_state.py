"""The hot state: answers as core's State does, and survives what may happen to a cache.

Processes here are real ones, killed with SIGKILL; damage is done to real files, and looked at in
a process of its own, because a file that LMDB should not have open_shared kills its process.
"""

from __future__ import annotations

import fcntl
import os
import random
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import lmdb
import pytest
from hypothesis import given

from jobs.core.fold.state import Clock, Group, GroupTimer, Key, Stamp, Upserts, gather_multisets
from jobs.core.values.change import Value
from jobs.edge.state import hot_state
from jobs.edge.state.catch_up import ZombieTask, catch_up
from jobs.edge.state.errors import BucketLocked, HotStateDamaged, HotStateError, StampMoved
from jobs.edge.state.hot_records import LAYOUT_VERSION, Layout
from jobs.edge.state.hot_state import HotState, Steps, open_shared
from schemas import limits
from schemas.limits import TIMER_NAMESPACE_BYTES_MAX
from schemas.types.sql_types import BIGINT, INT, STRING
from tests.support.examples import examples
from tests.support.forks import Fork, Say
from tests.support.histories.states import (
    ARGUMENT_TYPES,
    History,
    NaiveState,
    histories,
    require_equal,
)
from tests.support.sampling import quick

LAYOUT = Layout("plan", (STRING,), (BIGINT,))
SMALL_MAP = 64 * 1024
GROUPS = 500


def stamp(epoch: int, *, line: str = "a", generation: int = 0) -> Stamp:
    return Stamp(epoch, f"{line}{epoch}", generation)


def epoch_upserts(epoch: int) -> Upserts:
    """Every group at this epoch, and in its multiset this epoch's value instead of the last's."""
    keys = [(f"group {number}",) for number in range(GROUPS)]
    entries = [(0, key, epoch, 1) for key in keys]
    entries += [(0, key, epoch - 1, 0) for key in keys]
    return Upserts([(key, Group((epoch,), ())) for key in keys], gather_multisets(entries))


def step(epoch: int) -> tuple[Stamp, Upserts]:
    return stamp(epoch), epoch_upserts(epoch)


def built(directory: Path, epoch: int = 1) -> HotState:
    state = HotState(directory, LAYOUT)
    state.advance([step(epoch)], since=None)
    return state


def require_whole(state: HotState) -> int:
    """The epoch of the state, after every group and entry has been found to be of that epoch."""
    with state.view() as view:
        assert view.stamp is not None
        epoch = view.stamp.epoch
        upserts = epoch_upserts(epoch)
        keys = [key for key, _ in upserts.groups]
        assert view.groups(keys) == [group for _, group in upserts.groups]
        for key in keys:
            assert view.entries(0, key) == [(epoch, 1)]
    return epoch


@pytest.fixture
def state(tmp_path: Path) -> Iterator[HotState]:
    state = built(tmp_path / "bucket")
    yield state
    state.close()


# What every State does


@examples(25)
@given(histories())
def test_hot_state_answers_as_the_naive_state(history: History) -> None:
    layout = Layout("plan", history.group_types, ARGUMENT_TYPES)
    with tempfile.TemporaryDirectory() as directory:
        state, naive = HotState(Path(directory), layout, map_bytes=SMALL_MAP), NaiveState()
        since = None
        for number, upserts in enumerate(history.epochs):
            state.advance([(stamp(number), upserts)], since=since)
            since = stamp(number)
            naive.apply(upserts)
            with state.view(since) as view:
                require_equal(view, naive, history)
        state.close()


@examples(10)
@given(histories())
def test_epochs_applied_together_leave_what_they_leave_one_by_one(history: History) -> None:
    layout = Layout("plan", history.group_types, ARGUMENT_TYPES)
    with tempfile.TemporaryDirectory() as directory:
        state, naive = HotState(Path(directory), layout), NaiveState()
        state.advance([(stamp(0), Upserts())], since=None)
        steps = [(stamp(number), upserts) for number, upserts in enumerate(history.epochs, 1)]
        state.advance(steps, since=stamp(0))
        for upserts in history.epochs:
            naive.apply(upserts)
        with state.view(steps[-1][0]) as view:
            require_equal(view, naive, history)
        state.close()


def test_strings_that_begin_alike_for_400_bytes_have_an_exact_extreme(tmp_path: Path) -> None:
    """Far more of them than one page holds, so that hash order and value order surely differ."""
    state = HotState(tmp_path, Layout("plan", (STRING,), (STRING,)))
    values: list[Value] = ["é" * 300 + f"{number:03}" for number in range(200)]
    shuffled = random.Random(7).sample(values, len(values))
    key = ("k" * 1000,)
    state.advance([(stamp(1), Upserts([], [(0, key, dict.fromkeys(shuffled, 1))]))], since=None)
    with state.view() as view:
        assert view.present(0, key, {}).first(descending=True) == values[-1]
        gone: dict[Value, int] = {values[-1]: 0, values[-2]: -1}
        assert view.present(0, key, gone).first(descending=True) == values[-3]
        assert view.present(0, key, {values[0]: 0}).first() == values[1]
        assert [value for value, _ in view.entries(0, key)] == values
    state.close()


def test_groups_that_begin_alike_keep_their_entries_apart(tmp_path: Path) -> None:
    state = HotState(tmp_path, Layout("plan", (STRING,), (INT,)))
    keys = [("",), ("\0",), ("\0\0",), ("a",), ("k" * 600,), ("k" * 600 + "l",)]
    entries: list[tuple[int, tuple[Value, ...], Value, int]]
    entries = [(0, key, number, 1) for number, key in enumerate(keys)]
    state.advance([(stamp(1), Upserts([], gather_multisets(entries)))], since=None)
    with state.view() as view:
        assert [view.entries(0, key) for key in keys] == [[(n, 1)] for n in range(len(keys))]
    state.close()


def test_a_timer_of_a_long_group_is_kept_and_a_namespace_is_bounded(tmp_path: Path) -> None:
    state = HotState(tmp_path / "bucket", LAYOUT)
    longest = GroupTimer(Clock.EVENT, 7, "n" * TIMER_NAMESPACE_BYTES_MAX, ("x" * 5_000,))
    state.advance([(stamp(0), Upserts(timers=[(longest, True)]))], since=None)
    with state.view() as view:
        assert view.due(Clock.EVENT, 7) == [longest]
        assert view.due(Clock.PROCESSING, 7) == []
    longer = longest._replace(namespace=longest.namespace + "n")
    with pytest.raises(ValueError, match="too long"):
        state.advance([(stamp(1), Upserts(timers=[(longer, True)]))], since=stamp(0))
    state.close()


def advance(_: Say, directory: Path, epoch: int, since: Stamp | None) -> None:
    HotState(directory, LAYOUT).advance([step(epoch)], since=since)


def test_a_snapshot_does_not_see_what_another_process_commits(state: HotState) -> None:
    with state.view() as view:
        assert Fork(advance, state.directory, 2, stamp(1)).wait() == 0
        assert view.groups([("group 0",)]) == [Group((1,), ())]
    assert require_whole(state) == 2


# Keeping, and starting empty


def test_what_was_applied_is_there_after_reopening(tmp_path: Path) -> None:
    built(tmp_path, epoch=3).close()
    state = HotState(tmp_path, LAYOUT)
    assert state.read_stamp() == stamp(3)
    assert require_whole(state) == 3
    state.close()


@pytest.mark.parametrize(
    ("layout", "key"),
    [
        (Layout("other plan", (STRING,), (BIGINT,)), ("group 0",)),
        (Layout("plan", (INT,), (BIGINT,)), (1,)),
        (Layout("plan", (STRING,), (INT,)), ("group 0",)),
        (Layout("plan", (STRING, BIGINT), ()), ("group 0", 1)),
        (Layout("plan", (STRING,), (BIGINT,), version=LAYOUT_VERSION + 1), ("group 0",)),
    ],
    ids=["plan", "group types", "argument types", "moved type", "version"],
)
def test_another_layout_starts_empty(tmp_path: Path, layout: Layout, key: Key) -> None:
    built(tmp_path).close()
    state = HotState(tmp_path, layout)
    assert state.read_stamp() is None
    with state.view() as view:
        assert view.groups([key]) == [None]
    state.close()


def test_after_a_reboot_the_state_starts_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path / "bucket").close()
    other_boot = tmp_path / "boot_id"
    other_boot.write_text("8e1f0a52-0000-4000-8000-000000000000\n")
    monkeypatch.setattr(hot_state, "BOOT_ID", other_boot)
    state = HotState(tmp_path / "bucket", LAYOUT)
    assert state.read_stamp() is None
    state.close()


def bytes_used(state: HotState) -> int:
    return (state.directory / "data.mdb").stat().st_blocks * 512


def test_reset_leaves_nothing(state: HotState) -> None:
    used = bytes_used(state)
    state.reset()
    assert state.read_stamp() is None
    assert bytes_used(state) < used
    with state.view() as view:
        assert view.groups([("group 0",)]) == [None]
        assert view.multisets(0, [(("group 0",), {1: 1})]) == [{}]


def test_only_the_owner_may_look_into_the_directory(state: HotState) -> None:
    assert state.directory.stat().st_mode & 0o777 == 0o700
    assert (state.directory / "data.mdb").stat().st_mode & 0o777 == 0o600


def test_the_map_grows_when_it_is_full(tmp_path: Path) -> None:
    state = HotState(tmp_path, LAYOUT, map_bytes=SMALL_MAP)
    for epoch in range(1, 5):
        state.advance([step(epoch)], since=None if epoch == 1 else stamp(epoch - 1))
    assert bytes_used(state) > SMALL_MAP
    assert require_whole(state) == 4
    state.close()


def test_a_map_that_another_process_enlarged_is_taken_over(tmp_path: Path) -> None:
    state = HotState(tmp_path, LAYOUT, map_bytes=SMALL_MAP)
    assert Fork(advance, tmp_path, 1, None).wait() == 0
    assert (tmp_path / "data.mdb").stat().st_size > SMALL_MAP
    assert require_whole(state) == 1
    state.advance([step(2)], since=stamp(1))
    assert require_whole(state) == 2
    state.close()


# One writer, many processes


def test_steps_do_not_apply_to_a_state_that_has_moved(state: HotState) -> None:
    state.advance([step(2)], since=stamp(1))
    with pytest.raises(StampMoved, match="epoch=2"):
        state.advance([step(2), step(3)], since=stamp(1))
    with pytest.raises(StampMoved):
        state.rebuild([step(9)], since=stamp(1))
    assert require_whole(state) == 2


def test_a_view_of_another_base_is_refused(state: HotState) -> None:
    with pytest.raises(StampMoved), state.view(stamp(2)):
        pass


def hold_lock(say: Say, directory: Path) -> None:
    lock = os.open(directory / "bucket.lock", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    say("locked")
    time.sleep(60)


def test_a_bucket_locked_for_too_long_is_an_error_and_free_after_the_holder_dies(
    tmp_path: Path,
) -> None:
    built(tmp_path).close()
    state = HotState(tmp_path, LAYOUT, lock_seconds=0.2)
    holder = Fork(hold_lock, tmp_path)
    assert holder.read() == "locked"
    with pytest.raises(BucketLocked, match=r"more than 0\.2 s"):
        catch_up(state, stamp(2), [stamp(1)], lambda _: [step(2)])
    assert require_whole(state) == 1
    holder.kill()
    catch_up(state, stamp(2), [stamp(1)], lambda _: [step(2)])
    assert require_whole(state) == 2
    state.close()


def catch_up_again_and_again(_: Say, directory: Path) -> None:
    state = HotState(directory, LAYOUT)
    line = [stamp(epoch) for epoch in range(1, 21)]
    for base in line[1:]:

        def load(since: Stamp | None, last: int = base.epoch) -> Steps:
            return map(step, range(since.epoch + 1 if since else 1, last + 1))

        with suppress(ZombieTask):
            catch_up(state, base, line[: base.epoch - 1], load)
            require_whole(state)


def test_processes_that_catch_up_at_once_arrive_at_one_state(tmp_path: Path) -> None:
    children = [Fork(catch_up_again_and_again, tmp_path) for _ in range(2)]
    assert [child.wait() for child in children] == [0, 0]
    state = HotState(tmp_path, LAYOUT)
    assert require_whole(state) == 20
    state.close()


def exit_code_of(work: Callable[[], object]) -> int:
    """As Spark's workers are made, by a fork of a process that may have states open."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except HotStateError as error:
            os._exit(7 if "forked from" in str(error) else 1)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def advance_in_forks(say: Say, directory: Path) -> None:
    def work() -> None:
        state = open_shared(directory, LAYOUT)
        at = state.read_stamp()
        assert at is not None
        state.advance([step(at.epoch + 1)], since=at)
        require_whole(state)

    built(directory).close()
    say([exit_code_of(work), exit_code_of(work)])
    say(require_whole(open_shared(directory, LAYOUT)))


def test_forked_workers_open_their_own(tmp_path: Path) -> None:
    child = Fork(advance_in_forks, tmp_path)
    assert (child.read(), child.read()) == ([0, 0], 3)


def open_in_a_fork_what_is_open(say: Say, directory: Path) -> None:
    mine = open_shared(directory, LAYOUT)
    mine.advance([step(1)], since=None)
    say(exit_code_of(lambda: open_shared(directory, LAYOUT)))
    mine.advance([step(2)], since=stamp(1))
    say(require_whole(mine))


def test_a_bucket_that_the_parent_has_open_is_refused_after_a_fork(tmp_path: Path) -> None:
    child = Fork(open_in_a_fork_what_is_open, tmp_path)
    assert (child.read(), child.read()) == (7, 2)


def test_opened_keeps_one_state_until_its_layout_or_files_change(tmp_path: Path) -> None:
    state = open_shared(tmp_path, LAYOUT)
    state.advance([step(1)], since=None)
    assert open_shared(tmp_path, LAYOUT) is state
    for name in ("data.mdb", "lock.mdb"):
        (tmp_path / name).unlink()
    empty = open_shared(tmp_path, LAYOUT)
    assert empty is not state
    assert empty.read_stamp() is None
    other = open_shared(tmp_path, Layout("other", (), ()))
    assert other.layout.plan == "other"
    other.close()


def test_opened_closes_the_longest_unused_beyond_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HOT_STATES_OPEN_MAX", 2)
    first, second = open_shared(tmp_path / "1", LAYOUT), open_shared(tmp_path / "2", LAYOUT)
    open_shared(tmp_path / "1", LAYOUT)
    third = open_shared(tmp_path / "3", LAYOUT)
    assert first.in_place
    assert not second.in_place
    assert third.in_place
    first.close()
    third.close()


# Death


def advance_for_ever(say: Say, directory: Path) -> None:
    state = HotState(directory, LAYOUT)
    at = state.read_stamp()
    while at is not None:
        state.advance([step(at.epoch + 1)], since=at)
        at = stamp(at.epoch + 1)
        say(at.epoch)


def test_killed_while_it_advances_it_is_at_one_epoch(tmp_path: Path) -> None:
    built(tmp_path).close()
    delays = random.Random(11)
    for _ in range(3):
        child = Fork(advance_for_ever, tmp_path)
        finished = [child.read() for _ in range(3)][-1]
        time.sleep(delays.uniform(0, 0.01))
        assert child.kill() == -signal.SIGKILL, "it must not have ended by itself"
        state = HotState(tmp_path, LAYOUT)
        assert require_whole(state) >= finished
        state.close()


def die_between_chunks(_: Say, directory: Path, since: Stamp | None) -> None:
    """Advance in chunks of one epoch, and die when a fourth one is asked for."""
    limits.HOT_STATE_CHUNK_RECORDS = 1
    first = since.epoch + 1 if since else 1

    def steps() -> Iterator[tuple[Stamp, Upserts]]:
        yield from map(step, range(first, first + 3))
        os.kill(os.getpid(), signal.SIGKILL)

    HotState(directory, LAYOUT).advance(steps(), since=since)


def test_killed_between_epochs_it_is_at_the_end_of_one(tmp_path: Path) -> None:
    built(tmp_path).close()
    assert Fork(die_between_chunks, tmp_path, stamp(1)).wait() == -signal.SIGKILL
    state = HotState(tmp_path, LAYOUT)
    assert require_whole(state) == 3
    state.close()


def test_killed_while_it_is_built_it_has_no_stamp_and_is_built_again(tmp_path: Path) -> None:
    assert Fork(die_between_chunks, tmp_path, None).wait() == -signal.SIGKILL
    state = HotState(tmp_path, LAYOUT)
    assert state.read_stamp() is None
    with state.view() as view:
        assert view.groups([("group 0",)]) == [Group((2,), ())], "the test must leave a half"
    catch_up(state, stamp(1), [], lambda _: [step(1)])
    assert require_whole(state) == 1
    state.close()


def fill_the_disk(say: Say, directory: Path) -> None:
    state = HotState(directory, LAYOUT)
    size = (directory / "data.mdb").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    big = Upserts([((f"new {n}",), Group((n,), ("x" * 500,))) for n in range(2000)], [])
    try:
        state.advance([(stamp(2), big)], since=stamp(1))
    except HotStateError as error:
        say(str(error))
    say(require_whole(state))


def test_a_full_disk_keeps_the_state_before(state: HotState) -> None:
    child = Fork(fill_the_disk, state.directory)
    assert "the hot state is unchanged" in child.read()
    assert child.read() == require_whole(state) == 1


# Damage


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def garble(path: Path, start: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(random.Random(5).randbytes(size))


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x40
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda d: cut(d / "data.mdb", 0),
    "cut to a byte": lambda d: cut(d / "data.mdb", 1),
    "cut in the first page": lambda d: cut(d / "data.mdb", 1000),
    "cut after the meta pages": lambda d: cut(d / "data.mdb", 8192),
    "cut in half": lambda d: cut(d / "data.mdb", (d / "data.mdb").stat().st_size // 2),
    "cut by one byte": lambda d: cut(d / "data.mdb", (d / "data.mdb").stat().st_size - 1),
    "all garbage": lambda d: garble(d / "data.mdb", 0, (d / "data.mdb").stat().st_size),
    "garbage in the first page": lambda d: garble(d / "data.mdb", 0, 4096),
    "garbage in the second page": lambda d: garble(d / "data.mdb", 4096, 4096),
    "zeros": lambda d: (d / "data.mdb").write_bytes(bytes(100_000)),
    "a magic flipped": lambda d: flip(d / "data.mdb", 16),
    "a page size flipped": lambda d: flip(d / "data.mdb", 16 + 24 + 1),
    "no data": lambda d: (d / "data.mdb").unlink(),
    "lock garbage": lambda d: garble(d / "lock.mdb", 0, 8192),
    "lock cut": lambda d: cut(d / "lock.mdb", 10),
    "identity garbage": lambda d: garble(d / "identity", 0, 50),
    "identity empty": lambda d: cut(d / "identity", 0),
    "no identity": lambda d: (d / "identity").unlink(),
}
SOUND_AFTER_ALL = {"lock garbage", "lock cut"}
SOME_DAMAGES = [
    "cut in half",
    "all garbage",
    "zeros",
    "no data",
    "lock garbage",
    "identity garbage",
]


def find_and_catch_up(say: Say, directory: Path) -> None:
    state = HotState(directory, LAYOUT)
    say(state.read_stamp())
    catch_up(state, stamp(2), [stamp(1)], lambda _: [step(2)])
    require_whole(state)


@pytest.mark.parametrize("damage", quick(DAMAGES, SOME_DAMAGES))
def test_a_damaged_state_is_found_and_built_again(tmp_path: Path, damage: str) -> None:
    built(tmp_path).close()
    DAMAGES[damage](tmp_path)
    child = Fork(find_and_catch_up, tmp_path)
    assert child.read() == (stamp(1) if damage in SOUND_AFTER_ALL else None)
    assert child.wait() == 0
    state = HotState(tmp_path, LAYOUT)
    assert require_whole(state) == 2
    state.close()


def meet_zeros_in_a_view(say: Say, directory: Path) -> None:
    """Pages behind the roots become zeros, which opening does not see."""
    state = HotState(directory, LAYOUT)
    with (directory / "data.mdb").open("r+b") as file:
        for page in range(2, (directory / "data.mdb").stat().st_size // 4096):
            file.seek(page * 4096 + 10)
            if file.read(1) == b"\2":
                file.seek(page * 4096)
                file.write(bytes(4096))
    try:
        with state.view() as view:
            view.groups([(f"group {n}",) for n in range(GROUPS)])
    except HotStateDamaged as error:
        say(str(error))
    say(state.read_stamp())
    catch_up(state, stamp(2), [stamp(1)], lambda _: [step(2)])
    say(require_whole(state))


def test_damage_met_in_a_view_deletes_the_state_and_says_so(tmp_path: Path) -> None:
    built(tmp_path).close()
    child = Fork(meet_zeros_in_a_view, tmp_path)
    assert "the next task rebuilds it" in child.read()
    assert (child.read(), child.read()) == (None, 2)


# The decision table of catch_up, row by row


class Table:
    """The committed line 1, 2, 3, ... and what was asked of it."""

    def __init__(self, base: int) -> None:
        self.base = stamp(base)
        self.line = [stamp(epoch) for epoch in range(1, base)]
        self.asked: list[Stamp | None] = []

    def load(self, since: Stamp | None) -> Steps:
        self.asked.append(since)
        if since is None:
            return [(self.base, epoch_upserts(self.base.epoch))]
        return [step(epoch) for epoch in range(since.epoch + 1, self.base.epoch + 1)]

    def catch_up(self, state: HotState) -> None:
        catch_up(state, self.base, self.line, self.load)


def test_at_base_nothing_is_loaded(state: HotState) -> None:
    table = Table(1)
    table.catch_up(state)
    assert table.asked == []
    assert require_whole(state) == 1


def test_older_on_the_line_gets_what_is_missing(state: HotState) -> None:
    table = Table(4)
    table.catch_up(state)
    assert table.asked == [stamp(1)]
    assert state.read_stamp() == stamp(4)
    assert require_whole(state) == 4


def test_epochs_without_upserts_need_not_be_loaded(state: HotState) -> None:
    catch_up(state, stamp(3), [stamp(1), stamp(2)], lambda _: [])
    assert state.read_stamp() == stamp(3)
    with state.view() as view:
        assert view.groups([("group 0",)]) == [Group((1,), ())]


@pytest.mark.parametrize("newer", [stamp(3), stamp(3, line="b"), stamp(1, generation=1)])
def test_newer_than_base_is_a_zombie_and_writes_nothing(state: HotState, newer: Stamp) -> None:
    state.advance([(newer, Upserts())], since=stamp(1))
    table = Table(2)
    with pytest.raises(ZombieTask, match="a newer writer is at work"):
        table.catch_up(state)
    assert table.asked == []
    assert state.read_stamp() == newer


@pytest.mark.parametrize(
    "unknown", [stamp(2, line="b"), stamp(3, line="b"), Stamp(1, "a1", -1)], ids=str
)
def test_a_stamp_off_the_line_is_built_again(tmp_path: Path, unknown: Stamp) -> None:
    state = HotState(tmp_path, LAYOUT)
    stray = Upserts([(("stray",), Group((1,), ()))], [(0, ("stray",), {1: 1})])
    state.advance([(unknown, stray)], since=None)
    table = Table(3)
    table.catch_up(state)
    assert table.asked == [None]
    assert require_whole(state) == 3
    with state.view() as view:
        assert view.groups([("stray",)]) == [None]
        assert view.entries(0, ("stray",)) == []
    state.close()


def test_an_empty_state_is_built_from_the_table(tmp_path: Path) -> None:
    state = HotState(tmp_path, LAYOUT)
    table = Table(3)
    table.catch_up(state)
    assert table.asked == [None]
    assert require_whole(state) == 3
    state.close()


def test_a_table_without_state_is_an_empty_state_with_a_stamp(tmp_path: Path) -> None:
    state = HotState(tmp_path, LAYOUT)
    catch_up(state, stamp(0), [], lambda _: [])
    assert state.read_stamp() == stamp(0)
    state.close()


def test_who_is_overtaken_while_loading_looks_again(state: HotState) -> None:
    """Another process does the same work between the look and the write."""
    table = Table(3)

    def load(since: Stamp | None) -> Steps:
        steps = table.load(since)
        if len(table.asked) == 1:
            state.advance([step(2)], since=stamp(1))
        return steps

    catch_up(state, table.base, table.line, load)
    assert table.asked == [stamp(1), stamp(2)]
    assert require_whole(state) == 3


def test_a_state_that_never_holds_still_is_an_error(state: HotState) -> None:
    moved = iter(range(2, 50))

    def load(since: Stamp | None) -> Steps:
        state.advance([step(next(moved))], since=since)
        return []

    line = [stamp(epoch) for epoch in range(1, 60)]
    with pytest.raises(HotStateError, match="after 5 attempts"):
        catch_up(state, stamp(60), line, load)


@pytest.mark.parametrize("loaded", [[1], [3, 2], [4], [9]], ids=str)
def test_steps_off_the_line_are_refused(state: HotState, loaded: list[int]) -> None:
    with pytest.raises(HotStateError, match="was loaded"):
        catch_up(state, stamp(3), [stamp(1), stamp(2)], lambda _: map(step, loaded))
    assert state.read_stamp() == stamp(1)


def test_damage_found_while_catching_up_is_built_over(state: HotState) -> None:
    """The damage is reported as LMDB would, in the middle of the work."""
    table = Table(3)

    def load(since: Stamp | None) -> Steps:
        steps = table.load(since)
        if since is not None:
            raise lmdb.CorruptedError("located page was wrong type")
        return steps

    def lazily(since: Stamp | None) -> Steps:
        yield from load(since)

    catch_up(state, table.base, table.line, lazily)
    assert table.asked == [stamp(1), None]
    assert require_whole(state) == 3
