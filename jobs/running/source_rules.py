"""Make the source rules of a job: the part of its spec by which tasks read messages."""

from __future__ import annotations

from jobs.core.formats.registry import MessageRules
from jobs.core.plan.tree import Plan
from jobs.core.rows.row_time import time_column
from jobs.core.sql.marker import Marker
from jobs.edge.tasks.range_reading import SourceRules
from schemas.spec.job import JobSpec


def make_source_rules(spec: JobSpec, plan: Plan) -> SourceRules:
    """Return the rules by which tasks read the messages of a job."""
    column, marker = time_column(spec.watermark, plan.columns), spec.watermark.marker
    return SourceRules(
        MessageRules.of(spec),
        time="column" if column is not None else str(spec.watermark.time),
        time_column=column,
        marker=None if marker is None else Marker.of(marker, spec.columns),
    )
