"""Discard the shadow job of an evolve, which has read the topic again, once nobody needs it.

evolve --replay ──► shadow job ──► commit of the job ──► discard: rename ──► delete
                         │             │                             └─ killed: the next start or
                         │             │                                evolve deletes the rest
                         │             └─ killed: the next start of the job discards it
                         └─ killed: the same command continues it, for a week
"""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import suppress

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from jobs.edge.process.fence import OwnedElsewhere, WriterLock
from jobs.edge.state.bucket_states import hot_state_of
from jobs.reading.epoch_rows import newest_of_job
from jobs.reading.files import UNREADABLE, FormatUnknown, live_files, open_table
from jobs.reading.version import TableVersion
from schemas.directory.paths import JobDirectory, discard
from schemas.limits import SHADOW_UNUSED_SECONDS_MAX
from schemas.table.epoch import EpochRow
from schemas.table.parquet_file import TableDamaged

log = logging.getLogger(__name__)

# The table is no table to continue. If only its storage fails (OSError), it may be whole.
_BROKEN = (FileNotFoundError, FormatUnknown, TableDamaged, DeltaError, ValueError)


def discard_shadow(paths: JobDirectory) -> None:
    """Delete the shadow job with its hot states on this host, and the rest of earlier ones.

    The directory is renamed before it is deleted: a kill leaves it whole, or no shadow job.
    """
    shadow = paths.shadow
    if shadow.has_table:
        with suppress(*UNREADABLE, ValueError):  # without the table's id they cannot be found
            for hot_state in shadow.list_hot_states(TableVersion(shadow.table).id):
                shutil.rmtree(hot_state, ignore_errors=True)
    with suppress(FileNotFoundError):
        shadow.data.rename(paths.make_discarded_shadow())
    for left in paths.list_discarded_shadows():
        discard(left)


def discard_hot_state(paths: JobDirectory, handle: DeltaTable) -> None:
    """Delete the hot state of a view of this table on this host."""
    shutil.rmtree(hot_state_of(paths, handle), ignore_errors=True)


def discard_left_shadow(paths: JobDirectory, newest: EpochRow) -> None:
    """Delete the shadow job of a killed evolve if the job at `newest` does not need it.

    Hold the job's lock. A failure costs only disk space; the next start tries again.
    """
    shadow = paths.shadow
    try:
        for left in paths.list_discarded_shadows():
            discard(left)
        if not shadow.data.exists():
            return
        used_at = _find_last_use(shadow)  # before the lock, which changes the directory
        lock = WriterLock(shadow.lock, shadow.name)
    except OwnedElsewhere:
        return  # it is reading
    except OSError as error:
        log.warning("cannot inspect the shadow job of an evolve, trying again later: %s", error)
        return
    try:
        row = read_newest_of_shadow(shadow)
        known = used_at if row is None else max(used_at, row.committed_at / 1e6)
        taken = (
            row is not None
            and row.plans.items() <= newest.plans.items()
            and row.offsets.keys() <= newest.offsets.keys()
        )
        broken = row is None and shadow.has_table
        if taken or broken or time.time() - known > SHADOW_UNUSED_SECONDS_MAX:
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


def read_newest_of_shadow(shadow: JobDirectory) -> EpochRow | None:
    """Return the newest epoch of a shadow job; None if there is no table to continue."""
    if not shadow.has_table:
        return None  # it was killed while it created the table
    try:
        return newest_of_job(shadow.table, live_files(open_table(shadow.table)))
    except _BROKEN as error:
        log.warning("the shadow job of an evolve cannot be continued: %s", error)
        return None
