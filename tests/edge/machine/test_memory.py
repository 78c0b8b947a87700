"""The available memory is that of the container, if it has a limit of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.edge.machine.memory import Memory, read_memory

GIB = 1 << 30
V2 = ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
V1 = (
    "sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "total_inactive_file",
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", f"MemTotal: {16 << 20} kB\nMemAvailable: {12 << 20} kB\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def limited(
    root: Path, names: tuple[str, str, str, str], group: str, limit: object, used: int = 0
) -> None:
    place, limit_name, used_name, droppable = names
    write(root / place / group / limit_name, f"{limit}\n")
    write(root / place / group / used_name, f"{used}\n")
    write(root / place / group / "memory.stat", f"anon 5\n{droppable} {GIB}\n")


def test_without_a_limit_it_is_the_machine_s(machine: Path) -> None:
    assert read_memory(machine) == Memory(12 * GIB, None)
    limited(machine, V2, "", "max", 3 * GIB)
    limited(machine, V1, "", 9_223_372_036_854_771_712, 3 * GIB)
    assert read_memory(machine) == Memory(12 * GIB, None)


@pytest.mark.parametrize("names", [V1, V2])
@pytest.mark.parametrize("group", ["", "docker/0123"])
def test_a_container_has_what_its_limit_leaves_and_files_that_can_be_dropped(
    machine: Path, names: tuple[str, str, str, str], group: str
) -> None:
    write(machine / "proc/self/cgroup", f"9:cpu,memory:/{group}\n0::/{group}\n")
    limited(machine, names, group, 6 * GIB, 3 * GIB)
    assert read_memory(machine) == Memory(4 * GIB, 6 * GIB)


@pytest.mark.parametrize("names", [V1, V2])
def test_a_container_that_sees_another_path_than_it_has_finds_its_limit(
    machine: Path, names: tuple[str, str, str, str]
) -> None:
    write(machine / "proc/self/cgroup", "9:memory:/docker/0123\n0::/docker/0123\n")
    limited(machine, names, "", 6 * GIB, 3 * GIB)
    assert read_memory(machine) == Memory(4 * GIB, 6 * GIB)


def test_a_limit_above_the_group_counts_too(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "0::/a.slice/b.scope\n")
    limited(machine, V2, "a.slice/b.scope", 8 * GIB, 2 * GIB)
    limited(machine, V2, "a.slice", 5 * GIB, 5 * GIB)
    assert read_memory(machine) == Memory(GIB, 5 * GIB)
