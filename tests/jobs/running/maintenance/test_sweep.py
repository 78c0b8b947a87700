"""The sweep: old files that no version of the table needs leave the disk, and no others."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.changing.savepoint import create_savepoint
from jobs.edge.state.bucket_states import CommittedEpoch
from jobs.edge.table.compaction import Merge
from jobs.edge.table.delta_epochs import EpochTable, Fenced
from jobs.edge.table.file_writer import file_name, write_file
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, MULTISETS
from schemas import limits
from schemas.types.moments import now_ms
from tests.support.epoch_rows import epoch_row
from tests.support.tables.maintained_job import HOUR_MS, MaintainedJob


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MaintainedJob]:
    job = MaintainedJob(tmp_path)
    yield job
    job.maintenance.close()


def aged_by(job: MaintainedJob, seconds: float) -> None:
    then = time.time() - seconds
    for path in job.place.own_table.rglob("*"):
        if path.is_file() and path.parent.name.startswith("part="):
            os.utime(path, (then, then))


def left(job: MaintainedJob) -> set[str]:
    return {
        f"{path.parent.name}/{path.name}" for path in job.place.own_table.glob("part=*/*.parquet")
    }


def orphan(job: MaintainedJob, uuid: str) -> str:
    rows = job.made.layout.accumulators_table(99, [0], [(("x",), None)])
    return write_file(job.place.own_table, file_name(ACCUMULATORS, 99, uuid, "f0"), rows).path


def test_only_old_files_that_never_were_committed_are_swept(job: MaintainedJob) -> None:
    job.epochs(3)
    old = orphan(job, "old")
    aged_by(job, limits.ORPHAN_AGE_SECONDS_MIN + 60)
    young = orphan(job, "young")
    before = left(job)
    job.maintenance.sweep()
    assert left(job) == before - {old}
    assert young in left(job)
    assert {file.path for file in job.live()} <= left(job)


def test_a_writer_that_was_replaced_deletes_nothing_of_its_successor(job: MaintainedJob) -> None:
    job.epochs(3)
    rival = EpochTable.open(job.place.own_table, job.made.layout)
    rows = job.made.layout.accumulators_table(4, [0], [(("x",), None)])
    name = file_name(ACCUMULATORS, 4, "rival", "f0")
    rival.commit_epoch(
        epoch_row(job.made.newest.epoch + 1), (write_file(job.place.own_table, name, rows),)
    )
    aged_by(job, 10 * limits.ORPHAN_AGE_SECONDS_MIN)
    before = left(job)
    with pytest.raises(Fenced):
        job.maintenance.sweep()
    assert left(job) == before


def test_a_short_run_deletes_what_is_old_at_its_end(job: MaintainedJob) -> None:
    job.epochs(3)
    old = orphan(job, "old")
    aged_by(job, limits.ORPHAN_AGE_SECONDS_MIN + 60)
    job.maintenance.work(None)
    assert old in left(job)
    job.maintenance.finish(None)
    assert old not in left(job)


def test_what_left_the_table_lately_is_still_there_for_readers_of_before(
    job: MaintainedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.epochs(3)
    job.pipeline.views[0].recent_epochs.clear()
    aged_by(job, 10 * limits.ORPHAN_AGE_SECONDS_MIN)  # when they were written tells nothing
    files = tuple(job.live(CHANGELOG))
    job.made.merge(Merge(CHANGELOG, 1, files))
    before = left(job)
    job.maintenance.sweep()
    job.begin()  # a new process knows it from the log
    job.pipeline.views[0].recent_epochs.clear()
    job.maintenance.sweep()
    assert left(job) == before
    job.made.table._removed = {file.path: now_ms() - 2 * HOUR_MS for file in files}
    job.maintenance.sweep()
    assert left(job) == before - {file.path for file in files}


def test_files_of_the_line_are_kept_for_hot_states_that_lag(job: MaintainedJob) -> None:
    job.epochs(3)
    files = tuple(job.live(ACCUMULATORS))
    names = {file.path for file in files}
    job.made.merge(Merge(ACCUMULATORS, 1, files))
    aged_by(job, 10 * limits.ORPHAN_AGE_SECONDS_MIN)
    job.begin()
    job.made.table._removed = {}
    row = job.made.newest
    lines = [epoch_row(1, files={ACCUMULATORS: sorted(names)}), row]
    job.pipeline.views[0].recent_epochs.clear()
    job.pipeline.views[0].recent_epochs.extend(CommittedEpoch.of(each) for each in lines)
    job.maintenance.sweep()
    assert names <= left(job)
    job.pipeline.views[0].recent_epochs.clear()
    job.maintenance.sweep()
    assert not names & left(job)


def test_files_that_a_savepoint_pins_are_kept_until_it_goes(job: MaintainedJob) -> None:
    job.epochs(3)
    kept = create_savepoint(job.place, "before")
    pinned = {file.path for file in kept.files}
    for part in (ACCUMULATORS, MULTISETS):
        job.made.merge(Merge(part, 1, tuple(job.live(part))))
    aged_by(job, 10 * limits.ORPHAN_AGE_SECONDS_MIN)
    job.pipeline.views[0].recent_epochs.clear()
    job.made.table._removed = {}
    job.maintenance.sweep()
    assert pinned <= left(job)
    (job.place.home / "savepoints" / "before.json").unlink()
    job.maintenance.sweep()
    explained = {name for name in pinned if name.startswith(f"part={MULTISETS}/")}
    assert pinned & left(job) == explained


def test_multiset_files_of_the_newest_epochs_are_kept_for_explanations(
    job: MaintainedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.epochs(6)
    names = {file.epoch_max: file.path for file in job.live(MULTISETS)}
    job.made.merge(Merge(MULTISETS, 1, tuple(job.live(MULTISETS))))
    aged_by(job, 10 * limits.ORPHAN_AGE_SECONDS_MIN)
    job.pipeline.views[0].recent_epochs.clear()
    job.made.table._removed = {}
    job.maintenance.sweep()
    assert set(names.values()) <= left(job)
    monkeypatch.setattr(limits, "EXPLAINED_EPOCHS_MIN", 2)  # and twice as many are kept
    job.maintenance.sweep()
    newest = job.made.newest.epoch
    assert {epoch for epoch, name in names.items() if name in left(job)} == {
        epoch for epoch in names if epoch > newest - 4
    }


def test_nothing_outside_the_parts_is_ever_swept(job: MaintainedJob, tmp_path: Path) -> None:
    job.epochs(1)
    outside = [
        job.place.own_table / "notes.parquet",
        job.place.own_table / "part=other" / "x.parquet",
        job.place.own_table / "part=changelog" / "deeper" / "x.parquet",
        job.place.own_table / "part=changelog" / "readme.txt",
        job.place.own_table / "_delta_log" / "x.parquet",
        job.place.home / "x.parquet",
    ]
    long_ago = time.time() - 10 * limits.ORPHAN_AGE_SECONDS_MIN
    for path in outside:
        path.parent.mkdir(exist_ok=True)
        path.write_text("precious")
        os.utime(path, (long_ago, long_ago))
    job.maintenance.sweep()
    assert all(path.read_text() == "precious" for path in outside)


def test_a_sweep_that_fails_stops_nobody(
    job: MaintainedJob, caplog: pytest.LogCaptureFixture
) -> None:
    (job.place.home / "savepoints").mkdir()
    (job.place.home / "savepoints" / "bad.json").write_text("{")
    old = orphan(job, "old")
    aged_by(job, limits.ORPHAN_AGE_SECONDS_MIN + 60)
    job.maintenance._sweep_at = 0.0
    with caplog.at_level(logging.WARNING, "jobs.running.maintenance"), contextlib.suppress(Fenced):
        job.maintenance.work(None)
    assert "the sweep failed" in caplog.text
    assert old in left(job), "what savepoints need is not known, so nothing is deleted"
