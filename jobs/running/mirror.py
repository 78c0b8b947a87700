"""Mirror: a second Delta table, `results`, with one plain row a group, for people and BI tools.

    changelog of the epochs since the last refresh ─► newest row of each key ─► MERGE into results

It runs on a thread of its own in a Spark session of its own, never more often than the spec asks,
and rests so long after each refresh that it takes no more than MIRROR_SHARE_MAX of the time. Each
commit is stamped with the epoch that the table stands at, and the query; a refresh that is repeated
changes nothing, so a crash in between costs nothing either. Under a changed query it is replaced.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.edge.table.delta_epochs import live_files
from jobs.edge.table.epoch_files import ACCUMULATORS, CHANGELOG
from jobs.running.pipeline import Pipeline
from schemas.limits import MIRROR_SHARE_MAX, STOP_SECONDS_MAX
from schemas.table.object_path import TablePath

log = logging.getLogger(__name__)

_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class Mirror:
    """Keeps `results` near the epochs, until `close`."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, path: Path, every_ms: int) -> None:
        self.pipeline = pipeline
        self.path = path
        self._copies = path.with_name(f"{path.name}.reading")
        self.every = every_ms / 1_000
        self.spark = spark.newSession()
        self.spark.conf.set("spark.sql.shuffle.partitions", "1")
        self.group = [named.name for named in pipeline.plan.group]
        self.columns = [*pipeline.plan.output, *pipeline.plan.hidden]
        self.plan = pipeline.plan.fingerprint
        self._end = threading.Event()
        self._refreshing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._end.set()
        self._thread.join(STOP_SECONDS_MAX)

    def refresh(self) -> int:
        """Bring the table to the newest epoch; returns it."""
        with self._refreshing:
            try:
                return self._refresh()
            finally:
                shutil.rmtree(self._copies, ignore_errors=True)

    def _refresh(self) -> int:
        with self.pipeline.between_epochs():
            files = live_files(self.pipeline.table.reader())
            newest = self.pipeline.newest.epoch
        standing = self.standing()
        if standing == newest:
            return newest
        state = self.pipeline.spec.state
        untold = state.ttl_ms > 0 and not state.emit_expired  # groups that left without a word
        first_kept = min((f.epoch_min for f in files if f.part == CHANGELOG), default=newest + 1)
        if standing is None or untold or standing > newest or 0 < standing < first_kept - 1:
            self._replace([f.path for f in files if f.part == ACCUMULATORS], newest)
        else:
            names = [f.path for f in files if f.part == CHANGELOG and f.epoch_max > standing]
            self._merge(names, standing, newest)
        return newest

    def standing(self) -> int | None:
        """The epoch that the table says it stands at; None where it has another query's rows."""
        if not DeltaTable.isDeltaTable(self.spark, str(self.path)):
            return None
        table = DeltaTable.forPath(self.spark, str(self.path))
        for commit in table.history(20).select("userMetadata").collect():
            if commit["userMetadata"]:
                said = json.loads(commit["userMetadata"])
                return int(said["epoch"]) if said.get("plan") == self.plan else None
        return None

    def _run(self) -> None:
        pause = self.every
        while not self._end.wait(pause):
            began = time.monotonic()
            try:
                epoch = self.refresh()
                log.debug("results mirror stands at epoch %d", epoch)
            except Exception as error:
                if self._end.is_set():
                    return
                log.warning("results mirror could not be refreshed, trying again: %s", error)
            spent = time.monotonic() - began
            pause = max(self.every - spent, spent * (1 / MIRROR_SHARE_MAX - 1))

    def _replace(self, names: list[str], newest: int) -> None:
        """The whole table from the accumulators: the newest row of each group."""
        if not names:
            if DeltaTable.isDeltaTable(self.spark, str(self.path)):
                self.spark.conf.set(_METADATA, self._stamp(newest))
                DeltaTable.forPath(self.spark, str(self.path)).delete()
            return
        rows = self._newest(self._read(names), F.struct(F.col("epoch")))
        rows = rows.where(~F.col("tombstone")).select(*self.columns)
        writer = rows.coalesce(1).write.format("delta").mode("overwrite")
        writer = writer.option("overwriteSchema", "true")
        writer.option("userMetadata", self._stamp(newest)).save(str(self.path))

    def _merge(self, names: list[str], standing: int, newest: int) -> None:
        self.spark.conf.set(_METADATA, self._stamp(newest))
        changes = self._read(names) if names else None
        if changes is None:
            return
        after = changes.where((F.col("epoch") > standing) & (F.col("epoch") <= newest))
        rows = self._newest(after, F.struct(F.col("epoch"), F.col("seq")))
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
        root = self.pipeline.table.root
        return self.spark.read.parquet(*(str(self._local(root / name)) for name in names))

    def _local(self, path: TablePath) -> Path:
        """Spark reads local files: of what is in object storage, copies for a refresh."""
        if isinstance(path, Path):
            return path
        self._copies.mkdir(exist_ok=True)
        copy = self._copies / path.name
        with path.source() as remote, copy.open("wb") as local:
            shutil.copyfileobj(remote, local)
        return copy

    def _newest(self, rows: DataFrame, order: Column) -> DataFrame:
        """Of each group the row that is last in `order`."""
        others = [F.col(name) for name in rows.columns if name not in self.group]
        # No column of a user has a blank in its name.
        last = F.max_by(F.struct(*others), order).alias("last row")
        return rows.groupBy(*self.group).agg(last).select(*self.group, "`last row`.*")
