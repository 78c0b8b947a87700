"""Maintenance: merges in a process that may die, history that leaves, files that are swept.

The pipeline, the table and the merging process are real; only Spark is not needed for them.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.edge.table.compaction import TOP_TIER, Merge
from jobs.edge.table.delta_epochs import EpochTable, Fenced, last_checkpoint
from jobs.edge.table.epoch_files import Reject
from jobs.edge.table.file_writer import file_name, write_file
from jobs.edge.table.reading import TableReader
from jobs.reading.epoch_rows import epoch_rows, start_row
from jobs.reading.files import live_files, open_table
from jobs.reading.history import HistoryGone
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, EPOCHS, MULTISETS, QUARANTINE
from jobs.running import maintenance
from jobs.running.maintenance import Merger
from schemas import limits
from tests.support.epoch_rows import epoch_row
from tests.support.sampling import quick
from tests.support.tables.maintained_job import MaintainedJob, hours_ago

CHECKOUT = Path(__file__).resolve().parents[4]
STATE = (ACCUMULATORS, MULTISETS)


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between looks."""
    monkeypatch.setattr(limits, "MAINTENANCE_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(limits, "MERGE_RETRY_SECONDS", 0.5)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MaintainedJob]:
    job = MaintainedJob(tmp_path)
    yield job
    job.maintenance.close()


@pytest.fixture
def published_job(tmp_path: Path) -> Iterator[MaintainedJob]:
    job = MaintainedJob(tmp_path, sink=True)
    yield job
    job.maintenance.close()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(done: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


# --- compaction -------------------------------------------------------------------------------


def test_small_files_are_merged_and_the_job_says_the_same(job: MaintainedJob) -> None:
    job.epochs(limits.COMPACTION_FAN_IN + 1)
    before, files = job.results(), job.live()
    parts = (EPOCHS, CHANGELOG, *STATE)
    job.work_until(lambda: all(job.merged(part) for part in parts))
    assert job.results() == before
    assert len(job.live()) < len(files) / 4
    assert job.made.table.newest() == job.made.newest
    job.epochs(1)  # and the epochs go on


def test_an_epoch_that_does_not_end_holds_nobody_who_would_stop_the_job(
    job: MaintainedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The main thread maintains the table, and must see that the job shall stop."""
    monkeypatch.setattr(maintenance, "_EPOCH_WAIT_SECONDS", 0.05)
    job.epochs(limits.COMPACTION_FAN_IN)
    version, begun, ended = job.made.table.version, threading.Event(), threading.Event()

    def hang() -> None:
        with job.maintenance.pipeline.between_epochs():
            begun.set()
            ended.wait(20)

    def look(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            job.maintenance.work(None)

    for merging in (False, True):
        if merging:
            job.maintenance.work(None)
        epoch = threading.Thread(target=hang)
        epoch.start()
        begun.wait(20)
        look(1.0)
        assert job.made.table.version == version
        ended.set()
        epoch.join()
        begun.clear()
        ended.clear()
    job.work_until(lambda: job.merged(EPOCHS))


@pytest.mark.slow
def test_nothing_is_merged_before_it_is_published(published_job: MaintainedJob) -> None:
    job = published_job
    job.epochs(limits.COMPACTION_FAN_IN + 10)
    version = job.made.table.version
    for published in (None, 5):
        for _ in range(20):
            job.maintenance.work(published)
            time.sleep(0.01)
    assert job.made.table.version == version
    assert job.maintenance._merger is None
    job.work_until(lambda: job.merged(CHANGELOG), published=limits.COMPACTION_FAN_IN + 2)
    tiers = {file.epoch_max: file.tier for file in job.live(CHANGELOG)}
    assert all(tiers[epoch] == 0 for epoch in tiers if epoch > limits.COMPACTION_FAN_IN + 2)


@pytest.mark.parametrize("fault", quick(["raise", "kill"], ["kill"]))
def test_a_merge_that_fails_is_tried_again_and_stops_nobody(
    job: MaintainedJob,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job.epochs(limits.COMPACTION_FAN_IN)
    version = job.made.table.version
    monkeypatch.setenv("RETALLY_FAILPOINTS", f"compaction={fault}@1")
    with caplog.at_level(logging.WARNING, "jobs.running.maintenance"):
        job.work_until(lambda: "compaction failed" in caplog.text)
    assert job.made.table.version == version
    monkeypatch.delenv("RETALLY_FAILPOINTS")
    job.epochs(1)
    job.work_until(lambda: job.merged(EPOCHS))


@pytest.mark.slow
def test_a_damaged_file_fails_its_merge_by_name_and_nothing_else(
    job: MaintainedJob, caplog: pytest.LogCaptureFixture
) -> None:
    job.epochs(limits.COMPACTION_FAN_IN)
    path = job.place.own_table / job.live(CHANGELOG)[3].path
    path.write_bytes(path.read_bytes()[:-10])
    with caplog.at_level(logging.WARNING, "jobs.running.maintenance"):
        job.work_until(lambda: path.name in caplog.text)
    others = (EPOCHS, *STATE)
    job.work_until(lambda: all(job.merged(part) for part in others))
    assert not job.merged(CHANGELOG)
    job.epochs(1)


def test_a_merge_by_one_who_is_no_longer_the_writer_stops_the_job(job: MaintainedJob) -> None:
    job.epochs(limits.COMPACTION_FAN_IN)
    job.maintenance.work(None)
    assert job.maintenance._merging is not None
    rival = EpochTable.open(job.place.own_table, job.made.layout)
    rival.commit_epoch(epoch_row(job.made.newest.epoch + 1), ())
    with pytest.raises(Fenced):
        job.work_until(lambda: False)
    assert all(file.tier == 0 for file in job.live())


def test_closing_ends_a_merge_that_is_running(
    job: MaintainedJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job.epochs(limits.COMPACTION_FAN_IN)
    monkeypatch.setenv("RETALLY_FAILPOINTS", "compaction=stall:120")
    monkeypatch.setenv("RETALLY_FAILPOINT_MARKS", str(tmp_path))
    job.maintenance.work(None)
    assert job.maintenance._merger is not None
    pid = job.maintenance._merger.pid
    wait_until(lambda: any(tmp_path.glob("compaction-*")))
    began = time.monotonic()
    job.maintenance.close()
    assert time.monotonic() - began < 5
    assert pid is not None and gone(pid)


PARENT = """
    import sys, time
    from pathlib import Path
    from jobs.edge.table.compaction import Merge
    from jobs.reading.files import live_files, open_table
    from jobs.running.maintenance import Merger
    from jobs.running.views import Subtable
    from tests.support.tables.folded_table import a_plan

    if __name__ == "__main__":
        root = Path(sys.argv[1])
        merger = Merger(False).start()
        files = tuple(file for file in live_files(open_table(root)) if file.part == "epochs")
        if sys.argv[2] == "working":
            merger.begin(Subtable("", a_plan(), root), Merge("epochs", 1, files), "u")
        print(merger.pid, flush=True)
        time.sleep(300)
"""


@pytest.mark.parametrize("what", quick(["waiting", "working"], ["working"]))
def test_the_merging_process_ends_with_its_parent(
    job: MaintainedJob, tmp_path: Path, what: str
) -> None:
    job.epochs(2)
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(PARENT))
    marks = tmp_path / "marks"
    marks.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": str(CHECKOUT),
        "RETALLY_FAILPOINTS": "compaction=stall:300",
        "RETALLY_FAILPOINT_MARKS": str(marks),
    }
    parent = subprocess.Popen(
        [sys.executable, str(script), str(job.place.own_table), what],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    if what == "working":
        wait_until(lambda: any(marks.iterdir()))
    parent.kill()
    parent.communicate()
    wait_until(lambda: gone(pid))


def test_a_merger_answers_one_merge_after_the_other(job: MaintainedJob) -> None:
    job.epochs(3)
    merger = Merger(False).start()
    try:
        for number in range(2):
            files = tuple(job.live(ACCUMULATORS))
            merger.begin(job.pipeline.subtables[0], Merge(ACCUMULATORS, 1, files), f"u{number}")
            end = time.monotonic() + 30
            while (merged := merger.read_outcome()) is None:
                assert time.monotonic() < end
                time.sleep(0.01)
            assert merged.added[0].rows == 4
            assert merged.seconds > 0
        os.kill(merger.pid or 0, signal.SIGKILL)
        with pytest.raises(maintenance.MergeFailed, match="exit code -9"):
            wait_until(lambda: merger.read_outcome() is not None)
    finally:
        merger.close()


# --- the log ----------------------------------------------------------------------------------


def test_the_log_gets_a_checkpoint_however_often_the_job_starts(
    job: MaintainedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHECKPOINT_EVERY_COMMITS", 10)
    assert last_checkpoint(job.place.own_table) is None
    for _ in range(3):
        job.begin()
        job.epochs(4)
        job.maintenance.work(None)
    assert last_checkpoint(job.place.own_table) == 13
    job.begin()
    job.maintenance.work(None)
    assert last_checkpoint(job.place.own_table) == 13
    assert open_table(job.place.own_table).version() == 13


def test_the_log_is_cleaned_up_to_its_checkpoint(
    job: MaintainedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHECKPOINT_EVERY_COMMITS", 10)
    job.epochs(12)
    log = job.place.own_table / "_delta_log"
    long_ago = time.time() - 2 * limits.ORPHAN_AGE_SECONDS_MIN
    for path in log.iterdir():
        os.utime(path, (long_ago, long_ago))
    job.maintenance.work(None)
    assert len(list(log.glob("*.json"))) < 3
    job.begin()
    job.epochs(1)
    assert [
        row.epoch
        for row in epoch_rows(job.place.own_table, live_files(open_table(job.place.table)))
    ] == [*range(14)]


def test_a_checkpoint_that_fails_stops_nobody(
    job: MaintainedJob, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(limits, "CHECKPOINT_EVERY_COMMITS", 5)
    monkeypatch.setattr(maintenance, "write_checkpoint", full)
    job.epochs(6)
    with caplog.at_level(logging.WARNING, "jobs.running.maintenance"):
        job.maintenance.work(None)
    assert "no space left" in caplog.text
    job.epochs(1)


# --- retention --------------------------------------------------------------------------------


def with_history(job: MaintainedJob) -> None:
    """Epochs 1 to 6 are older than the job keeps, 7 to 10 are not; the start is older too."""
    job.epochs(3, committed_at=hours_ago(3), counters={"read": 2, "dropped_retractions": 1})
    rejects = [Reject("t", 0, 1, None, "why", "", b"x", 1)]
    for at, epoch in ((hours_ago(2), 4), (hours_ago(0.1), 7)):
        rows = job.made.layout.quarantine_table(epoch, rejects)
        name = file_name(QUARANTINE, epoch, "u", "m0")
        job.made.table.commit_epoch(
            epoch_row(epoch, job.made.plan, committed_at=at, counters={"read": 5}),
            [write_file(job.place.own_table, name, rows)],
        )
        job.made.newest = epoch_row(epoch, job.made.plan)
        job.epochs(2 if epoch == 4 else 3, committed_at=at, counters={"read": 1})


@pytest.fixture
def aged(tmp_path: Path) -> MaintainedJob:
    job = MaintainedJob(tmp_path, began_hours_ago=3)
    with_history(job)
    return job


def epochs_of(job: MaintainedJob, part: str) -> list[int]:
    return [file.epoch_max for file in job.live(part)]


def test_history_that_is_old_enough_leaves_and_state_stays(aged: MaintainedJob) -> None:
    results, state = aged.results(), aged.live(*STATE)
    aged.maintenance.remove_expired(None)
    assert epochs_of(aged, CHANGELOG) == [8, 9, 10]
    assert epochs_of(aged, QUARANTINE) == [7]
    rows = epoch_rows(aged.place.table, live_files(open_table(aged.place.table)))
    assert [row.epoch for row in rows] == [7, 8, 9, 10]
    assert aged.live(*STATE) == state
    assert aged.results() == results
    version = aged.made.table.version
    aged.maintenance.remove_expired(None)
    assert aged.made.table.version == version, "there is nothing more to do"
    aged.epochs(1)


def test_the_start_is_kept_with_the_sums_of_what_left(aged: MaintainedJob) -> None:
    before = start_row(aged.place.table, live_files(aged.made.table.handle))
    aged.maintenance.remove_expired(None)
    start = start_row(aged.place.table, live_files(open_table(aged.place.table)))
    assert before is not None and start is not None
    assert (start.epoch, start.offsets, start.kind) == (0, before.offsets, "start")
    assert start.counters == {"groups": 0, "read": 3 * 2 + 5 + 2 * 1, "dropped_retractions": 3}
    kept = [file for file in aged.live(EPOCHS) if file.epoch_max == 0]
    assert [file.tier for file in kept] == [TOP_TIER], "compaction leaves it alone"


def test_readers_name_the_oldest_epoch_there_is(aged: MaintainedJob) -> None:
    aged.maintenance.remove_expired(None)
    reader = TableReader.open(aged.place)
    assert {change.epoch for change in reader.changes()} == {8, 9, 10}
    for epoch in (0, 3, 6):
        with pytest.raises(HistoryGone, match=r"can be read is 10$"):
            reader.results(epoch)
    # The rows of this table count no changelog rows, so no change leads back from the newest.
    assert reader.newest.epoch == 10


def test_history_that_is_not_yet_published_stays(tmp_path: Path) -> None:
    job = MaintainedJob(tmp_path, sink=True, began_hours_ago=3)
    job.epochs(5, committed_at=hours_ago(3))
    job.maintenance.remove_expired(None)
    assert len(job.live(CHANGELOG)) == 5
    job.maintenance.remove_expired(3)
    assert epochs_of(job, CHANGELOG) == [4, 5]


def test_the_newest_epoch_is_kept_however_old_it_is(tmp_path: Path) -> None:
    job = MaintainedJob(tmp_path, began_hours_ago=60)
    job.epochs(4, committed_at=hours_ago(50))
    job.maintenance._sweep_at = 0.0
    job.maintenance.work(None)
    assert [
        r.epoch for r in epoch_rows(job.place.own_table, live_files(open_table(job.place.table)))
    ] == [4]
    job.begin()
    job.epochs(1)
    assert epochs_of(job, CHANGELOG) == [4, 5]


def test_merged_history_leaves_when_all_of_it_is_old(aged: MaintainedJob) -> None:
    """A file that holds younger epochs too stays whole."""
    files = tuple(file for file in aged.live(CHANGELOG) if file.epoch_max >= 6)
    aged.made.merge(Merge(CHANGELOG, 1, files))
    aged.maintenance.remove_expired(None)
    [left] = aged.live(CHANGELOG)
    assert (left.epoch_min, left.epoch_max) == (6, 10)
