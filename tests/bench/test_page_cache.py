"""A measurement's files are cold where it says so, and its memory no more than it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.page_cache import forget, room
from bench.process_tree import read_bytes

MIB = 2**20
_READ = """
import sys
sys.stdin.readline()
for _ in range(2):
    with open(sys.argv[1], "rb") as file:
        while file.read(1 << 20): pass
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True, check=True
    ).stdout.strip()
    if kind in {"tmpfs", "ramfs"}:
        pytest.skip(f"{tmp_path} is in memory, and cannot be forgotten")
    path = tmp_path / "state"
    path.write_bytes(os.urandom(64 * MIB))
    return path


def test_files_that_are_forgotten_are_read_from_the_disk_again(state: Path) -> None:
    before = read_bytes(os.getpid())
    state.read_bytes()
    cached = read_bytes(os.getpid()) - before
    forget(state.parent)
    state.read_bytes()
    assert cached < MIB
    assert read_bytes(os.getpid()) - before - cached >= 64 * MIB


def test_what_reads_in_a_little_room_keeps_no_more_than_that(state: Path) -> None:
    forget(state.parent)
    with room(32 * MIB) as little:
        if little is None:
            pytest.skip("nothing here lets memory be bounded: that takes root and control groups")
        command = [sys.executable, "-c", _READ, str(state)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as reader:
            little.take(reader.pid)
            reader.communicate("go\n")
        assert reader.returncode == 0
    before = read_bytes(os.getpid())
    state.read_bytes()
    assert read_bytes(os.getpid()) - before >= 32 * MIB, "half of it could not be kept"


def test_room_is_given_back_when_the_last_process_in_it_has_ended() -> None:
    with room(32 * MIB) as little:
        if little is None:
            pytest.skip("nothing here lets memory be bounded: that takes root and control groups")
        late = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"])
        little.take(late.pid)
    late.wait()
    assert not little.group.exists()
