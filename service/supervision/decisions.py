"""The supervisor's decisions: what it does next about a job, as one table.

    desired, actual, held ◄── register      process ◄── pid, writer lock
              └──────────────┬──────────────────┘
                          decide ──► one action, once a tick

A job moves through these states, with the action on each arrow:

    START ──► STARTING ──SPAWN──► (a process) ──AWAIT──► RUNNING ──STOP──► STOPPING ──END──► (ended)
      ▲                                                     │                                   │
      └── RETRY ◄── FAILED ◄── FAIL ◄───────────────────────┘         STOPPED, PAUSED ◄── REST ─┘
"""

from __future__ import annotations

from enum import Enum, auto

from service.supervision.register import Actual, Desired, JobRecord


class Process(Enum):
    """What there is of a job's process."""

    NONE = auto()
    ENDED = auto()  # recorded, and gone
    OUTSIDE = auto()  # not recorded, and it holds the writer lock
    OURS = auto()  # recorded, and alive


class Action(Enum):
    KEEP = auto()
    START = auto()  # report STARTING
    SPAWN = auto()  # start a process
    RETRY = auto()  # START once the pause after a failure is over
    FAIL = auto()  # find out why the process ended, and plan the next start
    ADOPT = auto()  # record a process that this service has not started, and decide again
    SHOW_OUTSIDE = auto()  # report that somebody else runs the job
    AWAIT = auto()  # report RUNNING once the job can commit
    WATCH = auto()  # report what a running job waits for
    STOP = auto()  # report STOPPING
    END = auto()  # terminate the process; kill it if it does not end
    REST = auto()  # report STOPPED or PAUSED, as desired
    HOLD = auto()  # report STOPPED, for the operation that holds the job


def _row(usual: Action, **others: Action) -> dict[Actual, Action]:
    return {actual: others.get(actual.name, usual) for actual in Actual}


_STOP = _row(Action.STOP, STOPPING=Action.END)
_SHOW = _row(Action.SHOW_OUTSIDE, RUNNING=Action.KEEP, STOPPING=Action.ADOPT)
_REST, _HOLD = (
    _row(Action.KEEP, STARTING=settle, RUNNING=settle, STOPPING=settle)
    for settle in (Action.REST, Action.HOLD)
)
# By process, whether RUNNING is desired, and whether an operation holds the job.
_ACTIONS = {
    (Process.OURS, True, False): _row(Action.AWAIT, RUNNING=Action.WATCH, STOPPING=Action.END),
    (Process.OURS, True, True): _STOP,
    (Process.OURS, False, False): _STOP,
    (Process.OURS, False, True): _STOP,
    (Process.OUTSIDE, True, False): _row(Action.ADOPT),
    (Process.OUTSIDE, True, True): _row(Action.ADOPT),
    (Process.OUTSIDE, False, False): _SHOW,
    (Process.OUTSIDE, False, True): _SHOW,
    (Process.ENDED, True, False): _row(Action.FAIL, STOPPING=Action.START),
    (Process.ENDED, True, True): _row(Action.HOLD),
    (Process.ENDED, False, False): _row(Action.REST),
    (Process.ENDED, False, True): _row(Action.HOLD),
    (Process.NONE, True, False): _row(
        Action.KEEP,
        STARTING=Action.SPAWN,
        RUNNING=Action.START,
        STOPPING=Action.START,
        FAILED=Action.RETRY,
    ),
    (Process.NONE, True, True): _HOLD,
    (Process.NONE, False, False): _REST,
    (Process.NONE, False, True): _HOLD,
}
_HALT = {"STARTING": Action.STOP, "RUNNING": Action.STOP, "STOPPING": Action.KEEP}
# By the desired state of a request, and whether it restarts a running job.
_ON_REQUEST = {
    (Desired.RUNNING, False): _row(Action.START, **dict.fromkeys(_HALT, Action.KEEP)),
    (Desired.RUNNING, True): _row(Action.START, **_HALT),
    (Desired.PAUSED, False): _row(Action.REST, **_HALT),
    (Desired.STOPPED, False): _row(Action.REST, CREATED=Action.KEEP, **_HALT),
}


def decide(process: Process, job: JobRecord) -> Action:
    """Return what a tick does about a job."""
    row = _ACTIONS[process, job.desired == Desired.RUNNING, job.held_by is not None]
    return row[Actual(job.actual)]


def decide_request(desired: Desired, job: JobRecord, *, again: bool) -> Action:
    """Return what a request does at once; the operation that holds a job decides about it."""
    if job.held_by is not None:
        return Action.KEEP
    return _ON_REQUEST[desired, again][Actual(job.actual)]
