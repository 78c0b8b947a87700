"""What a pending spec would make of a job, for whoever is to approve it.

spec of the state, pending spec ──► jobs.core.job.evolution ──► keep, replay, or begin anew
"""

from __future__ import annotations

from typing import Any

from deltalake.exceptions import DeltaError

from jobs.core.job.evolution import Evolution
from schemas.spec.job import JobSpec
from schemas.table.epoch import Offsets
from service.runtime import Runtime
from service.supervision.jobs import Jobs
from service.supervision.register import JobRecord
from service.table.job_table import NoTable, at_newest


def told(runtime: Runtime, record: JobRecord, spec: JobSpec) -> dict[str, Any] | None:
    """As a document; None where the job has no state yet."""
    found = runtime.jobs.difference(record, spec)
    return None if found is None else described(found, spec, _began_at(runtime.jobs, record.name))


def described(found: Evolution, spec: JobSpec, began_at: Offsets | None) -> dict[str, Any]:
    reads = {
        "topics": list(spec.source.topics),
        "start": spec.document()["source"].get("start", "earliest"),
        "offsets": began_at,
    }
    return {
        "continues": found.continues,
        "replays": found.replays,
        "begins": found.begins,
        "reasons": [*found.fixed, *found.reasons],
        "added": list(found.added),
        "dropped": list(found.dropped),
        "replay_from": reads if found.replays else None,
    }


def _began_at(jobs: Jobs, name: str) -> Offsets | None:
    """The offsets that a replay reads from: those of the job's first start."""
    try:
        start = at_newest(jobs.places(name).table, lambda table: table.start)
    except (NoTable, DeltaError):
        return None
    return None if start is None else start.offsets
