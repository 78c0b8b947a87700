"""Maintenance: what keeps a table small and fast, off the way of the epochs.

    compaction    merged in a process of its own, committed between two epochs
    log           a checkpoint every so many commits, old entries cleaned up
    sweep         files of commits that never were, and of those that are long over

The share of time is bounded: a merge begins only when the last one's cost has been outlived.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from uuid import uuid4

from jobs.edge.compaction import Merge, due_merge, merge_files
from jobs.edge.delta_epochs import opened
from jobs.edge.epoch_files import PARTS, AddedFile
from jobs.edge.failpoints import failpoint
from jobs.edge.savepoints import pinned_files
from jobs.pipeline import Pipeline
from schemas.limits import (
    CHECKPOINT_EVERY_COMMITS,
    COMPACTION_SHARE_MAX,
    MAINTENANCE_EVERY_SECONDS,
    ORPHAN_AGE_SECONDS_MIN,
    SWEEP_EVERY_SECONDS,
)

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_NICE = 10


def _begin_as_helper() -> None:
    """The merging process gives way to the epochs, and ends with its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)


class Maintenance:
    """Called from the driver's main thread, again and again; each call is short."""

    def __init__(self, pipeline: Pipeline, home: Path) -> None:
        self.pipeline = pipeline
        self.table = pipeline.table
        self.home = home
        self._pool: ProcessPoolExecutor | None = None
        self._merging: tuple[Merge, str, Future[list[AddedFile]], float] | None = None
        self._not_before = 0.0
        self._looked = 0.0
        self._swept = time.monotonic()
        self._checkpoint = self.table.version

    def work(self, published: int | None) -> None:
        """Do what is due now. `published` is the epoch up to which nobody needs files singly."""
        now = time.monotonic()
        if self._merging is not None:
            self._finish_merge()
        elif now >= self._not_before and now - self._looked >= MAINTENANCE_EVERY_SECONDS:
            self._looked = now
            self._begin_merge(published)
        if self.table.version - self._checkpoint >= CHECKPOINT_EVERY_COMMITS:
            self._checkpoint = self.table.version
            self._write_checkpoint()
        if now - self._swept >= SWEEP_EVERY_SECONDS:
            self._swept = now
            self.sweep()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin_merge(self, published: int | None) -> None:
        with self.pipeline.epoch_lock:
            files = self.table.live_files()
            newest = self.pipeline.newest.epoch
        merge = due_merge(files, newest if published is None else min(newest, published))
        if merge is None:
            return
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn"), initializer=_begin_as_helper
            )
        uuid = uuid4().hex
        future = self._pool.submit(merge_files, self.pipeline.plan, self.table.root, merge, uuid)
        self._merging = (merge, uuid, future, time.monotonic())

    def _finish_merge(self) -> None:
        assert self._merging is not None
        merge, uuid, future, began = self._merging
        if not future.done():
            return
        self._merging = None
        added = future.result()
        with self.pipeline.epoch_lock:
            failpoint("compaction_commit")
            what = f"compaction of {len(merge.files)} {merge.part} files into tier {merge.tier}"
            self.table.commit(added, merge.files, uuid=uuid, what=what)
        seconds = time.monotonic() - began
        self._not_before = time.monotonic() + seconds * (1 / COMPACTION_SHARE_MAX - 1)
        log.debug("%s took %.2f s", what, seconds)

    def _write_checkpoint(self) -> None:
        """Delta's own checkpoint of the log, from a handle of its own: it commits nothing."""
        handle = opened(self.table.root, self.table.version)
        handle.create_checkpoint()
        handle.cleanup_metadata()

    def sweep(self) -> None:
        """Delete old files that no version in reach refers to."""
        with self.pipeline.epoch_lock:
            kept = {file.path for file in self.table.live_files()}
            kept |= {name for epoch in self.pipeline.line for _, name in epoch.files}
        kept |= pinned_files(self.home)
        oldest = time.time() - ORPHAN_AGE_SECONDS_MIN
        for part in PARTS:
            directory = self.table.root / f"part={part}"
            for path in directory.glob("*.parquet") if directory.is_dir() else ():
                name = f"part={part}/{path.name}"
                if name not in kept and path.stat().st_mtime < oldest:
                    path.unlink(missing_ok=True)
