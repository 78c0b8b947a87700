"""Failures of Spark as exceptions of our own, which begin with the cause and need no JVM.

    Py4JJavaError, PythonException ──text──► SparkFailed: the last line of the worker's traceback,
     each asks its JVM for its text                       or the last cause in the JVM
                                                          └ a note: the text without Java's frames

Spark's exceptions are texts of several thousand characters that end with the cause. A job that
shares its JVM has left it by the time that it reports its failure.
"""

from __future__ import annotations

import re

_CAUSES_MAX = 10
_PACKAGES = ("pyspark.", "py4j.")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r"\s+(?:at |\.\.\. \d+ more)")
_LINE = re.compile(r'  File "(?:[^"]*/)?([^"/]+)", line (\d+)')
_CAUSED_BY = "Caused by: "
# How Spark says that a process ended while it ran a task: a Python worker, or an executor.
_PROCESS_LOST = ("Python worker exited unexpectedly", "ExecutorLostFailure")
_LOST_TASK = re.compile(r"Lost task .*?\(TID \d+\) \([^)]*\): (.+)")


class SparkFailed(Exception):
    """A failure in Spark; the message is its cause, a note has the rest."""


class WorkerLost(SparkFailed):
    """A process that ran a task of the epoch has ended, of memory or by a signal."""


def detach(error: Exception) -> Exception:
    """Return an exception whose text, and those of its causes, need no JVM any more."""
    if _is_of_spark(error):
        return make_failure(error)
    each: BaseException = error
    for _ in range(_CAUSES_MAX):
        before = each.__cause__ or each.__context__
        if before is None:
            break
        if _is_of_spark(before):
            each.__cause__ = make_failure(before)
            break
        each = before
    return error


def make_failure(error: BaseException) -> SparkFailed:
    """Return the SparkFailed for an exception of Spark, without causes of its own."""
    try:
        text = str(error)
    except Exception as lost:  # the JVM has ended
        text = f"{type(error).__name__}, and Spark's JVM does not say why: {lost}"
    if any(each in text for each in _PROCESS_LOST):  # Spark's own cause is an end of file
        failed: SparkFailed = WorkerLost("its process ended: killed, or out of memory")
    else:
        failed = SparkFailed(find_cause(text) or type(error).__name__)
    lines = [line for line in text.splitlines() if _FRAME.match(line) is None]
    failed.add_note("\n".join(lines))
    failed.__suppress_context__ = True
    return failed


def _is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith(_PACKAGES)


def find_cause(text: str) -> str:
    """Return the line of Spark's text that names the cause, with the place of a Python error."""
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    if begins:
        place = ""
        for line in lines[begins[-1] + 1 :]:
            if found := _LINE.match(line):
                place = f" ({found[1]}, line {found[2]})"
            elif line and not line[0].isspace():
                return line + place
    causes = [line for line in lines if line.startswith(_CAUSED_BY)]
    if causes:
        return causes[-1].removeprefix(_CAUSED_BY)
    if lost := _LOST_TASK.search(text):
        return lost[1]
    return next((line.strip() for line in lines if line.strip()), "")
