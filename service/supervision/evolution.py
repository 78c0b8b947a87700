"""The effect of a pending spec on the state of a job, for the admin who approves it.

spec of the state, pending spec ──► jobs.core.job.job_evolution ──► keep, replay, or drop
"""

from __future__ import annotations

from deltalake.exceptions import DeltaError

from jobs.core.job.job_evolution import JobEvolution
from jobs.table.files import NoTable
from jobs.table.version import at_newest
from schemas.spec.job import JobSpec
from schemas.table.epoch import Offsets
from service.documents import Evolution, ReplayFrom
from service.supervision.jobs import JobCatalog
from service.supervision.register import JobRecord


def describe_evolution(jobs: JobCatalog, record: JobRecord, spec: JobSpec) -> Evolution | None:
    """Return the effect of a spec as a document; None if the job has no state yet."""
    found = jobs.compare(record, spec)
    return (
        None if found is None else _make_document(found, spec, _find_start(jobs, record.name, spec))
    )


def _make_document(found: JobEvolution, spec: JobSpec, began_at: Offsets | None) -> Evolution:
    document = spec.document()
    starts = {name: each["start"] for name, each in document.get("sources", {}).items()}
    reads = ReplayFrom(list(spec.topics), starts or document["source"]["start"], began_at)
    return Evolution(
        continues=found.continues,
        replays=found.replays,
        begins=found.begins,
        reasons=[*found.fixed, *found.reasons],
        added=list(found.added),
        dropped=list(found.dropped),
        replay_from=reads if found.replays else None,
    )


def _find_start(jobs: JobCatalog, name: str, spec: JobSpec) -> Offsets | None:
    """Return the offsets from which a replay reads known topics: the first ones of the job."""
    try:
        start = at_newest(jobs.find_paths(name).table, lambda table: table.start)
    except (NoTable, DeltaError):
        return None
    if start is None:
        return None
    return {topic: at for topic, at in start.offsets.items() if topic in spec.topics}
