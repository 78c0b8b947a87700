"""Read the results of jobs as Arrow tables, each at one epoch.

    job, moment ──► TableReader ──► rows at the epoch ──► Arrow, typed as in the job's table

A TIMESTAMP has microseconds, as in the table, because values keep the digits that their precision
does not have. With more than six digits it is text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.core.job.job_plan import plan_of
from jobs.core.values.change import Row
from jobs.core.values.json_values import renderer
from jobs.edge.process.job_directory import (
    JobDirectory,
    UnknownJob,
    find_job,
    find_view,
    list_jobs,
    list_views,
)
from jobs.edge.table.reading import TableReader, read_with_retries
from jobs.querying.kept import JobResults, KeptResults
from jobs.querying.statement import Moment, StatementRefused, quote_name
from jobs.reading.epoch_rows import newest_epoch
from jobs.reading.history import HistoryGone
from jobs.reading.row_shape import RowShape
from schemas import limits
from schemas.spec.file import SpecError, load_spec
from schemas.types.arrow_types import arrow_type
from schemas.types.arrow_values import to_arrow
from schemas.types.sql_types import Kind, SqlType

_kept = KeptResults()


def read_job(data: Path, job: str, moment: Moment) -> JobResults:
    """Return the results of a job; raise StatementRefused if there are none at the moment."""
    started_ns, when = time.time_ns(), (moment.epoch, moment.time_us)

    def read(table: TableReader) -> JobResults:
        epoch = moment.epoch
        if moment.time_us is not None:
            epoch = table.find_epoch(moment.time_us)
        found = table.results(epoch)
        if len(found) > limits.SQL_GROUPS_MAX:
            raise StatementRefused(
                f"job {quote_name(job)} has {len(found)} groups, and a statement reads at "
                f"most {limits.SQL_GROUPS_MAX}; read its table with another engine"
            )
        rows = [table.shape.values(*row) for row in found.items()]
        if epoch is None:  # `table.newest` reads the rows of all epochs, and says if there is none
            epoch = (newest_epoch(table.root, table.files) or table.newest).epoch
        results = JobResults(epoch, _make_table(table.shape, rows))
        _kept.add(table, when, results, started_ns)
        return results

    try:
        name, _, view = job.partition(".")
        paths = find_view(find_job(data, name), view)
        return _kept.find(paths, when) or read_with_retries(paths, read)
    except HistoryGone as error:
        raise StatementRefused(f"job {quote_name(job)}: {error}") from None
    except UnknownJob:
        raise StatementRefused(f"job {quote_name(job)} has been deleted") from None
    except SpecError as error:
        reason = "cannot be read: its spec.yaml is damaged; PUT the job again, or restore the file"
        raise StatementRefused(f"job {quote_name(name)} {reason}") from error


def make_empty(data: Path, job: str) -> pa.Table:
    """Return the columns of a job without rows; none if its spec cannot be read."""
    name, _, view = job.partition(".")
    try:
        spec = load_spec(JobDirectory(data.absolute(), name).at_view(view).spec)
    except (SpecError, OSError):
        return pa.table({})
    return _make_table(RowShape(plan_of(spec)), [])


def _make_table(shape: RowShape, rows: list[Row]) -> pa.Table:
    types = shape.types
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(types)
    arrays = [
        make_column(values, kind) for values, kind in zip(columns, types.values(), strict=True)
    ]
    return pa.table(arrays, names=list(types))


def list_tables(data: Path) -> list[str]:
    """Return the names of the tables: JOB for a job's own query, JOB.VIEW for a view.

    A job with a damaged spec is listed, so that only statements that name it are refused.
    """
    names: list[str] = []
    for job in list_jobs(data):
        views = list_views(JobDirectory(data.absolute(), job))
        if not views or _has_own_query(JobDirectory(data.absolute(), job)):
            names.append(job)
        names += [f"{job}.{view}" for view in views]
    return names


def _has_own_query(paths: JobDirectory) -> bool:
    try:
        return bool(load_spec(paths.spec).query)
    except (SpecError, OSError):
        return True


def make_column(values: Sequence[Any], kind: SqlType) -> pa.Array:
    """Return values as DuckDB reads them: as in the job's table, but long fractions as text."""
    item = kind.items[0] if kind.kind is Kind.ARRAY else kind
    if item.textual_time:
        return pa.array(list(map(renderer(kind), values)), arrow_type(kind))
    return to_arrow(values, kind)
