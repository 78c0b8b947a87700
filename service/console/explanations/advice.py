"""Advice on failed jobs, by the code of the failure.

The codes are those of a job's failure.json (docs/troubleshooting.md lists them all). The page shows
the reason of the failure beside the advice.
"""

from __future__ import annotations

_STARTED_AGAIN = (
    "The service starts the job again automatically, after longer and longer pauses. If it keeps "
    "failing, check the log below, for example for unreachable brokers or too little memory."
)
_ADDRESS = (
    "advertise an address that jobs may not connect to: link-local, unspecified, or this machine. "
    "Correct advertised.listeners of the broker named in the reason, and start the job again."
)
_BY_CODE = {
    "address-refused": f"The brokers of the source {_ADDRESS}",
    "publisher-address-refused": f"The brokers of the sink {_ADDRESS}",
    "disk-refused": (
        "A disk that the job writes to is full, read-only or broken; the reason names it. Free "
        "space or repair the disk. The service starts the job again automatically, and the job "
        "continues from its last epoch."
    ),
    "no-executors": (
        "The Spark cluster ran none of the job's tasks for two minutes. Check its master and its "
        "workers, and that they have free cores and memory. The service starts the job again "
        "automatically."
    ),
    "out-of-memory": (
        "The kernel killed a process of the service's container, which has reached its memory "
        "limit. Raise the limit (SERVICE_MEMORY_LIMIT), or run fewer jobs. The service starts the "
        "job again automatically."
    ),
    "spec-refused": (
        "This version of retally does not accept the spec. Correct the spec, and start the job "
        "again."
    ),
    "spec-misfit": (
        "The spec does not fit the job's state; the reason names the difference. For a changed "
        "query save the spec for approval, or run retally evolve. Otherwise do what the reason "
        "says."
    ),
    "source-changed": (
        "The source topic is not the topic that the job has read: it was recreated, has lost "
        "partitions, or retention has removed records that the job still needs. Restore the "
        "topic, or create another job under another name."
    ),
    "input-refused": (
        "The spec tells the job to stop at this input. Correct the source, or the spec (columns, "
        "on_error, max_bad_fraction, on_schema_change, on_truncate), and start the job again."
    ),
    "generator-failed": (
        "The job's own watermark generator raised an error. Correct the class, and start the job "
        "again."
    ),
    "format-too-new": "A newer version of retally has written this table. Upgrade this service.",
    "format-too-old": "This version of retally cannot read the old format of the table.",
    "table-damaged": (
        "Files of the table are missing or broken; the reason names one. Restore the job's "
        "directory from a backup, or start a new job under another name; see docs/recovery.md."
    ),
    "law-broken": (
        "The job detected an internal inconsistency and stopped before the commit. It published "
        "nothing wrong. Please report this with the log."
    ),
    "history-missing": (
        "The sink topic needs epochs that retention has removed, or epochs before another GROUP "
        "BY. For another GROUP BY set another sink.topic. Otherwise clone the job, with a new "
        "sink.topic; see docs/recovery.md."
    ),
    "sink-ahead": (
        "The sink topic has epochs that the table does not have: the table was restored, or a job "
        "in another directory writes to the topic. Configure a new sink topic."
    ),
    "connection-unknown": (
        "The operator's configuration has no connection of this name. Add the connection, or "
        "correct the spec."
    ),
    "overtaken": (
        "Another process committed to this table each time that this job tried to take it. The "
        "service starts the job again automatically until it takes over. If it fails as fenced "
        "later, two processes run this job: stop one of them."
    ),
    "fenced": (
        "Another process writes this table or publishes under this job's name. Find and stop it "
        "before you start this job again."
    ),
    "publisher-refused": (
        "The broker refused the published records. Check the access rights of the sink topic."
    ),
    "publisher-sink-changed": (
        "The sink topic was deleted, recreated, or has another number of partitions. Configure "
        "another sink topic."
    ),
    "publisher-sink-taken": (
        "The sink topic has the changelog of another job or of another table. Configure another "
        "sink topic."
    ),
    "publisher-displaced": (
        "Another process took the publisher's transactional id but published nothing. The service "
        "starts the job again automatically. If this happens again, find that process."
    ),
    "hot-state-ahead": (
        "The job's cache is ahead of its table: the table was restored, or a newer writer is "
        "running. If the table was restored, delete the directory that the log names."
    ),
    "publisher-gap": (
        "The publisher received epochs out of order and published nothing of them. Please report "
        "this with the log."
    ),
    "publisher-broken-changelog": (
        "The changelog contradicts itself and was not published. Please report this with the log."
    ),
    "publisher-unreachable": (
        "The publisher cannot reach the brokers of the sink. Restore them; the service starts the "
        "job again automatically."
    ),
    "died": (
        "The process ended without reporting a reason: it was killed, or it ran out of memory. "
        "The service starts the job again automatically. If this repeats, give the machine more "
        "memory, or reduce minibatch.max_rows."
    ),
}
_DEFAULT = "See the log below. Correct the cause, and start the job again."


def advise(code: str | None, *, retried: bool) -> str:
    """Return what to do about a failure; `retried` if the service starts the job again."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    return _STARTED_AGAIN if retried else _DEFAULT
