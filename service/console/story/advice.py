"""Advice: what to do about a failed job, by the code of its failure.

The codes are those of a job's failure.json (docs/troubleshooting.md has them all); the reason
beside it says what happened, and this says what helps.
"""

from __future__ import annotations

_STARTED_AGAIN = (
    "The service starts the job again by itself, after longer and longer pauses. If it goes on "
    "failing, the log below says more: brokers that do not answer, too little memory."
)
_ADDRESS = (
    "send clients on to an address that none is let go to: link-local, none, or this machine. "
    "Correct advertised.listeners of the broker that is named, and start the job again."
)
_BY_CODE = {
    "address-refused": f"The brokers of the source {_ADDRESS}",
    "publisher-address-refused": f"The brokers of the sink {_ADDRESS}",
    "disk-refused": (
        "A disk that the job writes to is full, read-only or broken; the reason names it. Make "
        "room or mend it: the service starts the job again by itself, and it goes on where it was."
    ),
    "spec-refused": (
        "The spec is not one that this retally takes. Correct it, and start the job again."
    ),
    "spec-misfit": (
        "The spec is of another query, other column types or another number of buckets than the "
        "state. Put back the old spec, or give the changed query a job of its own."
    ),
    "source-changed": (
        "The source topic is not the one that the job has read: it was made again, has lost "
        "partitions, or its retention has passed the job. Bring the topic back, or begin anew "
        "with a job of another name."
    ),
    "input-refused": (
        "The job does not go on over this input, because its spec says so. Correct the source, or "
        "the spec (columns, on_error, max_bad_fraction, on_schema_change), and start it again."
    ),
    "format-too-new": "A newer retally has written this table. Upgrade this one.",
    "format-too-old": "The table is of a format that this retally no longer reads.",
    "table-damaged": (
        "Files of the table are missing or broken. Bring them back from a backup, or go back to a "
        "savepoint."
    ),
    "law-broken": (
        "The job has found a contradiction in its own work and has stopped before it could commit "
        "it. Nothing wrong was published. Please report it, with the log."
    ),
    "history-missing": (
        "What has to be published is no longer in the table: retention has passed the publisher. "
        "The topic has to begin anew; see docs/operations.md."
    ),
    "sink-ahead": (
        "The sink topic has epochs that the table does not: the table was restored, or the topic "
        "is of a job in another directory. Give the job a new sink topic."
    ),
    "connection-unknown": (
        "The operator's connections have no such name; add it, or correct the spec."
    ),
    "fenced": (
        "Another process writes this table or publishes under this job's name. Find it and stop "
        "it before this one is started again."
    ),
    "publisher-refused": (
        "The broker has refused what was published: look at the sink topic's rights."
    ),
    "publisher-sink-changed": (
        "The sink topic was deleted, made again or got another number of partitions. Give the job "
        "another sink topic."
    ),
    "publisher-sink-taken": (
        "The sink topic has the changelog of another job or of another table. Give the job another "
        "sink topic."
    ),
    "publisher-displaced": (
        "Another process took the publisher's transactional id and published nothing. The service "
        "starts the job again by itself; find that process if it comes back."
    ),
    "hot-state-ahead": (
        "The job's cache is ahead of its table: the table was restored, or a newer writer is at "
        "work. If it was restored, delete the directory that the log names."
    ),
    "publisher-gap": (
        "An epoch was to be published out of turn, and was not. Please report it, with the log."
    ),
    "publisher-broken-changelog": (
        "The changelog contradicts itself, and was not published. Please report it, with the log."
    ),
    "publisher-unreachable": (
        "The sink could not be written to. The service starts the job again by itself; bring the "
        "brokers of its connection back."
    ),
    "died": (
        "Its process ended without a word: killed, or out of memory. The service starts it again "
        "by itself; if that goes on, give the machine more memory, or less minibatch.max_rows."
    ),
}
_OTHERWISE = "The log below says what happened. Correct it, and start the job again."


def advice(code: str | None, *, retried: bool) -> str:
    """What helps with a failure; `retried` where the service tries again by itself."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    return _STARTED_AGAIN if retried else _OTHERWISE
