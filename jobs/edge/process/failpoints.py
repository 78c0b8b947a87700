"""Failpoints: places in the code where a test can kill the process, raise or stall.

    RETALLY_FAILPOINTS="after_commit=kill@3,epoch_sent=stall:5"

`@n` fires at the n-th pass only. A failpoint that fires leaves a file in the directory
RETALLY_FAILPOINT_MARKS, so that a test knows that the fault happened. Without the variable a
failpoint costs one dictionary look-up.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


class FailpointError(RuntimeError):
    """Raised by a failpoint with the action `raise`."""


def _parse_failpoints(text: str) -> dict[str, tuple[str, int]]:
    points = {}
    for item in filter(None, text.split(",")):
        name, _, action = item.partition("=")
        action, _, nth = action.partition("@")
        points[name.strip()] = (action.strip(), int(nth or 0))
    return points


_POINTS = _parse_failpoints(os.environ.get("RETALLY_FAILPOINTS", ""))
_passed: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Fire the failpoint of this name, if the environment sets it."""
    if name not in _POINTS:
        return
    action, nth = _POINTS[name]
    _passed[name] = _passed.get(name, 0) + 1
    if nth and _passed[name] != nth:
        return
    marks = os.environ.get("RETALLY_FAILPOINT_MARKS")
    if marks:
        (Path(marks) / f"{name}-{os.getpid()}-{_passed[name]}").touch()
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "raise":
        raise FailpointError(f"failpoint {name}")
    elif action == "lost":
        raise OSError(f"failpoint {name}: the reply was lost")
    elif action.startswith("stall:"):
        time.sleep(float(action.removeprefix("stall:")))
    else:
        raise ValueError(f"failpoint {name}: unknown action {action!r}")
