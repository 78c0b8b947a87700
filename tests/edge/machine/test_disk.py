"""What an error says about a disk: in whose words it comes, and which disk it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.core.fold.laws import BrokenLaw
from jobs.edge.machine import disk
from jobs.edge.machine.disk import find_refusal
from jobs.edge.process.fence import OwnedElsewhere, WriterLock
from jobs.edge.spark import session as spark
from jobs.running.failure import name_disk
from schemas.directory.documents import read_document
from schemas.directory.failure import Failure, forget_failure, write_failure
from schemas.table.parquet_file import TableDamaged, naming

PLACES = (Path("/data"), Path("/cache"), Path("/scratch"))
TASK = """An error occurred while calling o77.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 5.0 failed
  File "jobs/edge/table/epoch_files.py", line 413, in __exit__
    self._sink.flush()
OSError: [Errno 28] No space left on device

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(...)
"""


def status(free: int, flags: int = 0, disk: int = 1) -> SimpleNamespace:
    return SimpleNamespace(f_bavail=free, f_frsize=1 << 20, f_blocks=64, f_flag=flags, f_fsid=disk)


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> dict[str, SimpleNamespace]:
    disks = {str(place): status(40, disk=number) for number, place in enumerate(PLACES)}

    def statvfs(place: Path) -> SimpleNamespace:
        return disks[str(place)]

    monkeypatch.setattr(os, "statvfs", statvfs)
    return disks


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        RuntimeError(
            "Generic LocalFileSystem error\n  \x1b[31m↳\x1b[0m Unable to copy data to file\n"
            "   \x1b[31m↳\x1b[0m No space left on device (os error 28)"
        ),
        RuntimeError("mdb_txn_commit: No space left on device; the hot state is unchanged"),
        RuntimeError(TASK),
    ],
    ids=["python", "quota", "delta-rs", "lmdb", "a task of spark"],
)
def test_a_full_disk_is_named_whoever_ran_into_it(
    error: Exception, disks: dict[str, SimpleNamespace]
) -> None:
    disks["/cache"] = status(0)
    told = str(find_refusal(error, PLACES))
    assert told.startswith("the disk of /cache is full (0.0 of 64.0 MiB are free now): ")
    assert told.endswith("; make room, then the job resumes")
    assert "No space left on device" in told or "Disk quota exceeded" in told
    assert not {"\x1b", "\n", "BasePythonRunner"} & set(told.split(" "))
    assert "\x1b" not in told


def test_a_disk_with_room_is_not_called_full(disks: dict[str, SimpleNamespace]) -> None:
    """As in a container whose shared memory is small and empty, when a worker's disk is full."""
    told = str(find_refusal(RuntimeError(TASK), PLACES))
    assert told.startswith("the disk of a task's host is full, or one emptied since (/data: 40.0 ")


def test_the_executor_of_a_cause_is_named_too() -> None:
    text = "Lost task 0.3 in stage 8.0 (TID 23) (10.1.2.3 executor 1): No space left on device"
    error = TableDamaged("a file is damaged: No space left on device")
    error.__cause__ = RuntimeError(text)
    assert str(find_refusal(error, PLACES)).startswith("the disk of an executor's host, 10.1.2.3")


def test_the_host_of_an_executor_is_named_instead_of_a_disk_of_this_one(
    disks: dict[str, SimpleNamespace],
) -> None:
    disks["/cache"] = status(0)
    lost = "Lost task 0.3 in stage 8.0 (TID 23) ({} executor {}): java.io.IOException: {}"
    full = "No space left on device"
    told = str(find_refusal(RuntimeError(lost.format("10.1.2.3", 1, full)), PLACES))
    assert told.startswith("the disk of an executor's host, 10.1.2.3, is full: Lost task")
    assert told.endswith("; make room, then the job resumes")
    here = str(find_refusal(RuntimeError(lost.format("localhost", "driver", full)), PLACES))
    assert here.startswith("the disk of /")
    read_only = RuntimeError(lost.format("10.1.2.3", 1, "Read-only file system"))
    assert "10.1.2.3, is read-only" in str(find_refusal(read_only, PLACES))


def test_the_cause_of_an_error_is_looked_at_too(disks: dict[str, SimpleNamespace]) -> None:
    disks["/data"] = status(0, os.ST_RDONLY)
    try:
        try:
            raise OSError(errno.EROFS, "Read-only file system", "/data/jobs/items/lock")
        except OSError as cause:
            raise RuntimeError("the job could not begin") from cause
    except RuntimeError as error:
        told = str(find_refusal(error, PLACES))
    assert told.startswith("the disk of /data is read-only: ")
    assert "'/data/jobs/items/lock'" in told


def test_which_disk_fails_is_not_to_be_seen(disks: dict[str, SimpleNamespace]) -> None:
    disks["/cache"].f_fsid = disks["/data"].f_fsid
    told = str(find_refusal(OSError(errno.EIO, "Input/output error", "/cache/data.mdb"), PLACES))
    assert told.startswith("the disk of /data or /scratch fails: ")
    assert "/cache/data.mdb" in told
    assert "delete the job's part of DIR/cache" in told


@pytest.mark.parametrize(
    "error", [RuntimeError("the broker is away"), OSError(errno.ENOENT, "no such file"), KeyError()]
)
def test_other_errors_are_not_about_a_disk(error: Exception) -> None:
    assert find_refusal(error, PLACES) is None
    assert name_disk(error, PLACES) is error


def test_what_has_a_code_of_its_own_keeps_it() -> None:
    law = BrokenLaw("a value said: No space left on device")
    assert name_disk(law, PLACES) is law


def test_a_place_that_is_not_there_yet_is_on_the_disk_of_its_parent(tmp_path: Path) -> None:
    assert disk.free_bytes(tmp_path / "not" / "there") > 0


# --- a full disk, and what has to be written all the same -----------------------------------------


def test_a_failure_has_room_from_the_start_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "failure.json"
    failure = Failure(code="failed", reason="x" * 500, retryable=True, pid=7, failed_at=8)
    for _ in range(2):  # the first run of a job, and one after a failure
        forget_failure(path)
        assert read_document(path, Failure) is None
        kept = path.with_suffix(".new").stat()
        assert kept.st_blocks * 512 >= 4_096
        write_failure(path, failure)
        assert read_document(path, Failure) == failure
        assert path.stat().st_ino == kept.st_ino  # in that room, and in no other


def test_the_note_in_a_lock_is_written_over_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    WriterLock(path, "items").release()

    def cut(descriptor: int, length: int) -> None:
        assert length > 0, "that gives room away which a full disk may not give back"
        os.truncate(descriptor, length)

    monkeypatch.setattr(os, "ftruncate", cut)
    held = WriterLock(path, "items")
    with pytest.raises(OwnedElsewhere, match=f"process {os.getpid()} on "):
        WriterLock(path, "items")
    held.release()


def test_a_lock_without_room_for_its_note_is_named_and_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"

    def refused(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", refused)
        with pytest.raises(OSError, match=str(path)):
            WriterLock(path, "items")
    WriterLock(path, "items").release()


def test_memory_without_room_is_no_place_for_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(spark, "_MEMORY", memory)
    assert spark.choose_scratch(tmp_path) == memory
    monkeypatch.setattr(spark, "free_bytes", lambda _: 4_096)
    assert spark.choose_scratch(tmp_path) == tmp_path


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_a_file_that_cannot_be_read_is_not_taken_for_a_damaged_one(code: int) -> None:
    with (
        pytest.raises(OSError, match=r"part=epochs/1\.parquet") as refused,
        naming(Path("/data/part=epochs/1.parquet")),
    ):
        raise OSError(code, os.strerror(code))
    assert refused.value.errno == code
    assert not isinstance(refused.value, TableDamaged)
