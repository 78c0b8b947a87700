"""The rows of a side of a join: at one committed epoch, or it says that it is not.

Processes here are real ones, killed with SIGKILL, and damage is done to real files.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from jobs.core.fold.state import Stamp
from jobs.edge.process import failpoints
from jobs.edge.rows.arranged_rows import Arrangement, KeyedRows, Run
from jobs.edge.state.arrangement_state import ArrangementState, SideChange
from jobs.edge.state.catch_up import ZombieTask, catch_up
from jobs.edge.state.errors import HotStateError, StampMoved
from schemas import limits
from tests.support.forks import Fork, Say

ROWS = 50


def stamp(epoch: int, *, generation: int = 0) -> Stamp:
    return Stamp(epoch, f"a{epoch}", generation)


def rows_of(epoch: int, count: int = ROWS, weight: int = 1) -> KeyedRows:
    keys, texts = pa.array(range(count)), pa.array([f"{epoch} {n}" for n in range(count)])
    return KeyedRows([keys], [texts], np.full(count, weight, np.int64))


def change(epoch: int, count: int = ROWS) -> SideChange:
    return SideChange(Run.of(rows_of(epoch, count)), are_totals=False)


def opened(directory: Path, plan: str = "a plan") -> ArrangementState:
    return ArrangementState(directory, plan, 1, lock_seconds=5)


def built(directory: Path, *epochs: int) -> ArrangementState:
    state = opened(directory)
    steps = [(stamp(epoch), change(epoch)) for epoch in epochs]
    state.rebuild(steps, since=state.read_stamp())
    return state


def texts_of(rows: Arrangement) -> dict[str, int]:
    found: dict[str, int] = {}
    for run in rows.runs:
        for text, weight in zip(run.rows.columns[0].to_pylist(), run.rows.weights, strict=True):
            found[text] = found.get(text, 0) + int(weight)
    return {text: weight for text, weight in found.items() if weight}


def wanted(*epochs: int, count: int = ROWS) -> dict[str, int]:
    return {f"{epoch} {n}": 1 for epoch in epochs for n in range(count)}


def test_the_rows_are_those_of_all_applied_epochs(tmp_path: Path) -> None:
    state = built(tmp_path, 1)
    for epoch in range(2, 12):
        state.advance([(stamp(epoch), change(epoch))], since=stamp(epoch - 1))
    assert texts_of(state.at(stamp(11))) == wanted(*range(1, 12))
    assert texts_of(opened(tmp_path).at(stamp(11))) == wanted(*range(1, 12))
    kept = {path.name for path in tmp_path.glob("run-*")}
    assert len(kept) == len(state.at(stamp(11)).runs)


def test_rows_of_the_table_are_totals_of_which_the_newest_counts(tmp_path: Path) -> None:
    state = built(tmp_path, 1)
    again = SideChange(Run.of(rows_of(1, weight=3)), are_totals=True)
    gone = SideChange(Run.of(rows_of(1, 10, weight=0)), are_totals=True)
    state.advance([(stamp(2), again), (stamp(3), gone)], since=stamp(1))
    assert texts_of(state.at(stamp(3))) == {f"1 {n}": 3 for n in range(10, ROWS)}


def test_large_runs_are_mapped_and_stay_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RUN_BYTES_IN_MEMORY_MAX", 1)
    state = built(tmp_path, 1, 2)
    seen = state.at(stamp(2))
    state.advance([(stamp(3), change(3))], since=stamp(2))
    assert texts_of(seen) == wanted(1, 2)  # whoever looks at the runs is not disturbed
    assert texts_of(state.at(stamp(3))) == wanted(1, 2, 3)


def test_mapped_runs_keep_no_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has thousands of them, and often no more than 1,024 descriptors."""
    monkeypatch.setattr(limits, "RUN_BYTES_IN_MEMORY_MAX", 1)
    before = len(os.listdir("/proc/self/fd"))
    state = built(tmp_path, 1, 2)
    other = opened(tmp_path)
    assert texts_of(other.at(stamp(2))) == texts_of(state.at(stamp(2))) == wanted(1, 2)
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_an_epoch_changed_is_remembered_until_the_next_one(tmp_path: Path) -> None:
    state = built(tmp_path, 1)
    state.remember(2, "a2", Run.of(rows_of(2)))
    recalled = opened(tmp_path).recall(stamp(2))
    assert recalled is not None
    state.advance([(stamp(2), recalled)], since=stamp(1))
    assert texts_of(state.at(stamp(2))) == wanted(1, 2)
    assert state.recall(stamp(3)) is None
    state.remember(3, "a3", Run.of(rows_of(3)))
    assert state.recall(stamp(2)) is None


@pytest.mark.parametrize("what", ["rows", "run"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_damage_is_found_and_the_state_is_built_anew(
    tmp_path: Path, what: str, damage: str
) -> None:
    built(tmp_path, 1, 2)
    (path,) = tmp_path.glob(f"{what}*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    state = opened(tmp_path)
    assert state.read_stamp() is None
    with pytest.raises(StampMoved):
        state.at(stamp(2))
    catch_up(state, stamp(2), [], lambda _: [(stamp(1), change(1)), (stamp(2), change(2))])
    assert texts_of(state.at(stamp(2))) == wanted(1, 2)


def die_at(_: Say, directory: Path, point: str) -> None:
    failpoints._POINTS[point] = ("kill", 0)
    opened(directory).advance([(stamp(2), change(2))], since=stamp(1))


@pytest.mark.parametrize("point", ["hot_state_half_built", "hot_state_written"])
def test_a_killed_change_leaves_the_epoch_before_or_nothing(tmp_path: Path, point: str) -> None:
    built(tmp_path, 1)
    assert Fork(die_at, tmp_path, point).wait() == -signal.SIGKILL
    state = opened(tmp_path)
    assert texts_of(state.at(stamp(1))) == wanted(1)
    state.advance([(stamp(2), change(2))], since=stamp(1))
    assert len(list(tmp_path.glob("run-*"))) == len(state.at(stamp(2)).runs)  # no run is left over


def test_another_process_advances_and_this_one_sees_it(tmp_path: Path) -> None:
    state = built(tmp_path, 1)
    opened(tmp_path).advance([(stamp(2), change(2))], since=stamp(1))
    with pytest.raises(StampMoved):
        state.advance([(stamp(2), change(2))], since=stamp(1))
    assert texts_of(state.at(stamp(2))) == wanted(1, 2)


def test_a_task_of_an_older_driver_does_not_turn_back_the_state(tmp_path: Path) -> None:
    state = built(tmp_path, 1, 2)
    with pytest.raises(ZombieTask):
        catch_up(state, stamp(1), [stamp(1)], lambda _: [])


def test_the_state_of_another_plan_is_none(tmp_path: Path) -> None:
    built(tmp_path, 1)
    assert opened(tmp_path, "another plan").read_stamp() is None


def test_a_step_that_cannot_be_loaded_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    state = built(tmp_path, 1)

    def steps() -> Iterator[tuple[Stamp, SideChange | None]]:
        yield stamp(2), change(2)
        raise OSError("the storage does not answer")

    with pytest.raises(OSError, match="does not answer"):
        state.advance(steps(), since=stamp(1))
    assert texts_of(state.at(stamp(1))) == wanted(1)


def test_a_disk_that_is_full_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = built(tmp_path, 1)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", refuse)
        with pytest.raises(HotStateError, match="No space left on device; check for a full disk"):
            state.advance([(stamp(2), change(2))], since=stamp(1))
    assert texts_of(opened(tmp_path).at(stamp(1))) == wanted(1)
