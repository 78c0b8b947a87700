"""Keep a second Delta table, `results`, with one plain row per group, for BI tools.

    changelog of the epochs since the last refresh ─► newest row of each key ─► MERGE into results

Each view of a job may have a mirror. All mirrors share a thread. A mirror is refreshed at most as
often as the spec says, and rests so long that all of them keep their share of the processor and of
the time (MirrorShare). Waiting for the running epoch and the first refresh, which loads Delta's
classes, do not count. A run that has refreshed a mirror does so once more at its end. Each
commit has the epoch of the results and the fingerprint of the query. Repeating a refresh changes
nothing, so a crash does no harm. If the query has changed, a refresh replaces the whole table. A
refresh rewrites files; those that it replaces stay for an hour, for readers of an older version.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Self

import deltalake
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.reading.files import LiveFile, files_of_view, live_files
from jobs.reading.parts import ACCUMULATORS, CHANGELOG
from jobs.running.pipeline import Pipeline
from jobs.running.views import Subtable
from schemas import limits
from schemas.directory.documents import write_document
from schemas.directory.paths import JobDirectory
from schemas.directory.reports import MirrorReport
from schemas.limits import MIRROR_CORE_SHARE, MIRROR_SHARE_MAX, MIRROR_TIME_SHARE_MAX
from schemas.table.object_path import TablePath
from schemas.types.moments import now_ms

log = logging.getLogger(__name__)

_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
JOB_GROUP = "results mirror"  # of Spark's jobs, for those who look at them
# Each stage of a refresh is one task: two would hold both cores of a small job, whose epochs would
# wait for seconds. Spark would list and read many files in parallel.
_ONE_TASK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.maxPartitionBytes": "1t",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000000",
    "spark.databricks.delta.snapshotPartitions": "1",
}


class Mirrors:
    """Refreshes the mirrors of a job in turn, from `start` to `close`."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        paths: JobDirectory,
        intervals: Mapping[str, int],
        jobs_per_driver: int = 1,
    ) -> None:
        """Mirror the views of `intervals`, which are in ms."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self.mirrors: list[Mirror] = []
        if not intervals:
            return
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        pid = jvm.java.lang.ProcessHandle.current().pid()
        spent = partial(read_processor_seconds, os.getpid(), pid)
        self._share = MirrorShare(spent, jobs=jobs_per_driver)
        self.mirrors = [
            Mirror(spark, pipeline, subtable, paths.at_view(subtable.view), every_ms, self._share)
            for subtable in pipeline.subtables
            if (every_ms := intervals.get(subtable.view)) is not None
        ]

    @property
    def oldest(self) -> MirrorReport | None:
        """The report of the oldest mirror; None until this run has refreshed one."""
        reports = [each.report for each in self.mirrors if each.report is not None]
        return min(reports, key=lambda each: each.epoch, default=None)

    def start(self) -> Self:
        """Start the thread that refreshes the tables."""
        if self.mirrors:
            self._thread.start()
        return self

    def close(self) -> None:
        """Stop the thread after the running refresh."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(limits.STOP_SECONDS_MAX)

    def finish(self, *, whole: bool) -> None:
        """Bring the mirrors of this run to its last epoch; all mirrors if `whole`."""
        self.close()
        for mirror in self.mirrors:
            if whole or mirror.report is not None:
                try:
                    self._refresh(mirror)
                except Exception as error:
                    if whole:
                        raise
                    log.warning("cannot refresh the results mirror at the end: %s", error)

    def _refresh(self, mirror: Mirror) -> None:
        mirror.spark.sparkContext.setJobGroup(JOB_GROUP, str(mirror.path))
        epoch = mirror.refresh()
        log.debug("results mirror %s has epoch %d", mirror.path, epoch)

    def _run(self) -> None:
        due = {mirror: time.monotonic() + mirror.every for mirror in self.mirrors}
        while True:
            mirror = min(due, key=lambda each: due[each])
            if self._end.wait(max(0.0, due[mirror] - time.monotonic())):
                return
            if not self._share.allows():
                due[mirror] = time.monotonic() + limits.MIRROR_CHECK_SECONDS
                continue
            due[mirror] = time.monotonic() + mirror.every
            try:
                if not mirror.is_left_out:
                    self._refresh(mirror)
            except Exception as error:
                if self._end.is_set():
                    return
                log.warning("cannot refresh the results mirror, trying again: %s", error)


class Mirror:
    """The table `results` of one view."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        subtable: Subtable,
        paths: JobDirectory,  # of the view
        every_ms: int,
        share: MirrorShare,
    ) -> None:
        self.spark = spark.newSession()  # its settings have the metadata of its commits
        for name, value in _ONE_TASK.items():
            self.spark.conf.set(name, value)
        self.pipeline = pipeline
        self.subtable = subtable
        self.path = paths.results
        self._report_path = paths.mirror
        self._share = share
        self._copies = self.path.with_name(f"{self.path.name}.reading")
        self.every = every_ms / 1_000
        self.group = [named.name for named in subtable.plan.group]
        self.columns = [*subtable.plan.output, *subtable.plan.unselected]
        self.plan = subtable.plan.fingerprint
        self.report: MirrorReport | None = None  # of the newest refresh of this run
        self._refreshing = threading.Lock()
        self._delete_at = 0.0  # on the monotonic clock

    @property
    def is_left_out(self) -> bool:
        """Whether nobody asked for the mirror, and its first copy would cost much."""
        spec = self.pipeline.spec.view_specs[self.subtable.view]
        if spec.mirror_ms is not None or self.path.exists():
            return False
        return self.pipeline.newest.groups > limits.MIRROR_DEFAULT_GROUPS_MAX

    def refresh(self) -> int:
        """Bring the table to the newest epoch, and return this epoch."""
        with self._refreshing:
            with self.pipeline.between_epochs():
                files = files_of_view(live_files(self.pipeline.table.reader()), self.subtable.view)
                newest = self.pipeline.newest.epoch
            copied = None if self.report is None else self.report.epoch
            if copied != newest:
                with self._share.measure(counts=copied is not None):
                    self._bring_to(newest, files, self.read_epoch() if copied is None else copied)
            if not self.path.exists():  # of a job without groups; the next refresh is the first
                return newest
            self.report = MirrorReport(epoch=newest, refreshed_at=now_ms())
            write_document(self._report_path, self.report)
            if time.monotonic() >= self._delete_at:
                self._delete_at = time.monotonic() + limits.MIRROR_REPLACED_SECONDS
                delete_replaced_files(self.path)
            return newest

    def _bring_to(self, newest: int, files: Sequence[LiveFile], copied: int | None) -> None:
        try:
            self._copy(newest, files, copied)
        except BaseException:
            self.report = None  # the next refresh looks what the table has
            raise
        finally:
            shutil.rmtree(self._copies, ignore_errors=True)

    def _copy(self, newest: int, files: Sequence[LiveFile], copied: int | None) -> None:
        if copied == newest:
            return
        state = self.pipeline.spec.view_specs[self.subtable.view].state
        silent = state.ttl_ms > 0 and not state.emit_expired  # groups expire without a -D
        first_kept = min((f.epoch_min for f in files if f.part == CHANGELOG), default=newest + 1)
        if copied is None or silent or copied > newest or 0 < copied < first_kept - 1:
            self._replace([f.path for f in files if f.part == ACCUMULATORS], newest)
        else:
            names = [f.path for f in files if f.part == CHANGELOG and f.epoch_max > copied]
            self._merge(names, copied, newest)

    def read_epoch(self) -> int | None:
        """Return the epoch whose results the table has; None if it has another query's results."""
        if not DeltaTable.isDeltaTable(self.spark, str(self.path)):
            return None
        table = DeltaTable.forPath(self.spark, str(self.path))
        for commit in table.history(20).select("userMetadata").collect():
            if commit["userMetadata"]:
                written = json.loads(commit["userMetadata"])
                return int(written["epoch"]) if written.get("plan") == self.plan else None
        return None

    def _replace(self, names: list[str], newest: int) -> None:
        """Replace the table by the newest row of each group in the accumulators."""
        if not names:
            if DeltaTable.isDeltaTable(self.spark, str(self.path)):
                self.spark.conf.set(_METADATA, self._stamp(newest))
                DeltaTable.forPath(self.spark, str(self.path)).delete()
            return
        rows = self._select_newest(self._read(names), F.struct(F.col("epoch")))
        rows = rows.where(~F.col("tombstone")).select(*self.columns)
        writer = rows.coalesce(1).write.format("delta").mode("overwrite")
        writer = writer.option("overwriteSchema", "true")
        writer.option("userMetadata", self._stamp(newest)).save(str(self.path))

    def _merge(self, names: list[str], copied: int, newest: int) -> None:
        """Merge the changelog of the epochs after `copied` into the table."""
        self.spark.conf.set(_METADATA, self._stamp(newest))
        changes = self._read(names) if names else None
        if changes is None:
            return
        after = changes.where((F.col("epoch") > copied) & (F.col("epoch") <= newest))
        rows = self._select_newest(after, F.struct(F.col("epoch"), F.col("seq")))
        same: Column = F.lit(True)
        for name in self.group:
            same = same & F.col(f"now.{name}").eqNullSafe(F.col(f"new.{name}"))
        values = {name: F.col(f"new.{name}") for name in self.columns}
        gone = F.col("new.op") == "-D"
        (
            DeltaTable.forPath(self.spark, str(self.path))
            .alias("now")
            .merge(rows.alias("new"), same)
            .whenMatchedDelete(gone)
            .whenMatchedUpdate(set=values)  # type: ignore[arg-type]
            .whenNotMatchedInsert(~gone, values)  # type: ignore[arg-type]
            .execute()
        )

    def _stamp(self, epoch: int) -> str:
        return json.dumps({"epoch": epoch, "plan": self.plan})

    def _read(self, names: list[str]) -> DataFrame:
        paths = [str(self._fetch(self.subtable.root / name)) for name in names]
        return self.spark.read.parquet(*paths)

    def _fetch(self, path: TablePath) -> Path:
        """Return a local file with these contents; copy it from object storage for this refresh."""
        if isinstance(path, Path):
            return path
        self._copies.mkdir(parents=True, exist_ok=True)
        copy = self._copies / path.name
        with path.source() as remote, copy.open("wb") as local:
            shutil.copyfileobj(remote, local)
        return copy

    def _select_newest(self, rows: DataFrame, order: Column) -> DataFrame:
        """Return the row of each group that is last in `order`."""
        others = [F.col(name) for name in rows.columns if name not in self.group]
        # A user's column has no blank in its name.
        last = F.max_by(F.struct(*others), order).alias("last row")
        return rows.groupBy(*self.group).agg(last).select(*self.group, "`last row`.*")


def delete_replaced_files(path: Path, seconds: float = limits.MIRROR_REPLACED_SECONDS) -> None:
    """Delete the files that no version of a table in the last seconds has."""
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return
    table = deltalake.DeltaTable(str(path))
    replaced = table.vacuum(int(seconds // 3_600), enforce_retention_duration=False)
    for name in replaced:  # a vacuum that deletes them itself adds versions to the log
        (path / name).unlink(missing_ok=True)


class MirrorShare:
    """Measures refreshes; `read_spent` returns the processor seconds of the job so far.

        rest ──► the job's own rate ─┐
        refresh ──► all that the job spent ─ its own rate ──► the cost ──► the next rest

    The driver, its JVM and the Python workers do both at once, so the cost of a refresh is what the
    job spends meanwhile beyond the rate of the rest before it.
    """

    def __init__(
        self,
        read_spent: Callable[[], float],
        read_clock: Callable[[], float] = time.monotonic,
        *,
        jobs: int = 1,  # that may share the JVM, of which only the whole time is known
    ) -> None:
        self._read_spent, self._read_clock = read_spent, read_clock
        self._share_max = MIRROR_SHARE_MAX / jobs
        self._ended, self._spent = read_clock(), read_spent()  # at the end of the last refresh
        self.cost = 0.0  # of it, in processor seconds
        self.seconds = 0.0  # that it took

    @contextmanager
    def measure(self, *, counts: bool) -> Iterator[None]:
        """Measure a refresh; one that only loads classes and makes the table does not count."""
        began, before = self._read_clock(), self._read_spent()
        rate = (before - self._spent) / max(began - self._ended, 0.001)
        try:
            yield
        finally:
            self._ended, self._spent = self._read_clock(), self._read_spent()
            self.seconds = self._ended - began if counts else 0.0
            own = self._spent - before - rate * (self._ended - began)
            self.cost = max(own, 0.0) if counts else 0.0

    def allows(self) -> bool:
        """Return whether another refresh keeps the shares."""
        rested = self._read_clock() - self._ended
        if self.seconds > _share_beside(rested, MIRROR_TIME_SHARE_MAX):
            return False
        of_job = _share_beside(self._read_spent() - self._spent, self._share_max)
        return self.cost <= max(of_job, rested * MIRROR_CORE_SHARE)


def _share_beside(others: float, share: float) -> float:
    """Return what is this share of itself and `others` together."""
    return others * share / (1 - share)


_TICKS = os.sysconf("SC_CLK_TCK")


def read_processor_seconds(*roots: int) -> float:
    """Return what these processes and all below them have spent, also children that ended."""
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            # A name may contain blanks; the parent is the second field after it.
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            children.setdefault(int(fields[1]), []).append(pid)
            spent[pid] = sum(map(int, fields[11:15]))
    found = list(roots)
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return sum(spent.get(pid, 0) for pid in set(found)) / _TICKS
