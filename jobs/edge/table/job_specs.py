"""The specs beside a job's table: that of the job, and one for the readers of each view.

    evolve: spec.next.yaml ──► commit ──► views/*.yaml ──► spec.yaml ──► no spec.next.yaml

The table decides which spec holds. If a kill comes after the commit, the next reader or command
finishes the steps; each of them may be repeated.
"""

from __future__ import annotations

import shutil
from contextlib import suppress

from deltalake import DeltaTable

from jobs.core.job.views import has_state_of
from jobs.edge.process.job_directory import JobDirectory
from jobs.reading.epoch_rows import newest_of_job
from jobs.reading.files import live_files
from schemas.spec.file import load_spec, write_spec
from schemas.spec.job import JobSpec
from schemas.table.object_path import TablePath
from schemas.table.view_path import view_root


def write_specs(spec: JobSpec, paths: JobDirectory, table: TablePath | None = None) -> None:
    """Write the spec of the job, and that of each view; remove those of views that are gone.

    `table` is a new table that is not yet the job's.
    """
    root = paths.table if table is None else table
    if spec.views is not None:
        paths.view_specs.mkdir(parents=True, exist_ok=True)
        for name, view in spec.view_specs.items():
            if name:
                write_spec(paths.at_view(name).spec, view)
                view_root(root, name).mkdir(parents=True, exist_ok=True)  # readers go through it
    for path in paths.view_specs.glob("*.yaml") if paths.view_specs.is_dir() else ():
        if path.stem not in (spec.views or {}):
            path.unlink(missing_ok=True)
    write_spec(paths.spec, spec)


def remove_dropped_mirrors(spec: JobSpec, paths: JobDirectory) -> None:
    """Remove the mirrors of views that the committed spec lacks. Hold the job's lock."""
    known = spec.view_specs
    found = [path.parent.name for path in paths.view_specs.glob("*/results")]
    for view in (*found, ""):
        if view not in known:
            dropped = paths.at_view(view)
            shutil.rmtree(dropped.results, ignore_errors=True)
            dropped.mirror.unlink(missing_ok=True)
            if view:
                with suppress(OSError):  # a file of somebody else is in it
                    dropped.results.parent.rmdir()


def take_next_spec(paths: JobDirectory) -> None:
    """Make the spec of a committed evolve the job's spec; safe to call more than once."""
    with suppress(FileNotFoundError):
        write_specs(load_spec(paths.next_spec), paths)
        paths.next_spec.unlink()


def resolve_next_spec(paths: JobDirectory, handle: DeltaTable) -> None:
    """Finish an evolve that was killed after its commit; `handle` is the table's newest version."""
    if not paths.next_spec.exists():
        return
    newest = newest_of_job(paths.table, live_files(handle))  # both as the view sees them
    with suppress(FileNotFoundError):
        known, spec = load_spec(paths.at_view("").spec), load_spec(paths.next_spec)
        if newest is not None and has_state_of(newest, spec, known):
            take_next_spec(paths.at_view(""))
