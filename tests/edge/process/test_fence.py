"""The fence: one writer per job, named to whoever else tries, and free when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.cli.main import OWNED_ELSEWHERE, describe_error
from jobs.edge.process.fence import OwnedElsewhere, WriterLock

CHECKOUT = Path(__file__).resolve().parents[3]
HOLDER = """
    import sys, time
    from pathlib import Path
    from jobs.edge.process.fence import WriterLock
    lock = WriterLock(Path(sys.argv[1]), "items")
    print("held", flush=True)
    time.sleep(300)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job" / "lock"


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(path)],
        cwd=CHECKOUT,
        text=True,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_writer_is_refused_at_once_and_told_who_holds_the_job(
    path: Path, holder: subprocess.Popen[str]
) -> None:
    began = time.monotonic()
    with pytest.raises(OwnedElsewhere, match=f"process {holder.pid} on ") as refused:
        WriterLock(path, "items")
    assert time.monotonic() - began < 1
    code, said = describe_error(refused.value)
    assert code == OWNED_ELSEWHERE
    assert "'items'" in said


def test_a_stopped_writer_still_holds_the_job(path: Path, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGSTOP)
    with pytest.raises(OwnedElsewhere, match=str(holder.pid)):
        WriterLock(path, "items")
    os.kill(holder.pid, signal.SIGCONT)
    with pytest.raises(OwnedElsewhere):
        WriterLock(path, "items")


@pytest.mark.parametrize("stopped", [False, True])
def test_a_killed_writer_holds_nothing(
    path: Path, holder: subprocess.Popen[str], stopped: bool
) -> None:
    if stopped:
        os.kill(holder.pid, signal.SIGSTOP)
    holder.kill()
    holder.wait()
    lock = WriterLock(path, "items")
    with pytest.raises(OwnedElsewhere, match=f"process {os.getpid()} on "):
        WriterLock(path, "items")
    lock.release()
    WriterLock(path, "items").release()


def test_closing_another_descriptor_of_the_file_gives_nothing_away(path: Path) -> None:
    lock = WriterLock(path, "items")
    path.read_bytes()  # opens and closes it, which would end a lock of fcntl
    with pytest.raises(OwnedElsewhere):
        WriterLock(path, "items")
    lock.release()


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff" * 5_000])
def test_a_holder_whose_note_is_damaged_is_another_process(path: Path, note: bytes) -> None:
    lock = WriterLock(path, "items")
    path.write_bytes(note)
    with pytest.raises(OwnedElsewhere, match="another process"):
        WriterLock(path, "items")
    lock.release()


def test_a_link_in_the_place_of_the_lock_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        WriterLock(path, "items")
    assert victim.read_text() == "precious"
