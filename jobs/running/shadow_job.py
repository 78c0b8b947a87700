"""Discard the shadow job of an evolve, which has read the topic again, once nobody needs it.

evolve --replay ──► shadow job ──► commit of the job ──► discard
                         │             └─ killed: the next start of the job discards it
                         └─ killed: the same command continues it, for a week
"""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import suppress

from deltalake import DeltaTable

from jobs.edge.process.fence import OwnedElsewhere, WriterLock
from jobs.edge.state.bucket_states import hot_state_of
from jobs.table.epoch_rows import newest_of_job
from jobs.table.files import live_files, open_table
from schemas.directory.paths import JobDirectory, discard
from schemas.limits import SHADOW_UNUSED_SECONDS_MAX
from schemas.table.epoch import EpochRow

log = logging.getLogger(__name__)


def discard_shadow(paths: JobDirectory) -> None:
    """Delete the shadow job with its hot states on this host."""
    shadow = paths.shadow
    if shadow.has_table:
        with suppress(FileNotFoundError):
            handle = open_table(shadow.table)
            views = [path.stem for path in shadow.view_specs.glob("*.yaml")]
            for view in ("", *views):
                discard_hot_state(shadow.at_view(view), handle)
    discard(shadow.data)


def discard_hot_state(paths: JobDirectory, handle: DeltaTable) -> None:
    """Delete the hot state of a view of this table on this host."""
    shutil.rmtree(hot_state_of(paths, handle), ignore_errors=True)


def discard_left_shadow(paths: JobDirectory, newest: EpochRow) -> None:
    """Delete the shadow job of a killed evolve if the job at `newest` does not need it.

    Hold the job's lock. A failure costs only disk space; the next start tries again.
    """
    shadow = paths.shadow
    if not shadow.data.exists():
        return
    try:
        used_at = _find_last_use(shadow)  # before the lock, which changes the directory
        lock = WriterLock(shadow.lock, shadow.name)
    except OwnedElsewhere:
        return  # it is reading
    except OSError as error:
        log.warning("cannot inspect the shadow job of an evolve, trying again later: %s", error)
        return
    try:
        row = _read_newest(shadow)
        known = used_at if row is None else max(used_at, row.committed_at / 1e6)
        taken = row is not None and row.plans.items() <= newest.plans.items()
        if taken or time.time() - known > SHADOW_UNUSED_SECONDS_MAX:
            discard_shadow(paths)
            log.info("deleted the shadow job that an evolve has left")
    except Exception as error:
        log.warning("cannot delete the shadow job of an evolve, trying again later: %s", error)
    finally:
        lock.release()


def _find_last_use(shadow: JobDirectory) -> float:
    """Return when a command has last created or continued the shadow job."""
    paths = [path for path in (shadow.data, shadow.spec) if path.exists()]
    return max(path.stat().st_mtime for path in paths)


def _read_newest(shadow: JobDirectory) -> EpochRow | None:
    if not shadow.has_table:
        return None  # it was killed while it created the table
    return newest_of_job(shadow.table, live_files(open_table(shadow.table)))
