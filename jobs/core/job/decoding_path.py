"""Describe which decoding path a job takes: scanned in batches, or message by message."""

from __future__ import annotations

from jobs.core.formats.scanned import SCANNED_FORMATS, is_scannable
from jobs.core.plan.tree import Column
from schemas.spec.job import JobSpec
from schemas.spec.watermark import RowTime


def describe_decoding_path(spec: JobSpec, columns: tuple[Column, ...]) -> str:
    """Return the decoding path of a job, and why if it is the slow one."""
    format = SCANNED_FORMATS.get(spec.source.format)
    times = [each.time for each in spec.strategies.values()]
    unknown = [column for column in columns if not is_scannable(column.type, format)]
    if format is None:
        why = f"the format is {spec.source.format}"
    elif unknown:
        why = f"column {unknown[0].name} is {unknown[0].type}"
    elif any(each.in_order for each in spec.strategies.values()):
        why = "the watermark follows the rows in their order"
    elif any(isinstance(time, RowTime) and time.expression is not None for time in times):
        why = "the time of a row is an expression"
    else:
        return "scanned, many messages at once"
    return f"message by message, because {why}"
