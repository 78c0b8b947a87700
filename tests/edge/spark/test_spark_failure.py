"""A failure of Spark begins with its cause, and can be printed after its JVM has gone."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from jobs.core.time.custom_generator import GeneratorFailed
from jobs.edge.spark.spark_failure import SparkFailed, detach, find_cause
from jobs.edge.spark.task_errors import collect_rows, errors_by_code

# As Spark 4.2 writes it, shortened.
IN_A_WORKER = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 \
times, most recent failure: Lost task 0.0 in stage 3.0 (TID 3) (10.0.0.9 executor 2): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/pyspark/worker.py", line 3415, in main
    process()
  File "/srv/shop/readings.py", line 8, in read
    return row["v"] + 1
           ~~~~~~~~~^~~
TypeError: unsupported operand type(s) for +: 'NoneType' and 'int'

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:842)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:3000)
\t... 1 more
"""
IN_THE_JVM = """An error occurred while calling o82.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure.
\tat org.apache.spark.rdd.RDD.collect(RDD.scala:1049)
Caused by: java.util.concurrent.ExecutionException: java.io.IOException: none left
\tat java.base/java.util.concurrent.FutureTask.get(FutureTask.java:191)
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
\t... 12 more
"""
LOST = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 0.0 (TID 0) (host executor driver): ExecutorLostFailure (exit 137)
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            IN_A_WORKER,
            "TypeError: unsupported operand type(s) for +: 'NoneType' and 'int' "
            "(readings.py, line 8)",
        ),
        (IN_THE_JVM, "java.io.IOException: No space left on device"),
        (LOST, "ExecutorLostFailure (exit 137)"),
        ("\njava.lang.IllegalStateException: stopped", "java.lang.IllegalStateException: stopped"),
        ("", ""),
    ],
)
def test_the_cause_is_found(text: str, cause: str) -> None:
    assert find_cause(text) == cause


def make_spark_error(text: str) -> Exception:
    """Return an exception of py4j's, which asks its JVM for its text while there is one."""

    class Py4JJavaError(Exception):
        alive = True

        def __str__(self) -> str:
            if not self.alive:
                raise ConnectionRefusedError("Connection refused")
            return text

    Py4JJavaError.__module__ = "py4j.protocol"
    return Py4JJavaError()


def test_a_detached_failure_needs_no_jvm() -> None:
    error: Any = make_spark_error(IN_A_WORKER)
    failed = detach(error)
    error.alive = False
    assert str(failed).startswith("TypeError: unsupported operand")
    stack = "".join(traceback.format_exception(failed))
    assert 'File "/srv/shop/readings.py", line 8' in stack
    assert "\tat org.apache" not in stack


def test_an_error_of_our_own_keeps_its_words_and_its_cause() -> None:
    error: Any = make_spark_error(IN_THE_JVM)
    own = ValueError("the query ended")
    own.__cause__ = error
    assert detach(own) is own
    error.alive = False
    assert "No space left on device" in "".join(traceback.format_exception(own))


def test_a_jvm_that_has_ended_already_is_said() -> None:
    error: Any = make_spark_error(IN_A_WORKER)
    error.alive = False
    assert "Spark's JVM does not say why: Connection refused" in str(detach(error))


class Frame:
    """What Spark makes of a task that fails."""

    def __init__(self, text: str) -> None:
        self.error: Any = make_spark_error(text)

    def collect(self) -> list[Any]:
        raise self.error


def test_the_class_of_an_operator_that_fails_in_a_task_is_that_in_the_driver() -> None:
    with pytest.raises(Exception, match="retally-task-error") as in_task, errors_by_code():
        raise GeneratorFailed("the generator class a:B: on_event failed")
    frame: Any = Frame(IN_A_WORKER.replace("TypeError: ", f"{in_task.value}\n"))
    with pytest.raises(GeneratorFailed, match=r"^the generator class a:B: on_event failed$") as of:
        collect_rows(frame)
    frame.error.alive = False
    assert "".join(traceback.format_exception(of.value))


def test_another_failure_of_a_task_is_its_cause() -> None:
    with pytest.raises(SparkFailed, match=r"^TypeError: "):
        collect_rows(Frame(IN_A_WORKER))  # type: ignore[arg-type]
