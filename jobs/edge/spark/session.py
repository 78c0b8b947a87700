"""Spark: the session of a job, with the settings that the pipeline relies on."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession

from jobs.core.fold.laws import BrokenLaw
from jobs.edge.process.disk import room_in
from jobs.edge.process.jars import class_archive_option, spark_jars
from jobs.edge.process.java import use_own
from jobs.edge.state.hot_state import ZombieTask
from schemas.limits import ARROW_BATCH_BYTES_MAX, SCRATCH_BYTES_MIN
from schemas.spec.connections import SPARK_REDACTION
from schemas.table.parquet_file import TableDamaged, TableFileGone

log = logging.getLogger(__name__)

# JVM flags: one collector that suits two cores and short tasks, no shared-memory perf files.
_JVM = "-XX:+UseParallelGC -XX:-UsePerfData -Duser.timezone=UTC"
# What Java's serialization may make objects of; Spark's own messages need no more.
_SERIAL_FILTER = (
    "-Djdk.serialFilter=maxdepth=2000;java.**;sun.util.calendar.**;scala.**;org.apache.**;"
    "io.delta.**;!*"
)
# More of them, from whoever runs it; see docs/operations.md.
_MORE = "RETALLY_JAVA_OPTIONS"
# On a cluster, the secret that master, workers and drivers share.
_SECRET = "RETALLY_SPARK_SECRET"  # noqa: S105 - the name of it
_MEMORY = Path("/dev/shm")  # noqa: S108 - what is made in it is made by mkdtemp
_LOGGING = Path(__file__).with_name("log4j2.properties")

SETTINGS = {
    # Rules of the protocol: a task runs once unless it failed, and a plan is not changed under us.
    "spark.speculation": "false",
    "spark.sql.adaptive.enabled": "false",
    # Semantics: errors are errors, and time is UTC, always.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # User text never reaches Spark as SQL; this is the second wall.
    "spark.sql.runSQLOnFiles": "false",
    "spark.redaction.regex": SPARK_REDACTION,
    # Speed of small epochs.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES_MAX),
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.codegen.wholeStage": "true",
    "spark.python.daemon.module": "jobs.edge.spark.python_daemon",
    "spark.python.worker.reuse": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
    "spark.cleaner.periodicGC.interval": "10min",
}


# Only the mirror's MERGE needs Delta inside Spark; without them a session starts faster.
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def session(
    name: str, master: str = "local[2]", memory: str = "1g", *, delta: bool = False
) -> SparkSession:
    """The process's Spark session; a second call gives the same one."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    use_own()
    builder = SparkSession.builder.appName(f"retally-{name}").master(master)
    if master.startswith("local"):  # nobody else has to reach it
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    # Executors come to the driver by the address that Spark finds, or that SPARK_LOCAL_IP names.
    # They have our files where the driver has them; Spark's own logging writes 20 lines an epoch.
    more = os.environ.get(_MORE, "")
    options = f"{_JVM} {_SERIAL_FILTER} -Dlog4j2.configurationFile=file:{_LOGGING} {more}".strip()
    of_driver = f"{options} {class_archive_option()}".strip()
    builder = builder.config("spark.driver.extraJavaOptions", of_driver)
    builder = builder.config("spark.executor.extraJavaOptions", options)
    # Only what is on the class path itself can be archived; executors ask the driver for jars.
    jars = [str(jar.resolve()) for jar in spark_jars()]
    builder = builder.config("spark.driver.extraClassPath", os.pathsep.join(jars))
    if not master.startswith("local"):
        builder = builder.config("spark.jars", ",".join(jars))
    builder = builder.config("spark.driver.memory", memory)
    for key, value in {**SETTINGS, **(DELTA_SETTINGS if delta else {})}.items():
        builder = builder.config(key, value)
    with _authenticated(builder, master):
        return builder.getOrCreate()


@contextmanager
def _authenticated(builder: SparkSession.Builder, master: str) -> Iterator[None]:
    """Have Spark's processes refuse whoever does not know their secret.

    In one process Spark makes the secret itself. That of a cluster goes by a private file: what
    is configured in Python is in the arguments of the JVM, which every user of the host can read.
    """
    secret = os.environ.get(_SECRET)
    if not master.startswith("local") and not secret:
        log.warning("%s is not set: whoever reaches the Spark cluster's ports may use it", _SECRET)
        yield
        return
    builder.config("spark.authenticate", "true")
    if master.startswith("local"):
        yield
        return
    builder.config("spark.network.crypto.enabled", "true")
    builder.config("spark.network.crypto.saslFallback", "false")
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as private:  # mode 0600
        private.write(f"spark.authenticate.secret {secret}\n")
        private.flush()
        before = os.environ.get("PYSPARK_SUBMIT_ARGS")
        ours = f"--properties-file {private.name} --load-spark-defaults"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{ours} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            os.environ.pop("PYSPARK_SUBMIT_ARGS")
            if before is not None:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before


def fast_directory(cache: Path) -> Path:
    """Where a throw-away checkpoint goes: memory where there is some with room in it, else the
    cache."""
    able = os.access(_MEMORY, os.W_OK) and room_in(_MEMORY) >= SCRATCH_BYTES_MIN
    return _MEMORY if able else cache


def written_places() -> list[Path]:
    """Where Spark writes to on the driver's host: what it shuffles, and the checkpoint."""
    local = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    return [*map(Path, local.split(",")), *([_MEMORY] if _MEMORY.is_dir() else [])]


# What a task may say that is more than a failed task, as the end of its traceback has it.
_SAID: dict[str, type[Exception]] = {
    each.__name__: each for each in (TableDamaged, TableFileGone, BrokenLaw, ZombieTask)
}
_LAST_WORDS = re.compile(rf"^[\w.]*\b({'|'.join(_SAID)}): (.+)$", re.MULTILINE)


def collected(frame: DataFrame) -> list[Row]:
    """The rows of a frame. What our own code in a task has refused is raised here as there; of
    everything else that can befall a task, Spark's own exception tells."""
    try:
        return frame.collect()
    except Exception as error:
        said = _LAST_WORDS.search(str(error))
        if said is None:
            raise
        raise _SAID[said[1]](said[2]) from error
