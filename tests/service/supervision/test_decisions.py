"""The supervisor's table decides in every state, and its decisions lead to what is desired."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec import structs

from service.supervision.decisions import Action, Process, decide, decide_request
from service.supervision.register import ALIVE, Actual, Desired, JobRecord

BLANK = JobRecord(
    name="a", revision=1, spec="", desired=Desired.STOPPED, actual=Actual.CREATED, since=0
)
HOLDERS = (None, "operation")
REQUESTS = [(desired, False) for desired in Desired] + [(Desired.RUNNING, True)]


def job(desired: Desired, actual: Actual, held: str | None = None) -> JobRecord:
    return structs.replace(BLANK, desired=desired, actual=actual, held_by=held)


def act(action: Action, process: Process, now: JobRecord) -> tuple[Process, JobRecord]:
    """Return what an action makes of a job whose processes start and end as they should."""
    actual = Actual(now.actual)
    match action:
        case Action.ADOPT:
            return Process.OURS, now
        case Action.SPAWN:
            return Process.OURS, now
        case Action.END:
            return Process.ENDED, now
        case Action.START | Action.RETRY:
            actual = Actual.STARTING
        case Action.FAIL:
            actual = Actual.FAILED
        case Action.AWAIT | Action.SHOW_OUTSIDE:
            actual = Actual.RUNNING
        case Action.STOP:
            actual = Actual.STOPPING
        case Action.REST:
            actual = Actual(now.desired)
        case Action.HOLD:
            actual = Actual.STOPPED
    if process is Process.ENDED:
        process = Process.NONE
    return process, structs.replace(now, actual=actual)


def settle(process: Process, now: JobRecord) -> tuple[Process, JobRecord]:
    """Return where the decisions lead; a table that goes in circles fails."""
    for _ in range(8):
        action = decide(process, now)
        if action in (Action.KEEP, Action.WATCH):
            return process, now
        process, now = act(action, process, now)
    pytest.fail(f"{process}, {now} never settles")


@pytest.mark.parametrize("process", Process)
@pytest.mark.parametrize("desired", Desired)
def test_every_state_leads_to_what_is_desired(process: Process, desired: Desired) -> None:
    for actual, held in product(Actual, HOLDERS):
        before = job(desired, actual, held)
        found, after = settle(process, before)
        if process is Process.OUTSIDE and desired is not Desired.RUNNING and actual != "STOPPING":
            assert (found, after.actual) == (Process.OUTSIDE, Actual.RUNNING), "not ours to end"
        elif held is not None or desired is not Desired.RUNNING:
            assert found is Process.NONE and after.actual not in ALIVE
        elif process is Process.NONE and actual not in (*ALIVE, Actual.FAILED):
            assert after == before, "a request starts it, or an approval"
        else:
            assert (found, after.actual) == (Process.OURS, Actual.RUNNING)


@pytest.mark.parametrize("process", Process)
@pytest.mark.parametrize("desired", Desired)
def test_an_action_is_taken_only_where_it_can_be(process: Process, desired: Desired) -> None:
    for actual, held in product(Actual, HOLDERS):
        action = decide(process, job(desired, actual, held))
        runs = desired is Desired.RUNNING and held is None
        if action is Action.SPAWN:  # two writers, or a process that nobody wants
            assert process is Process.NONE and runs and actual is Actual.STARTING
        if action is Action.END:
            assert process is Process.OURS and actual is Actual.STOPPING
        if action in (Action.START, Action.RETRY, Action.FAIL, Action.AWAIT, Action.WATCH):
            assert runs
        if action is Action.FAIL:  # what a request or an operation stops has not failed
            assert process is Process.ENDED and actual is not Actual.STOPPING
        if process is Process.OUTSIDE:
            assert action in (Action.ADOPT, Action.SHOW_OUTSIDE, Action.KEEP)
            assert action is not Action.ADOPT or runs or held or actual is Actual.STOPPING
        if action is Action.HOLD:
            assert held is not None
        if action is Action.REST:
            assert held is None and desired is not Desired.RUNNING


@pytest.mark.parametrize("process", Process)
@pytest.mark.parametrize(("desired", "again"), REQUESTS)
def test_a_request_is_carried_out_by_the_ticks_after_it(
    process: Process, desired: Desired, again: bool
) -> None:
    for before in Actual:
        now = job(desired, before)
        action = decide_request(desired, now, again=again)
        assert action in (Action.KEEP, Action.START, Action.STOP, Action.REST)
        _, after = settle(process, act(action, process, now)[1])
        if (
            process is Process.OUTSIDE
            and desired is not Desired.RUNNING
            and action is not Action.STOP
        ):
            assert after.actual == Actual.RUNNING or before is Actual.STOPPING
        elif (
            before is Actual.CREATED and desired is Desired.STOPPED and process is not Process.ENDED
        ):
            assert after.actual in (Actual.CREATED, Actual.STOPPED)
        else:
            assert after.actual == desired


@pytest.mark.parametrize("desired", Desired)
@pytest.mark.parametrize("actual", Actual)
def test_a_request_leaves_a_held_job_to_its_operation(desired: Desired, actual: Actual) -> None:
    held = job(desired, actual, "operation")
    assert decide_request(desired, held, again=False) is Action.KEEP


@pytest.mark.parametrize("actual", Actual)
def test_a_restart_stops_what_runs_and_starts_what_does_not(actual: Actual) -> None:
    found = decide_request(Desired.RUNNING, job(Desired.RUNNING, actual), again=True)
    expected = {Actual.STARTING: Action.STOP, Actual.RUNNING: Action.STOP}
    assert found is (expected | {Actual.STOPPING: Action.KEEP}).get(actual, Action.START)
