"""Classify the failure of a job: its code, and whether another start may succeed.

    exception ──► code, retryable ──► DIR/jobs/<name>/failure.json ──► the supervisor

An exception without a code counts as temporary (a broker is down, a worker was killed): a start in
vain costs little, but a job that stops for good needs a person. A full disk is temporary, too, but
has its own code, because a person must make room.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from jobs.edge.machine.disk import find_refusal
from schemas.directory.failure import Failure, write_failure
from schemas.failures.catalogue import UNKNOWN, CodedError, failure_kinds, is_retryable
from schemas.limits import REASON_CHARACTERS_MAX, STACK_CHARACTERS_MAX
from schemas.types.moments import now_ms

failure_kinds()  # read now: later the disk may be the failure


class SpecMisfit(CodedError, code="spec-misfit"):
    """The spec does not fit the job's state; the message says what to do."""


class Overtaken(CodedError, code="overtaken"):
    """Another driver committed before each claim of this one; the next start tries again."""


def classify(error: BaseException) -> tuple[str, bool]:
    """Return the code of a failure, and whether another start may succeed."""
    code = error.code if isinstance(error, CodedError) else UNKNOWN
    return code, is_retryable(code)


def name_disk(error: Exception, paths: Sequence[Path]) -> Exception:
    """Return a DiskRefused if a disk of the job caused the failure, or else the failure itself."""
    refused = find_refusal(error, paths) if classify(error)[0] == UNKNOWN else None
    if refused is None:
        return error
    refused.__cause__ = error
    return refused


def report_failure(path: Path, error: BaseException) -> None:
    """Write failure.json; an OSError here must not hide the failure itself."""
    code, retryable = classify(error)
    reason = " ".join(str(error).split())[:REASON_CHARACTERS_MAX]
    stack = "".join(traceback.format_exception(error))[-STACK_CHARACTERS_MAX:]
    failure = Failure(
        code=code,
        reason=reason,
        retryable=retryable,
        pid=os.getpid(),
        failed_at=now_ms(),
        stack=stack,
    )
    with suppress(OSError):
        write_failure(path, failure)
