"""Classify the failure of a job: its code, and whether another start may succeed.

    exception ──► code, retryable ──► DIR/jobs/<name>/failure.json ──► the supervisor

An exception outside of the table counts as temporary (a broker is down, a worker was killed): a
start in vain costs little, but a job that stops for good needs a person. A full disk is temporary,
too, but has its own code, because a person must make room.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from jobs.core.fold.laws import BrokenLaw
from jobs.core.time.custom_generator import GeneratorFailed
from jobs.edge.kafka.source import SourceChanged
from jobs.edge.machine.disk import DiskRefused, find_refusal
from jobs.edge.publisher.handle import PublisherFailed
from jobs.edge.publisher.job_publisher import HistoryMissing, SinkAhead
from jobs.edge.spark.executors import NoExecutors
from jobs.edge.state.catch_up import ZombieTask
from jobs.edge.table.delta_epochs import Fenced
from jobs.running.outcome import InputRefused
from jobs.table.files import FormatTooNew, FormatTooOld
from schemas.directory.failure import Failure, failure_kinds, write_failure
from schemas.limits import REASON_CHARACTERS_MAX, STACK_CHARACTERS_MAX
from schemas.spec.broker_address import AddressRefused
from schemas.spec.connections import UnknownConnectionError
from schemas.table.parquet_file import TableDamaged
from schemas.types.moments import now_ms

UNKNOWN = "failed"
_KINDS = failure_kinds()  # read now: later the disk may be the failure


class SpecMisfit(Exception):
    """The spec does not fit the job's state; the message says what to do."""


class Overtaken(Exception):
    """Another driver committed before each claim of this one; the next start tries again."""


_CODES: dict[type[Exception], str] = {
    SpecMisfit: "spec-misfit",
    SourceChanged: "source-changed",
    InputRefused: "input-refused",
    FormatTooNew: "format-too-new",
    FormatTooOld: "format-too-old",
    TableDamaged: "table-damaged",
    BrokenLaw: "law-broken",
    HistoryMissing: "history-missing",
    SinkAhead: "sink-ahead",
    UnknownConnectionError: "connection-unknown",
    AddressRefused: "address-refused",
    Fenced: "fenced",
    ZombieTask: "hot-state-ahead",
    GeneratorFailed: "generator-failed",
    Overtaken: "overtaken",
    NoExecutors: "no-executors",
    DiskRefused: "disk-refused",
}
_SAME_IN_PUBLISHER = ("fenced", "history-missing")  # the others are publisher-CODE


def classify(error: BaseException) -> tuple[str, bool]:
    """Return the code of a failure, and whether another start may succeed."""
    code = _find_code(error)
    kind = _KINDS.get(code)
    return code, kind is None or kind.again


def _find_code(error: BaseException) -> str:
    if isinstance(error, PublisherFailed):
        code = error.fatal.code.replace("_", "-")
        return code if code in _SAME_IN_PUBLISHER else f"publisher-{code}"
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), UNKNOWN)


def name_disk(error: Exception, paths: Sequence[Path]) -> Exception:
    """Return a DiskRefused if a disk of the job caused the failure, or else the failure itself."""
    refused = find_refusal(error, paths) if _find_code(error) == UNKNOWN else None
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
