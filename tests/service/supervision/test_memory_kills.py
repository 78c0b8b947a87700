"""The service knows when the kernel has killed a process of its container for want of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.supervision.job_process import count_memory_kills


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n"),
        ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ],
)
def test_the_kills_of_the_group_are_counted(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert count_memory_kills(tmp_path) == 2


def test_without_a_group_there_are_none(tmp_path: Path) -> None:
    assert count_memory_kills(tmp_path) == 0
    (tmp_path / "memory.events").write_text("low 0\n")
    assert count_memory_kills(tmp_path) == 0
