"""The limits of this process that a job outgrows, by the options of the shell's `ulimit`.

Processes that a job starts have the limits of the job. Under a low one Java ends at its start with
words that name everything but the limit. This file uses the standard library only, as java.py does.
"""

from __future__ import annotations

import resource

from schemas import limits
from schemas.limits import JOB_ADDRESS_BYTES_MIN, JOB_DESCRIPTORS_MIN

_KIB, _GIB = 1 << 10, 1 << 30


class LimitTooLow(RuntimeError):
    """A limit of the process is too low for a job; the message says which, and what to do."""


def require_limits() -> None:
    """Raise the limit of open files as far as a job needs; raise LimitTooLow if a limit is hard."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _is_below(soft, JOB_DESCRIPTORS_MIN) and not _is_below(hard, JOB_DESCRIPTORS_MIN):
        resource.setrlimit(resource.RLIMIT_NOFILE, (JOB_DESCRIPTORS_MIN, hard))
    if low := describe_low_limits():
        raise LimitTooLow(low)


def count_open_states() -> int:
    """Return how many hot states of one kind this process may keep open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return limits.HOT_STATES_OPEN_MAX
    return min(limits.HOT_STATES_OPEN_MAX, files // limits.DESCRIPTORS_OF_A_HOT_STATE)


def describe_low_limits() -> str:
    """Return which limits are too low for a job, and what to do; "" if none is."""
    low = []
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if _is_below(files, JOB_DESCRIPTORS_MIN):
        low.append(
            f"the limit of open files is {files:,}, and a job needs {JOB_DESCRIPTORS_MIN:,}: "
            f"ulimit -n {JOB_DESCRIPTORS_MIN}"
        )
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if _is_below(space, JOB_ADDRESS_BYTES_MIN):
        low.append(
            f"the limit of address space is {space // _KIB:,} KiB, and Java alone reserves "
            f"{JOB_ADDRESS_BYTES_MIN // _GIB} GiB: ulimit -v unlimited"
        )
    return "; ".join(low)


def describe_limits() -> str:
    """Return the limits that a job may outgrow."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    return f"{_show(files)} open files, {_show(space)} bytes of address space"


def _is_below(limit: int, least: int) -> bool:
    return limit != resource.RLIM_INFINITY and limit < least


def _show(limit: int) -> str:
    return "any number of" if limit == resource.RLIM_INFINITY else f"{limit:,}"
