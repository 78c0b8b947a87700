"""Recognise errors of a disk, whichever library raised them.

    any exception ──► the kernel's text for the error, in it or in its causes
                        └─► DiskRefused: which file system, what is wrong, what to do

Python, Arrow, LMDB, delta-rs, Spark and the JVM wrap the kernel's errors in different ways, and
some name no file. But the kernel's text is the same in all of them, and a check of the paths that
a job writes to shows which file system refuses. For a task of an executor Spark names the host.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from schemas.failures.catalogue import CodedError
from schemas.limits import REASON_CHARACTERS_MAX

_CAUSES_MAX = 10
_ORNAMENTS = re.compile("\x1b\\[[0-9;]*m|↳")
# As Spark names the executor of a lost task; in a local session the executor is "driver".
_EXECUTOR = re.compile(r"\((\S+) executor \d+\)")
_TEXT_MAX = REASON_CHARACTERS_MAX // 2
_MIB = 1 << 20
_MAKE_ROOM = "make room, then the job resumes"
# A write that a full disk refuses may leave some room; with more than this share it was not full.
_FREE_SHARE_OF_FULL = 0.1
# A hot state is never synced: it relies on its files having all writes while the machine is up.
_DELETE_CACHE = (
    "and delete the job's part of DIR/cache, because writes that had not reached the disk are lost"
)


class DiskRefused(CodedError, code="disk-refused"):
    """A disk is full, read-only or broken; the job resumes once the disk works again."""


def find_refusal(error: BaseException, paths: Sequence[Path]) -> DiskRefused | None:
    """Return what an error says about the disks of `paths`; None if it is another error."""
    for line in _read_lines(error):
        for text, describe in _DESCRIPTIONS.items():
            if text in line:
                problem, advice = describe(paths)
                if host := _find_executor_host(error):  # our own disks say nothing about its
                    problem = f"an executor's host, {host}, {_REMOTE[describe]}"
                return DiskRefused(f"the disk of {problem}: {line[-_TEXT_MAX:]}; {advice}")
    return None


def free_bytes(path: Path) -> int:
    """Return the free bytes of the file system of a path, which need not exist yet."""
    status = _read_status(path)
    return status.f_bavail * status.f_frsize


def _free_share(path: Path) -> float:
    """Return the free share of the file system of a path; 0 if it has no blocks."""
    status = _read_status(path)
    return status.f_bavail / status.f_blocks if status.f_blocks else 0.0


def _describe_full(paths: Sequence[Path]) -> tuple[str, str]:
    path = min(paths, key=_free_share)
    status = _read_status(path)
    free, total = free_bytes(path) / _MIB, status.f_blocks * status.f_frsize / _MIB
    room = f"{free:.1f} of {total:.1f} MiB are free now"
    if _free_share(path) > _FREE_SHARE_OF_FULL:
        return f"a task's host is full, or one emptied since ({path}: {room})", _MAKE_ROOM
    return f"{path} is full ({room})", _MAKE_ROOM


def _describe_read_only(paths: Sequence[Path]) -> tuple[str, str]:
    found = [path for path in paths if _read_status(path).f_flag & os.ST_RDONLY]
    return f"{_name_disks(found or paths)} is read-only", f"mount it again, {_DELETE_CACHE}"


def _describe_broken(paths: Sequence[Path]) -> tuple[str, str]:
    problem = f"{_name_disks(paths)} fails"
    return problem, f"see the kernel's log, repair it, {_DELETE_CACHE}"


def _name_disks(paths: Sequence[Path]) -> str:
    disks = {_read_status(path).f_fsid: path for path in reversed(paths)}
    return " or ".join(str(disks[fsid]) for fsid in reversed(disks))


_Describe = Callable[[Sequence[Path]], tuple[str, str]]
_DESCRIPTIONS: dict[str, _Describe] = {
    os.strerror(errno.ENOSPC): _describe_full,
    os.strerror(errno.EDQUOT): _describe_full,
    os.strerror(errno.EROFS): _describe_read_only,
    os.strerror(errno.EIO): _describe_broken,
}
_REMOTE: dict[_Describe, str] = {
    _describe_full: "is full",
    _describe_read_only: "is read-only",
    _describe_broken: "fails",
}


def _find_executor_host(error: BaseException) -> str | None:
    """Return the host of the executor whose task failed; None if it was in this process."""
    for each in _follow_causes(error):
        if found := _EXECUTOR.search(_read_text(each)):
            return found[1]
    return None


def _read_lines(error: BaseException) -> Iterator[str]:
    """Yield the lines of an error and of its causes, each from the last line, which names it.

    delta-rs colours its lines.
    """
    for each in _follow_causes(error):
        yield from (
            _ORNAMENTS.sub("", line).strip() for line in reversed(_read_text(each).splitlines())
        )


def _read_text(error: BaseException) -> str:
    """Return the text of an exception, with the rest of Spark's before its cause."""
    return "\n".join([*getattr(error, "__notes__", ()), str(error)])


def _follow_causes(error: BaseException) -> Iterator[BaseException]:
    each: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if each is None:
            return
        yield each
        each = each.__cause__ or each.__context__


def _read_status(path: Path) -> os.statvfs_result:
    """Return the status of the file system of a path, or of its first parent that exists."""
    while True:
        try:
            return os.statvfs(path)
        except FileNotFoundError:
            path = path.parent
