"""The start of a job as its page shows it: the phases with their durations.

began_at ──► process ──► topics ──► table ──► Spark ──► state ──► the first epoch
                (start.json, written by the job)              (the newest epoch row)
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.directory.reports import PHASES, READY, StartProgress
from service.console.job_view import JobView
from service.supervision.register import Actual

_FIRST_EPOCH_SHOWN_MS = 120_000
_LABELS = {
    "process": ("Start the process", "Python and its packages"),
    "topics": ("Check the topics", "a connection to the brokers"),
    "table": ("Open the table", "its newest epoch, and the offsets to start at"),
    "spark": ("Start Spark", "the JVM"),
    "state": ("Open the state", "groups, timers and the source query"),
    READY: ("Commit the first epoch", "the records since the last one"),
}


@dataclass(frozen=True, slots=True)
class PhaseView:
    label: str
    note: str
    status: str  # done, running or waiting
    seconds: float | None  # since its begin, or how long it took

    @property
    def seconds_known(self) -> float:
        return self.seconds or 0.0


def list_phases(job: JobView, start: StartProgress | None, now_ms: int) -> list[PhaseView]:
    """Return the phases of an unfinished start; nothing once an epoch was committed."""
    record = job.record
    if record.began_at is None or record.pid is None:
        return []
    committed = job.committed_ms is not None and job.committed_ms >= record.began_at
    ran = now_ms - record.began_at
    waits = record.actual == Actual.RUNNING and not committed and ran < _FIRST_EPOCH_SHOWN_MS
    if record.actual != Actual.STARTING and not waits:
        return []
    begins = {"process": record.began_at}
    if start is not None and start.pid == record.pid:
        begins |= {phase.name: phase.began_at for phase in start.phases}
    names = ["process", *PHASES]
    known = [name for name in names if name in begins]
    views = []
    for name in names:
        label, note = _LABELS[name]
        if name not in begins:
            views.append(PhaseView(label, note, "waiting", None))
            continue
        later = known[known.index(name) + 1 :]
        end = begins[later[0]] if later else now_ms
        status = "done" if later else "running"
        views.append(PhaseView(label, note, status, max(0, end - begins[name]) / 1_000))
    return views
