"""Failures of a job by kind: which of them another start cannot heal.

    exception ──► code, retryable ──► DIR/jobs/<name>/failure.json ──► whoever supervises

What is not in the table is taken for something that passes (a broker, a worker that was killed): to
start in vain costs little, and to stop for good wakes somebody. A full disk passes as well, but has
a code of its own: somebody has to make room.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from jobs.core.fold.laws import BrokenLaw
from jobs.edge.kafka.source import SourceChanged
from jobs.edge.process.disk import DiskRefused, disk_refused
from jobs.edge.publisher.handle import PublisherFailed
from jobs.edge.publisher.job_publisher import HistoryMissing, SinkAhead
from jobs.edge.state.hot_state import ZombieTask
from jobs.edge.table.delta_epochs import Fenced, FormatTooNew, FormatTooOld
from jobs.edge.table.epoch_files import now_ms
from jobs.running.outcome import InputRefused
from schemas.limits import REASON_CHARACTERS_MAX
from schemas.spec.broker_address import AddressRefused
from schemas.spec.connections import UnknownConnectionError
from schemas.table.failure import Failure, write_failure
from schemas.table.parquet_file import TableDamaged

UNKNOWN, DISK_REFUSED = "failed", "disk-refused"


class SpecMisfit(Exception):
    """The spec does not fit the state that the job has; the message says what to do."""


_FOR_GOOD: dict[type[Exception], str] = {
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
}
# The publisher's own words; "unreachable" and "crashed" may pass.
_PUBLISHER_FOR_GOOD = frozenset(
    {
        "fenced", "refused", "address_refused", "sink_taken", "sink_changed", "gap",
        "broken_changelog",
    }
)  # fmt: skip


def kind_of(error: BaseException) -> tuple[str, bool]:
    """The code of a failure, and whether another start may heal it."""
    if isinstance(error, PublisherFailed):
        code = error.fatal.code.replace("_", "-")
        name = code if code == "fenced" else f"publisher-{code}"
        return name, error.fatal.code not in _PUBLISHER_FOR_GOOD
    for kind, code in _FOR_GOOD.items():
        if isinstance(error, kind):
            return code, False
    return (DISK_REFUSED if isinstance(error, DiskRefused) else UNKNOWN), True


def explained(error: Exception, places: Sequence[Path]) -> Exception:
    """The failure itself, or what it says about a disk that the job writes to."""
    refused = disk_refused(error, places) if kind_of(error)[0] == UNKNOWN else None
    if refused is None:
        return error
    refused.__cause__ = error
    return refused


def leave_word(path: Path, error: BaseException) -> None:
    """Write down why the job ended; that this fails must not hide why."""
    code, retryable = kind_of(error)
    reason = " ".join(str(error).split())[:REASON_CHARACTERS_MAX]
    failure = Failure(
        code=code, reason=reason, retryable=retryable, pid=os.getpid(), failed_at=now_ms()
    )
    with suppress(OSError):
        write_failure(path, failure)
