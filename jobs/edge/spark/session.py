"""Start a job's Spark session, with the settings that the pipeline relies on."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from jobs.edge.machine.disk import free_bytes
from jobs.edge.machine.jars import class_archive_option, spark_jars
from jobs.edge.machine.java import use_found_java
from jobs.edge.machine.process_limits import describe_low_limits
from schemas.limits import ARROW_BATCH_BYTES_MAX, HOME_WAIT_MS_MAX, SCRATCH_BYTES_MIN
from schemas.spec.connections import SPARK_REDACTION

log = logging.getLogger(__name__)

# JVM options: a collector for few cores and short tasks, no shared-memory perf files, and only the
# first of the two compilers, with the room for code that both would have: on few cores the second
# takes more processor time from the workers than it saves in Spark.
_JVM = (
    "-XX:+UseParallelGC -XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "
    "-Duser.timezone=UTC"
)
# The classes that Java's serialization may read; Spark's own messages need no others. The last one
# is a word that its reader of CSV has among its options.
_SERIAL_FILTER = (
    "-Djdk.serialFilter=maxdepth=2000;java.**;sun.util.calendar.**;scala.**;org.apache.**;"
    "io.delta.**;com.univocity.parsers.csv.UnescapedQuoteHandling;!*"
)
# More JVM options, from the operator; see docs/operations.md.
JAVA_OPTIONS = "RETALLY_JAVA_OPTIONS"
# On a cluster, the secret that master, workers and drivers share.
_SECRET = "RETALLY_SPARK_SECRET"  # noqa: S105 - the name of the variable
_JVM_ENDED = "JAVA_GATEWAY_EXITED"  # as Spark names it
_MEMORY = Path("/dev/shm")  # noqa: S108 - mkdtemp creates the directories in it
_LOGGING = Path(__file__).with_name("log4j2.properties")
# In an installed engine `jobs` is in a package that puts it on the path (setup/engine.py).
_PARENT = "retally_engine."
_IN_PARENT = _PARENT if Path(__file__).parents[3].name == _PARENT[:-1] else ""

SETTINGS = {
    # Rules of the protocol: a task runs once unless it fails, and Spark does not change a plan.
    "spark.speculation": "false",
    "spark.sql.adaptive.enabled": "false",
    # Semantics: errors raise, and the time zone is UTC.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Spark never gets a user's text as SQL; this is a second safeguard.
    "spark.sql.runSQLOnFiles": "false",
    "spark.redaction.regex": SPARK_REDACTION,
    # Speed of small epochs.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BATCH_BYTES_MAX),
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.codegen.wholeStage": "true",
    "spark.python.daemon.module": f"{_IN_PARENT}jobs.edge.spark.python_daemon",
    "spark.python.worker.reuse": "true",
    # Epochs are tasks of RDDs, audits of SQL, which would have this in its environment; for each
    # environment Spark starts a daemon, and workers that know nothing of the state.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # A task waits for the executor that has the state of its buckets, but not for long.
    "spark.locality.wait": f"{HOME_WAIT_MS_MAX}ms",
    # A package called `jobs` in an executor's working directory must not hide ours.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
    "spark.cleaner.periodicGC.interval": "10min",
}


# Only the mirror's MERGE needs Delta inside Spark; without these settings a session starts faster.
DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


class SparkNotStarted(Exception):
    """Spark's JVM ended while it started."""


def session(
    name: str,
    master: str = "local[2]",
    memory: str = "1g",
    *,
    delta: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return this process's Spark session; a second call returns the same one."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    use_found_java()
    builder = SparkSession.builder.appName(f"retally-{name}").master(master)
    if master.startswith("local"):  # no other host connects to it
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        builder = builder.config("spark.shuffle.compress", "false")  # files that stay on this host
    # Executors connect to the address that Spark finds, or that SPARK_LOCAL_IP names. They have our
    # files at the driver's paths. With its own settings, Spark would log 20 lines per epoch.
    more = os.environ.get(JAVA_OPTIONS, "")
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"  # without blanks, as a path may be
    options = f"{_JVM} {_SERIAL_FILTER} {logging} {more}".strip()
    of_driver = f"{options} {class_archive_option()}".strip()
    builder = builder.config("spark.driver.extraJavaOptions", of_driver)
    builder = builder.config("spark.executor.extraJavaOptions", options)
    # The archive has only classes of the class path; executors get the jars from the driver.
    jars = [str(jar.resolve()) for jar in spark_jars()]
    builder = builder.config("spark.driver.extraClassPath", os.pathsep.join(jars))
    if not master.startswith("local"):
        builder = builder.config("spark.jars", ",".join(jars))
    builder = builder.config("spark.driver.memory", memory)
    for key, value in {**SETTINGS, **(DELTA_SETTINGS if delta else {}), **(settings or {})}.items():
        builder = builder.config(key, value)
    with _require_secret(builder, master):
        try:
            return builder.getOrCreate()
        except PySparkRuntimeError as error:
            if error.getCondition() != _JVM_ENDED:
                raise
            low = describe_low_limits() or "see memory and limits with retally doctor"
            raise SparkNotStarted(
                f"Spark's JVM ended while it started; what Java said is above: {low}"
            ) from None


@contextmanager
def _require_secret(builder: SparkSession.Builder, master: str) -> Iterator[None]:
    """Make Spark's processes refuse clients that do not know their secret.

    In a local session Spark creates the secret. A cluster's secret goes to the JVM in a private
    file, because settings from Python become arguments of the JVM, which all users of the host can
    read.
    """
    secret = os.environ.get(_SECRET)
    if not master.startswith("local") and not secret:
        log.warning(
            "%s is not set, so every client that reaches the Spark cluster's ports can use it",
            _SECRET,
        )
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


def choose_scratch(cache: Path) -> Path:
    """Return the directory for the checkpoint: in memory if it has room, or else the cache."""
    able = os.access(_MEMORY, os.W_OK) and free_bytes(_MEMORY) >= SCRATCH_BYTES_MIN
    return _MEMORY if able else cache


def spark_directories() -> list[Path]:
    """Return the directories in which Spark writes shuffle files and the checkpoint."""
    local = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    return [*map(Path, local.split(",")), *([_MEMORY] if _MEMORY.is_dir() else [])]
