"""Maintenance: what keeps a table small and fast, off the way of the epochs.

    compaction    merged in a process of its own, committed between two epochs
    log           a checkpoint every so many commits, old entries cleaned up
    retention     history that is older than the job keeps leaves the table
    sweep         files of commits that never were, and of those that are long over

The share of time is bounded: a merge begins only when the last one's cost has been outlived. What
fails here is tried again later and costs nothing but room; only another writer stops the job, and
a commit that nobody can tell what came of.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from uuid import uuid4

from jobs.core.plan.tree import Plan
from jobs.edge.process.failpoints import failpoint
from jobs.edge.table.compaction import Merge, due_merge, merge_files
from jobs.edge.table.delta_epochs import CommitUnknown, Fenced, last_checkpoint, write_checkpoint
from jobs.edge.table.epoch_files import PARTS, AddedFile, now_ms
from jobs.edge.table.pins import forget_dead
from jobs.edge.table.retention import expired
from jobs.edge.table.savepoints import pinned_files
from jobs.running.pipeline import Pipeline
from schemas.limits import (
    CHECKPOINT_EVERY_COMMITS,
    COMPACTION_SHARE_MAX,
    LIVE_FILES_MAX,
    MAINTENANCE_EVERY_SECONDS,
    MERGE_RETRY_SECONDS,
    ORPHAN_AGE_SECONDS_MIN,
    SWEEP_EVERY_SECONDS,
)
from schemas.table.object_path import TablePath

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_NICE = 10


class MergeFailed(Exception):
    """A merge did not come to its end; nothing of it is in the table."""


class Maintenance:
    """Called from the driver's main thread, again and again; each call is short."""

    def __init__(self, pipeline: Pipeline, home: Path) -> None:
        self.pipeline = pipeline
        self.table = pipeline.table
        self.home = home
        self._merger: Merger | None = None
        self._merging: tuple[Merge, str] | None = None
        self._not_before = 0.0
        self._resting: dict[str, float] = {}  # parts whose merge failed, and until when they rest
        self._looked = 0.0
        self._swept = time.monotonic()
        self._checkpoint = last_checkpoint(self.table.root) or 0

    def work(self, published: int | None) -> None:
        """Do what is due now. `published` is the newest epoch that the publisher is done with."""
        now = time.monotonic()
        if self._merging is not None:
            self._tried("merging", self._finish_merge)
        elif now >= self._not_before and now - self._looked >= MAINTENANCE_EVERY_SECONDS:
            self._looked = now
            self._tried("merging", lambda: self._begin_merge(published))
        if self.table.version - self._checkpoint >= CHECKPOINT_EVERY_COMMITS:
            self._checkpoint = self.table.version
            self._tried("the checkpoint of the log", self._write_checkpoint)
        # A merge counts on its files; so what is too old waits until it is done.
        if now - self._swept >= SWEEP_EVERY_SECONDS and self._merging is None:
            self._swept = now
            self._tried("retention", lambda: self.retire(published))
            self._tried("the sweep", self.sweep)

    def close(self) -> None:
        if self._merger is not None:
            self._merger.close()
            self._merger = None

    def _tried(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (Fenced, CommitUnknown):
            raise
        except Exception as error:
            log.warning("%s failed, it is tried again later: %s", what, error)

    def _done(self, published: int | None) -> int:
        """The epoch up to which nobody needs files singly. A publisher that has not published
        anything yet needs all of them; without one there is nobody."""
        newest = self.pipeline.newest.epoch
        if self.pipeline.spec.sink is None:
            return newest
        return -1 if published is None else min(newest, published)

    # --- compaction ---------------------------------------------------------------------------

    def _begin_merge(self, published: int | None) -> None:
        with self.pipeline.between_epochs():
            files = self.table.live_files()
            epoch_max = self._done(published)
        now = time.monotonic()
        able = [file for file in files if self._resting.get(file.part, 0.0) <= now]
        merge = due_merge(able, epoch_max)
        if merge is None:
            return
        if len(files) > LIVE_FILES_MAX:
            log.debug("%d live files, compaction is behind", len(files))
        if self._merger is None:
            self._merger = Merger(self.pipeline.plan, self.table.root, self.pipeline.spec.durable)
        self._merging = (merge, uuid4().hex)
        self._merger.begin(*self._merging)

    def _finish_merge(self) -> None:
        assert self._merging is not None and self._merger is not None
        merge, uuid = self._merging
        try:
            merged = self._merger.outcome()
            if merged is None:
                return
            with self.pipeline.between_epochs():
                failpoint("compaction_commit")
                what = f"compaction of {len(merge.files)} {merge.part} files into tier {merge.tier}"
                durable = self.pipeline.spec.durable
                self.table.commit(merged.added, merge.files, uuid=uuid, what=what, durable=durable)
        except BaseException:
            self._merging = None
            self._resting[merge.part] = time.monotonic() + MERGE_RETRY_SECONDS
            self.close()  # whatever its process is in, the next merge gets a new one
            raise
        self._merging = None
        self._looked = 0.0  # there may be another one to do
        self._not_before = time.monotonic() + merged.seconds * (1 / COMPACTION_SHARE_MAX - 1)
        log.debug("%s took %.2f s of processor time", what, merged.seconds)

    # --- log, retention, sweep ----------------------------------------------------------------

    def _write_checkpoint(self) -> None:
        write_checkpoint(self.table.root, self.table.version)
        with self.pipeline.between_epochs():
            self.table.reopen()

    def retire(self, published: int | None) -> None:
        """Let history go that is older than the job's retention, by a commit like any other."""
        spec = self.pipeline.spec
        before = (now_ms() - spec.retention_ms) * 1_000
        with self.pipeline.between_epochs():
            uuid = uuid4().hex
            old = expired(self.table, before, self._done(published), uuid, durable=spec.durable)
            if old is None:
                return
            what = f"retention of epochs up to {old.epoch_max}"
            self.table.commit(old.added, old.removed, uuid=uuid, what=what, durable=spec.durable)
        log.info("%s: %d files", what, len(old.removed))

    def sweep(self) -> None:
        """Delete old files that no version in reach refers to."""
        oldest = time.time() - ORPHAN_AGE_SECONDS_MIN
        with self.pipeline.between_epochs():
            kept = {file.path for file in self.table.live_files()}
            kept |= {name for epoch in self.pipeline.line for _, name in epoch.files}
            kept |= self.table.lately_removed(int(oldest * 1_000))
        forget_dead(self.home)
        kept |= pinned_files(self.home)
        merging = None if self._merging is None else self._merging[1]
        for part in PARTS:
            directory = self.table.root / f"part={part}"
            for path in directory.glob("*.parquet") if directory.is_dir() else ():
                name = f"part={part}/{path.name}"
                mine = merging is not None and merging in name
                if name not in kept and not mine and path.stat().st_mtime < oldest:
                    path.unlink(missing_ok=True)


# --- the merging process ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge wrote, and what it cost."""

    added: list[AddedFile]
    seconds: float  # of processor time


class Merger:
    """A process that merges, one merge after the other; it gives way to the epochs."""

    def __init__(self, plan: Plan, root: TablePath, durable: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, os.getpid(), plan, root, durable)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def begin(self, merge: Merge, uuid: str) -> None:
        self._pipe.send((merge, uuid))

    def outcome(self) -> Merged | None:
        """None while it is at it; MergeFailed with the reason if nothing will come of it."""
        try:
            if not self._pipe.poll():
                return None
            answer: Merged | str = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(1)
            code = self._process.exitcode
            raise MergeFailed(f"the merging process ended (exit code {code})") from error
        if isinstance(answer, str):
            raise MergeFailed(answer)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection, parent: int, plan: Plan, root: TablePath, durable: bool) -> None:
    """The merging process: ends with its parent, while it waits (the pipe ends) and while it
    works (the kernel kills it; it is bound to the thread that started it, the driver's main)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the kernel was told
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    while True:
        try:
            merge, uuid = pipe.recv()
        except EOFError:
            return
        began = time.process_time()
        try:
            added = merge_files(plan, root, merge, uuid, durable=durable)
            pipe.send(Merged(added, time.process_time() - began))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")
