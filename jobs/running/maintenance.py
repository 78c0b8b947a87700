"""Keep a table small and fast, between epochs.

    compaction    a separate process merges files; the driver commits them between two epochs
    log           write a checkpoint every CHECKPOINT_EVERY_COMMITS commits, remove old entries
    retention     remove history that is older than the job's retention
    sweep         delete files that were never committed, and files removed long ago

Merges take a bounded share of the time: after each merge, the next one waits. A failure here costs
only disk space, and the work is tried again later. Only another writer stops the job, or a commit
whose result cannot be read.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self
from uuid import uuid4

from jobs.edge.process.failpoints import failpoint
from jobs.edge.process.parent import end_with_parent
from jobs.edge.table.compaction import Merge, due_merge, is_crowded, merge_files
from jobs.edge.table.delta_epochs import CommitUnknown, Fenced, last_checkpoint, write_checkpoint
from jobs.edge.table.file_writer import AddedFile
from jobs.edge.table.pins import delete_dead_pins
from jobs.edge.table.retention import expire_history
from jobs.reading.epoch_rows import epoch_rows
from jobs.reading.files import LiveFile, own_files, place_file
from jobs.reading.parts import MULTISETS, PARTS
from jobs.reading.savepoints import keep_sums, pinned_files
from jobs.running.pipeline import Pipeline
from jobs.running.views import Subtable
from schemas import limits
from schemas.table.view_path import list_roots, place_name, split_part
from schemas.types.moments import now_ms

log = logging.getLogger(__name__)

_NICE = 10
_EPOCH_WAIT_SECONDS = 5.0  # then the main thread looks whether the job shall stop


class MergeFailed(Exception):
    """A merge failed; the table has nothing of it."""


class Maintenance:
    """The maintenance of one table. The driver's main thread calls `work` in its loop."""

    def __init__(self, pipeline: Pipeline, home: Path) -> None:
        self.pipeline = pipeline
        self.table = pipeline.table
        self.home = home
        self._merger: Merger | None = None
        self._merging: tuple[Subtable, Merge, str] | None = None
        self._merged: Merged | None = None  # its outcome, not yet committed
        self._not_before = 0.0
        self._retry_at: dict[tuple[str, str], float] = {}  # by view and part, after a failure
        self._turn = 0  # of the view whose merges are considered first
        self._checked = 0.0  # when the last check for a due merge was
        self._sweep_at = time.monotonic() + limits.FIRST_SWEEP_SECONDS
        self._has_swept = False
        self._checkpoint = last_checkpoint(self.table.root) or 0

    def work(self, published: int | None) -> None:
        """Do the work that is due, in a short call; `published` is the newest published epoch."""
        now = time.monotonic()
        if self._merging is not None:
            self._try("compaction", self._finish_merge)
        elif now >= self._not_before and now - self._checked >= limits.MAINTENANCE_EVERY_SECONDS:
            self._checked = now
            self._try("compaction", lambda: self._begin_merge(published))
        if self.table.version - self._checkpoint >= limits.CHECKPOINT_EVERY_COMMITS:
            self._checkpoint = self.table.version
            self._try("the checkpoint of the log", self._write_checkpoint)
        # A running merge needs its files, so retention and the sweep wait for its end.
        if now >= self._sweep_at and self._merging is None:
            self._delete_old(published)

    def finish(self, published: int | None) -> None:
        """Delete what is old at the end of a run that was too short for it."""
        if not self._has_swept and self._merging is None:
            self._delete_old(published)

    def _delete_old(self, published: int | None) -> None:
        self._sweep_at, self._has_swept = time.monotonic() + limits.SWEEP_EVERY_SECONDS, True
        self._try("retention", lambda: self.remove_expired(published))
        self._try("the sweep", self.sweep)

    def close(self) -> None:
        """Stop the merging process."""
        if self._merger is not None:
            self._merger.close()
            self._merger = None

    def _try(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except (Fenced, CommitUnknown):
            raise
        except Exception as error:
            log.warning("%s failed, trying again later: %s", what, error)

    def _find_last_done(self, published: int | None) -> int:
        """Return the last epoch whose files may be merged or removed.

        The publisher needs the files of unpublished epochs, all files if it has published nothing.
        """
        newest = self.pipeline.newest.epoch
        if not any(view.sink for view in self.pipeline.spec.view_specs.values()):
            return newest
        return -1 if published is None else min(newest, published)

    # --- compaction ---------------------------------------------------------------------------

    def _begin_merge(self, published: int | None) -> None:
        with self.pipeline.try_between_epochs(_EPOCH_WAIT_SECONDS) as held:
            if not held:
                self._checked = 0.0
                return
            files = self.table.live_files()
            epoch_max = self._find_last_done(published)
        found = self._find_merge(files, epoch_max)
        if found is None:
            return
        if len(files) > limits.LIVE_FILES_MAX:
            log.debug("%d live files, compaction is behind", len(files))
        if self._merger is None:
            self._merger = Merger(self.pipeline.spec.durable).start()
        self._merging = (*found, uuid4().hex)
        self._merger.begin(*self._merging)

    def _find_merge(
        self, files: Sequence[LiveFile], epoch_max: int
    ) -> tuple[Subtable, Merge] | None:
        """Return a due merge; the views take turns."""
        now = time.monotonic()
        subtables = self.pipeline.subtables
        self._turn += 1
        for offset in range(len(subtables)):
            subtable = subtables[(self._turn + offset) % len(subtables)]
            seen = own_files(files, subtable.view)
            retried = [f for f in seen if self._retry_at.get((subtable.view, f.part), 0.0) <= now]
            merge = due_merge(retried, epoch_max, crowded=is_crowded(files))
            if merge is not None:
                return subtable, merge
        return None

    def _finish_merge(self) -> None:
        assert self._merging is not None and self._merger is not None
        subtable, merge, uuid = self._merging
        try:
            merged = self._merged or self._merger.read_outcome()
            if merged is None:
                return
            self._merged = merged
            with self.pipeline.try_between_epochs(_EPOCH_WAIT_SECONDS) as held:
                if not held:
                    return
                failpoint("compaction_commit")
                what = f"compaction of {len(merge.files)} {merge.part} files into tier {merge.tier}"
                durable = self.pipeline.spec.durable
                added = [file.of_view(subtable.view) for file in merged.added]
                removed = [place_file(file, subtable.view) for file in merge.files]
                self.table.commit(added, removed, uuid=uuid, what=what, durable=durable)
        except BaseException:
            self._merging = self._merged = None
            self._retry_at[subtable.view, merge.part] = (
                time.monotonic() + limits.MERGE_RETRY_SECONDS
            )
            self.close()  # the next merge gets a new process
            raise
        self._merging = self._merged = None
        self._checked = 0.0  # another merge may be due
        self._not_before = time.monotonic() + merged.seconds * (1 / limits.COMPACTION_SHARE_MAX - 1)
        log.debug("%s took %.2f s of processor time", what, merged.seconds)

    # --- log, retention, sweep ----------------------------------------------------------------

    def _write_checkpoint(self) -> None:
        write_checkpoint(self.table.root, self.table.version)
        with self.pipeline.between_epochs():
            self.table.reopen()

    def remove_expired(self, published: int | None) -> None:
        """Commit the removal of history that is older than the job's retention."""
        spec = self.pipeline.spec
        before = (now_ms() - spec.retention_ms) * 1_000
        with self.pipeline.between_epochs():
            uuid = uuid4().hex
            old = expire_history(
                self.table, before, self._find_last_done(published), uuid, durable=spec.durable
            )
            if old is None:
                return
            keep_sums(self.home, old.rows)
            what = f"retention of epochs up to {old.epoch_max}"
            self.table.commit(old.added, old.removed, uuid=uuid, what=what, durable=spec.durable)
        log.info("%s: %d files", what, len(old.removed))

    def sweep(self) -> None:
        """Delete old files that no recent version of the table and no savepoint refers to."""
        oldest = time.time() - limits.ORPHAN_AGE_SECONDS_MIN
        with self.pipeline.between_epochs():
            # A writer that was stopped for long knows no file of the one that has replaced it.
            self.table.require_own_version()
            kept = {file.path for file in self.table.live_files()}
            kept |= self.pipeline.kept_names
            kept |= self.table.removed_since(int(oldest * 1_000))
            kept |= self._find_explained()
        delete_dead_pins(self.home)
        kept |= pinned_files(self.home)
        merging = None if self._merging is None else self._merging[2]
        roots = list_roots(self.table.root)  # also of views that are gone
        for (view, root), part in product(roots.items(), PARTS):
            directory = root / f"part={part}"
            for path in directory.glob("*.parquet") if directory.is_dir() else ():
                name = place_name(f"part={part}/{path.name}", view)
                unfinished = merging is not None and merging in name
                if name not in kept and not unfinished and path.stat().st_mtime < oldest:
                    path.unlink(missing_ok=True)

    def _find_explained(self) -> set[str]:
        """Return the multiset files of the newest epochs, merged or not, for explanations."""
        after = self.pipeline.newest.epoch - 2 * limits.EXPLAINED_EPOCHS_MIN
        rows = epoch_rows(self.table.root, self.table.live_files(), after, whole=True)
        return {
            name
            for row in rows
            for part, names in row.files.items()
            if split_part(part)[1] == MULTISETS
            for name in names
        }


# --- the merging process ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merged:
    """The files that a merge wrote, and its cost."""

    added: list[AddedFile]
    seconds: float  # of processor time


class Merger:
    """A process that runs one merge after the other, with a lower priority than epochs."""

    def __init__(self, durable: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, self._child_pipe = context.Pipe()
        arguments = (self._child_pipe, os.getpid(), durable)
        self._process = context.Process(target=_serve_merges, args=arguments, daemon=True)

    def start(self) -> Self:
        """Start the process."""
        self._process.start()
        self._child_pipe.close()
        return self

    @property
    def pid(self) -> int | None:
        return self._process.pid

    def begin(self, subtable: Subtable, merge: Merge, uuid: str) -> None:
        """Begin a merge, whose files get `uuid` in their names."""
        self._pipe.send((subtable.plan, subtable.root, merge, uuid))

    def read_outcome(self) -> Merged | None:
        """Return the result of the merge, or None while it runs; raise MergeFailed if it failed."""
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
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve_merges(pipe: Connection, parent: int, durable: bool) -> None:
    """Run the merges that come through the pipe, until the pipe ends or the parent dies.

    The driver's main thread starts this process, and the kernel kills it with that thread.
    """
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    while True:
        try:
            plan, root, merge, uuid = pipe.recv()
        except EOFError:
            return
        began = time.process_time()
        try:
            added = merge_files(plan, root, merge, uuid, durable=durable)
            pipe.send(Merged(added, time.process_time() - began))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")
