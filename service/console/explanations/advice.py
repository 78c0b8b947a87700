"""Advice on failed jobs, by the code of the failure.

The codes are those of a job's failure.json, and the texts those of docs/troubleshooting.md. The
page shows the reason of the failure beside the advice.
"""

from __future__ import annotations

from schemas.directory.failure import failure_kinds

_AGAIN = "The service starts the job again automatically, after longer and longer pauses."
_DEFAULT = "See the log below. Correct the cause, and start the job again."


def advise(code: str | None, *, retried: bool) -> str:
    """Return what a failure means and what to do; `retried` if the service starts the job again."""
    known = None if code is None else failure_kinds().get(code)
    if known is None:
        return _AGAIN if retried else _DEFAULT
    return f"{known.text} {_AGAIN}" if retried else known.text
