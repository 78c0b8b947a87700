"""Disks that a test can fill, make read-only and break.

    small_disk     a tmpfs of some MiB; Ballast takes all of its space, and returns it
    failing_disk   ext4 in a file, which the kernel makes read-only after an error
    refusing       a command prefix: the kernel refuses some system calls of the command

Mounting needs root, and `refusing` needs strace. Otherwise tests are skipped with the reason.
"""

from __future__ import annotations

import errno
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

MIB = 1 << 20
_PRESSURE_SECONDS = 0.02


def _mounted(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as missing:
        pytest.skip(f"NOT TRIED: {missing}")
    if done.returncode != 0:
        pytest.skip(f"NOT TRIED: {' '.join(command)}: {done.stderr.strip()}")


def _unmounted(place: Path) -> None:
    """Unmount lazily, because a dying process may still use the disk."""
    subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


@contextmanager
def small_disk(place: Path, mebibytes: int) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    _mounted("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=700", "small", str(place))
    try:
        yield
    finally:
        _unmounted(place)


class Ballast:
    """Takes all space of a file system, also space that becomes free later."""

    def __init__(self, place: Path) -> None:
        self._path = place / "ballast"
        self._lifted = threading.Event()
        self._pressing = threading.Thread(target=self._press, name="ballast")

    def __enter__(self) -> Self:
        self._fill()
        self._pressing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._lifted.set()
        self._pressing.join()
        self._path.unlink()

    def _press(self) -> None:
        while not self._lifted.wait(_PRESSURE_SECONDS):
            self._fill()

    def _fill(self) -> None:
        with self._path.open("ab", buffering=0) as file:
            for size in (MIB, 64 * 1024, 4 * 1024):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError as full:
                    assert full.errno == errno.ENOSPC, full


class FailingDisk:
    """ext4 on a loop device; on an error the kernel makes it read-only (errors=remount-ro)."""

    def __init__(self, place: Path, image: Path, mebibytes: int) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        with image.open("wb") as file:
            file.truncate(mebibytes * MIB)
        _mounted("mkfs.ext4", "-q", "-F", str(image))
        _mounted("losetup", "--find", str(image))
        found = subprocess.run(
            ["losetup", "--noheadings", "--output", "NAME", "--associated", str(image)],
            check=True,
            capture_output=True,
            text=True,
        )
        self._device = found.stdout.strip()
        self._mount()

    def _mount(self) -> None:
        _mounted("mount", "-o", "errors=remount-ro", self._device, str(self.place))

    def fail(self) -> None:
        """Cause the kernel's reaction to damage or to a failed write of metadata."""
        name = Path(self._device).name
        (Path("/sys/fs/ext4") / name / "trigger_fs_error").write_text("1")

    def mend(self) -> None:
        subprocess.run(["umount", str(self.place)], check=True)
        checked = subprocess.run(["e2fsck", "-f", "-p", self._device], capture_output=True)
        assert checked.returncode in (0, 1), checked.stdout  # 1: mended
        self._mount()

    def close(self) -> None:
        _unmounted(self.place)
        subprocess.run(["losetup", "--detach", self._device], check=True)


@contextmanager
def failing_disk(place: Path, image: Path, mebibytes: int) -> Iterator[FailingDisk]:
    disk = FailingDisk(place, image, mebibytes)
    try:
        yield disk
    finally:
        disk.close()


def refusing(
    calls: str, error: str, trace: Path, *, since: int = 1, file: Path | None = None
) -> Sequence[str]:
    """Return a command prefix that makes the kernel refuse system calls.

    It refuses each thread's calls from number `since` on, or only those about one file. The file
    `trace` gets a line for each.
    """
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("NOT TRIED: there is no strace")
    only = [] if file is None else ["--trace-path", str(file)]
    return [
        strace,
        "--follow-forks",
        "--seccomp-bpf",
        "--quiet=all",
        "--output",
        str(trace),
        *only,
        "--trace",
        calls,
        "--inject",
        f"{calls}:error={error}:when={since}+",
    ]


def refused(trace: Path) -> int:
    return trace.read_text().count("(INJECTED)") if trace.exists() else 0
