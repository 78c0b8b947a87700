"""Disks that are full, read-only or broken, under a real job: it ends and names the disk, commits
nothing torn, and goes on where it was.

    feed, all the time ─► a job at some moment ─► its disk refuses ─► it ends: disk-refused, DIR
                                                        │
                  the disk is well again ─► it is started again ─► ... ─► the truth, once each
"""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from jobs.edge.process.broker import Broker
from jobs.edge.table.delta_epochs import EpochTable
from jobs.reading.files import live_files, open_table
from retally import Client
from schemas.directory.documents import read_document
from schemas.directory.failure import Failure
from service.supervision import job_process
from tests.support.command.shop import Shop
from tests.support.faults.disks import Ballast, failing_disk, refused, refusing, small_disk
from tests.support.faults.load import BACK_SECONDS_MAX, check_job, newest_epoch, served_job, spec
from tests.support.faults.tally import FaultTally
from tests.support.jobs.running_job import RunningJob
from tests.support.service.served import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(2_400)]

DISK_MIB = 160  # Spark keeps its jars among its shuffles
EPOCHS_BETWEEN = 3
# Where a job stands still for a moment, so that its disk is full for certain when it goes on.
MOMENTS = {
    "in the fold": "fold_task=stall:2@3",
    "before a commit": "before_commit=stall:2@3",
    "in a merge": "compaction_commit=stall:2@1",
    "between epochs": "",
}


@pytest.fixture
def shop(broker: Broker) -> Iterator[Shop]:
    shop = Shop(broker.address, f"shop-{uuid.uuid4().hex[:8]}", seed=28)
    yield shop
    shop.close()


def fed(shop: Shop) -> AbstractContextManager[None]:
    """Changes all the time, but no more than a busy machine keeps up with."""
    return shop.feeding(10, every_seconds=0.3)


def running(job: RunningJob, moment: str, tally: FaultTally) -> subprocess.Popen[str]:
    """The job under way: at its failpoint, or some epochs after its start. Once it commits again,
    it has recovered from what was before."""
    for mark in job.marks.iterdir():
        mark.unlink()
    before, began = newest_epoch(job), time.monotonic()
    process = job.start(MOMENTS[moment], caught_up=False)
    name = MOMENTS[moment].partition("=")[0]

    def alive_and(done: bool) -> bool:
        assert process.poll() is None, process.communicate()[0][-3_000:]
        return done

    eventually(lambda: alive_and(newest_epoch(job) > before), BACK_SECONDS_MAX)
    if tally.fired:
        tally.recoveries.append(time.monotonic() - began)
    more = before + EPOCHS_BETWEEN
    eventually(
        lambda: alive_and(job.fired(name) if name else newest_epoch(job) >= more), BACK_SECONDS_MAX
    )
    return process


def ended(
    job: RunningJob, process: subprocess.Popen[str], *words: str, word_left: bool = True
) -> str:
    """What it said. It ended by itself, named its disk in these words, and left its table whole."""
    try:
        said, _ = process.communicate(timeout=BACK_SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 1, said[-3_000:]
    left = read_document(job.table.parent / "failure.json", Failure)
    assert (left is not None) == word_left, said[-3_000:]
    assert left is None or (left.code, left.retryable) == ("disk-refused", True), left
    for word in words:
        assert left is None or word in left.reason, left
        assert word in said, said[-3_000:]
    rows = job.epochs() if EpochTable.exists(job.table) else []
    if rows:
        assert [row.epoch for row in rows] == list(range(rows[0].epoch, rows[-1].epoch + 1))
        assert EpochTable.open(job.table, job.layout).newest() == rows[-1]
    return said


def ends_whole(job: RunningJob, shop: Shop, tally: FaultTally) -> None:
    """Nothing is fed any more: it reads what is left, and all is held against each other."""
    began = time.monotonic()
    job.must_run_by_itself()
    tally.recoveries.append(time.monotonic() - began)
    check_job(job, shop, tally)


def test_a_full_data_directory_at_every_moment(broker: Broker, shop: Shop, tmp_path: Path) -> None:
    tally = FaultTally("full data directory, real Spark")
    job = RunningJob(spec(shop.topic), tmp_path, broker.address)
    full = (str(job.data), "is full")
    with small_disk(job.data, DISK_MIB):
        with fed(shop):
            for moment in ("a new job starts", *MOMENTS, "an old job starts"):
                tally.plan(moment)
                if moment in MOMENTS:
                    process = running(job, moment, tally)
                    with Ballast(job.data):
                        said = ended(job, process, *full)
                    assert moment != "in a merge" or "merging failed" in said, said[-3_000:]
                else:
                    with Ballast(job.data):
                        old = moment == "an old job starts"  # which has kept room for a word
                        ended(job, job.start(caught_up=False), *full, word_left=old)
                tally.fire(moment)
        ends_whole(job, shop, tally)


def test_a_full_disk_of_hot_states(broker: Broker, shop: Shop, tmp_path: Path) -> None:
    """Where there is no room to build them. One that is there grows seldom, and can be written over
    in its place, so a job that runs may go on, and does."""
    tally = FaultTally("full disk of hot states, real Spark")
    job = RunningJob(spec(shop.topic), tmp_path, broker.address)
    place = job.data / "cache"
    with small_disk(place, DISK_MIB):
        with fed(shop):
            for moment in ("a new job starts", "an old job starts"):
                tally.plan(moment)
                with Ballast(place):
                    ended(job, job.start(caught_up=False), str(place), "is full")
                tally.fire(moment)
                job.must_run_by_itself()
                shutil.rmtree(place / "items")
        ends_whole(job, shop, tally)


def test_a_full_disk_of_shuffles(
    broker: Broker, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = FaultTally("full disk of shuffles, real Spark")
    job = RunningJob(spec(shop.topic), tmp_path, broker.address)
    place = tmp_path / "spark"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(place))
    with small_disk(place, DISK_MIB):
        with fed(shop):
            for moment in ("between epochs", "in the fold"):
                tally.plan(moment)
                process = running(job, moment, tally)
                with Ballast(place):
                    ended(job, process, str(place), "is full")
                tally.fire(moment)
        ends_whole(job, shop, tally)


def test_a_disk_that_the_kernel_makes_read_only(broker: Broker, shop: Shop, tmp_path: Path) -> None:
    """What was not synced by then is lost, as with the power; so the job is a durable one, and its
    hot states, which never are, are deleted as the message says."""
    tally = FaultTally("data directory made read-only, real Spark")
    job = RunningJob(spec(shop.topic) | {"durable": True}, tmp_path, broker.address)
    with failing_disk(job.data, tmp_path / "image", DISK_MIB) as disk:
        for moment in ("between epochs", "before a commit"):
            tally.plan(moment)
            with fed(shop):
                process = running(job, moment, tally)
                disk.fail()
                said, _ = process.communicate(timeout=BACK_SECONDS_MAX)
            assert process.returncode == 1, said[-3_000:]
            assert "is read-only" in said, said[-3_000:]
            assert str(job.data) in said
            assert "delete the job's part of DIR/cache" in said
            disk.mend()
            shutil.rmtree(job.data / "cache")
            tally.fire(moment)
        ends_whole(job, shop, tally)


def test_calls_that_the_kernel_refuses(broker: Broker, shop: Shop, tmp_path: Path) -> None:
    """Of files, of the log, of hot states; and of a file that is read to build them anew."""
    tally = FaultTally("I/O errors of the kernel, real Spark")
    told = spec(shop.topic) | {"durable": True}
    job = RunningJob(told, tmp_path, broker.address)
    shop.feed(400)
    job.must_run_by_itself()
    log = tmp_path / "refused"
    with fed(shop):
        for calls, error, since in (
            ("fsync", "EIO", 1),
            ("link,linkat", "ENOSPC", 1),
            ("pwrite64", "EIO", 2),  # the first one of the driver is the note in its lock
            ("pwrite64", "EROFS", 1),
        ):
            tally.plan(f"{calls} {error}")
            under = refusing(calls, error, log, since=since)
            ended(job, job.start(caught_up=False, under=under), "the disk of")
            assert refused(log), log.read_text()[-1_000:]
            tally.fire(f"{calls} {error}")
        tally.plan("a file that cannot be read")
        newest = [
            each for each in live_files(open_table(job.table)) if each.part == "accumulators"
        ][-1]
        shutil.rmtree(job.data / "cache")
        under = refusing("pread64", "EIO", log, file=job.table / newest.path)
        ended(job, job.start(caught_up=False, under=under), "fails", newest.path)
        assert refused(log)
        tally.fire("a file that cannot be read")
    ends_whole(job, shop, tally)


def test_a_service_whose_disk_is_full_stays_and_its_job_comes_back(
    broker: Broker, shop: Shop, tmp_path: Path
) -> None:
    tally = FaultTally("full data directory of a service, real Spark")
    job = RunningJob(spec(shop.topic), tmp_path, broker.address)
    with small_disk(job.data, DISK_MIB):
        with served_job(job) as client:
            comes_on(client, shop)
            for _ in range(2):
                tally.plan("full")
                with Ballast(job.data):
                    shop.feed(200)
                    its_process_ends(job)
                    assert client.job("items").name == "items"  # the service still answers
                tally.fire("full")
                began = time.monotonic()
                comes_on(client, shop)
                tally.recoveries.append(time.monotonic() - began)
        ends_whole(job, shop, tally)


def its_process_ends(job: RunningJob) -> None:
    lock = job.table.parent / "lock"
    first = job_process.find_writer(lock)
    eventually(lambda: job_process.find_writer(lock) != first, BACK_SECONDS_MAX)


def comes_on(client: Client, shop: Shop) -> None:
    """Until the job has committed what is fed now, by itself."""
    epoch = client.job("items").epoch or 0
    shop.feed(100)
    eventually(lambda: (client.job("items").epoch or 0) > epoch, 2 * BACK_SECONDS_MAX)
    eventually(lambda: getattr(client.job("items").lag, "records", 1) == 0, 2 * BACK_SECONDS_MAX)
