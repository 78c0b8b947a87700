"""Advice on failed jobs, by the code of the failure.

The codes are those of a job's failure.json (docs/troubleshooting.md lists them all). The page shows
the reason of the failure beside the advice.
"""

from __future__ import annotations

from schemas.directory.failure import failure_kinds

_STARTED_AGAIN = (
    "The service starts the job again automatically, after longer and longer pauses. If it keeps "
    "failing, check the log below, for example for unreachable brokers or too little memory."
)
_DEFAULT = "See the log below. Correct the cause, and start the job again."


def advise(code: str | None, *, retried: bool) -> str:
    """Return what to do about a failure; `retried` if the service starts the job again."""
    known = None if code is None else failure_kinds().get(code)
    if known is not None and known.advice is not None:
        return known.advice
    return _STARTED_AGAIN if retried else _DEFAULT
