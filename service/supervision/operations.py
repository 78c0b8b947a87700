"""Operations: long-running commands in their own processes, recorded in the register.

    POST ──► register: WAITING ──► `retally audit ... --json` ──► RUNNING ──► DONE, with its result
                                        │ output to a file                └─► FAILED, with a reason
                                        └ service restarted: find it by pid, or by its output

The result is the JSON output of the command; an audit that finds differences is DONE.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from schemas import limits
from schemas.documents.answers import Operation, OperationKind
from schemas.limits import SHORT_COMMAND_SECONDS_MAX
from schemas.spec.file import SpecError, load_spec
from schemas.table.epoch import Offsets
from schemas.types.json_types import JsonObject
from schemas.types.moments import format_instant, now_ms
from service.paths import hide_paths
from service.problems import Problem
from service.settings import Settings
from service.supervision import job_process
from service.supervision.evolving import Evolver, Outcome
from service.supervision.jobs import make_unfinished_problem
from service.supervision.register import OperationRecord, Register

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.2
_TOO_LONG = f"killed after {limits.OPERATION_SECONDS_MAX / 3_600:.0f} hours"
WAITING: Final = "WAITING"
RUNNING: Final = "RUNNING"
DONE: Final = "DONE"
FAILED: Final = "FAILED"


class Operations:
    """One thread that starts operations and records their results."""

    def __init__(
        self,
        register: Register,
        settings: Settings,
        evolver: Evolver,
        on_done: Callable[[OperationRecord, str], None],
    ) -> None:
        """Call `on_done` with the result before an operation is DONE; perhaps more than once."""
        self._register = register
        self._settings = settings
        self._evolver = evolver
        self._on_done = on_done
        self._home = settings.paths.home / "operations"
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._failing: set[str] = set()  # operations whose last step raised an error
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operations", daemon=True)

    def start(self) -> None:
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; running commands continue, and the next service finds them."""
        self._closed.set()
        self._wake.set()
        self._thread.join()

    def submit(
        self,
        job: str,
        kind: OperationKind,
        arguments: JsonObject,
        request_key: str | None,
        input: bytes | None = None,
        *,
        asked_by: str = "",
        alone: bool = False,
    ) -> OperationRecord:
        """Register a new operation; return the old one if the client repeats its key.

        The command reads `input` from a file. Every user sees the arguments, but not the input. If
        `alone` is set, raise a Problem while another operation of this kind runs on the job.
        """
        identity = uuid4().hex
        with self._register.transaction():
            if request_key is not None:
                known = self._register.find_operation_by_key(job, request_key)
                if known is not None:
                    return known
            if alone and (other := self._register.find_unfinished(job, kind)) is not None:
                raise make_unfinished_problem(other)
            if len(self._register.list_unfinished()) >= limits.OPERATIONS_WAITING_MAX:
                detail = f"{limits.OPERATIONS_WAITING_MAX} operations are waiting or running"
                raise Problem("too-many-requests", detail, headers={"Retry-After": "5"})
            if input is not None:
                self._file(identity, "in").write_bytes(input)
            record = OperationRecord(
                id=identity,
                job=job,
                kind=kind,
                state=WAITING,
                arguments=msgspec.json.encode(arguments).decode(),
                created_at=now_ms(),
                request_key=request_key,
                asked_by=asked_by,
            )
            self._register.add_operation(record)
        self._wake.set()
        return record

    def _file(self, identity: str, ending: str) -> Path:
        return self._home / f"{identity}.{ending}"

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._tick()
            except Exception:
                log.exception("cannot process the operations")
            self._wake.wait(_TICK_SECONDS)
            self._wake.clear()

    def _tick(self) -> None:
        unfinished = sorted(self._register.list_unfinished(), key=lambda each: each.created_at)
        running = [each for each in unfinished if each.state == RUNNING]
        for each in running:
            self._try(each, self._check)
        free = limits.OPERATIONS_AT_ONCE_MAX - len(running)
        for each in unfinished:
            if each.state == WAITING and free > 0 and self._try(each, self._start):
                free -= 1
        self._failing &= {each.id for each in unfinished}

    def _try(self, record: OperationRecord, step: Callable[[OperationRecord], None]) -> bool:
        """Take a step of an operation, and return whether it worked.

        An error is logged once; the others go on, and each tick tries again until the deadline.
        """
        try:
            step(record)
        except Exception as error:
            if record.id not in self._failing:
                log.exception(
                    "cannot process operation %s (%s of job %s), trying again",
                    record.id,
                    record.kind,
                    record.job,
                )
                self._failing.add(record.id)
            if record.is_overdue:
                self._end(record, None, f"the service cannot process the operation: {error}")
            return False
        self._failing.discard(record.id)
        return True

    def _start(self, record: OperationRecord) -> None:
        if record.kind == "evolve":  # has steps; the first may not be a command
            self._register.change_operation(record.id, state=RUNNING, began_at=now_ms())
            return
        self._start_command(record, self._make_command(record))

    def _start_command(self, record: OperationRecord, command: Sequence[str]) -> None:
        with (
            self._file(record.id, "json").open("wb") as out,
            self._file(record.id, "err").open("wb") as err,
        ):
            child = subprocess.Popen(
                [sys.executable, "-m", "jobs.cli.main", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._children[record.id] = child
        self._register.change_operation(
            record.id,
            state=RUNNING,
            began_at=record.began_at or now_ms(),
            pid=child.pid,
            pid_born=job_process.read_birth(child.pid),
        )

    def _make_command(self, record: OperationRecord) -> list[str]:
        arguments = msgspec.json.decode(record.arguments)
        command = [record.kind, record.job, "--data", str(self._settings.paths.data), "--json"]
        command += ["--view", arguments["view"]] if arguments.get("view") else []
        input_file = str(self._file(record.id, "in"))
        match record.kind:
            case "rewind":
                return [*command, "--to", str(arguments["to"]), *self._settings.kafka_arguments]
            case "offsets":
                command += ["--at", str(arguments["epoch"]), *self._settings.kafka_arguments]
                moved = arguments["offsets"]
                return [*command, *(["--reset"] if moved is None else _make_set_options(moved))]
            case "clone":
                to = [] if arguments["to"] is None else ["--to", str(arguments["to"])]
                return [*command, arguments["name"], "--spec", input_file, *to]
            case "quarantine":
                ids = arguments.get("ids") or [arguments["id"]]
                command += [f"--replay={each}" for each in ids]
                command += self._settings.kafka_arguments
                command += ["--message", input_file] if arguments.get("fixed") else []
                return [*command, "--again"] if arguments["again"] else command
        return [*command, *self._settings.run_arguments]

    def _check(self, record: OperationRecord) -> None:
        child = self._children.get(record.id)
        if child is not None:
            ended = child.poll() is not None
        else:
            ended = record.pid is None or not job_process.is_alive(record.pid, record.pid_born)
        if not ended:
            if record.is_overdue and record.pid is not None:
                with self._file(record.id, "err").open("a") as said:
                    said.write(f"\nretally: {_TOO_LONG}\n")
                job_process.kill(record.pid)
            return
        self._children.pop(record.id, None)
        outcome: Outcome | None = self._read_outcome(record)
        if record.kind == "evolve":
            outcome = self._step_evolve(record)
        if outcome is None:
            return
        result, reason = outcome
        if result is not None:
            try:
                self._on_done(record, result)  # before DONE: a killed service repeats it
            except Problem as problem:
                result, reason = None, problem.detail
        self._end(record, result, reason)

    def _end(self, record: OperationRecord, result: str | None, reason: str | None) -> None:
        """Record the end of an operation; if it has failed, release the job that it holds."""
        if result is None:
            self._evolver.release(record)
        if reason is not None:
            hidden = hide_paths(reason, self._settings.paths.data)
            reason = hidden[: limits.REASON_CHARACTERS_MAX]
        self._register.change_operation(
            record.id,
            state=DONE if result else FAILED,
            ended_at=now_ms(),
            pid=None,
            pid_born=None,
            result=result,
            reason=reason,
        )
        for ending in ("json", "err", "in"):
            self._file(record.id, ending).unlink(missing_ok=True)

    def _read_outcome(self, record: OperationRecord) -> Outcome:
        """Return the result or the error of the operation's last command."""
        result = _read_json(self._file(record.id, "json"))
        return result, None if result else _read_error(self._file(record.id, "err"))

    def _step_evolve(self, record: OperationRecord) -> Outcome | None:
        spec_file = self._file(record.id, "in")
        data = ["--data", str(self._settings.paths.data), "--json", *self._settings.run_arguments]

        def start(record: OperationRecord, arguments: list[str]) -> None:
            command, *options = arguments
            self._start_command(record, [command, str(spec_file), *options, *data])

        try:
            spec = load_spec(spec_file)
        except (OSError, SpecError) as error:
            return None, f"cannot read the spec of the operation: {error}"
        return self._evolver.step(record, spec, start, lambda: self._read_outcome(record))


def _make_set_options(offsets: Offsets) -> list[str]:
    return [
        f"--set={topic}/{partition}={offset}"
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    ]


def describe_operation(record: OperationRecord) -> Operation:
    """Return an operation's document."""
    return Operation(
        id=record.id,
        job=record.job,
        kind=record.kind,
        state=record.state,
        arguments=msgspec.json.decode(record.arguments),
        asked_by=record.asked_by,
        created_at=format_instant(record.created_at),
        began_at=None if record.began_at is None else format_instant(record.began_at),
        ended_at=None if record.ended_at is None else format_instant(record.ended_at),
        result=None if record.result is None else msgspec.json.decode(record.result),
        reason=record.reason,
    )


def run_command(settings: Settings, arguments: Sequence[str]) -> bytes:
    """Run a short command and return its output; raise a Problem with its last error line."""
    done = subprocess.run(
        [sys.executable, "-m", "jobs.cli.main", *arguments, "--data", str(settings.paths.data)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SHORT_COMMAND_SECONDS_MAX,
        env={**os.environ, "PYTHONUTF8": "1"},
        check=False,
    )
    if done.returncode != 0:
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        error = errors[-1].removeprefix("retally: ") if errors else f"exit code {done.returncode}"
        detail = hide_paths(error, settings.paths.data)[: limits.REASON_CHARACTERS_MAX]
        raise Problem("operation-failed", detail)
    return done.stdout


def _read_json(path: Path) -> str | None:
    """Return the output of a command if it is JSON."""
    try:
        if path.stat().st_size > limits.OPERATION_OUTPUT_BYTES_MAX:
            return None
        text = path.read_text().strip()
        msgspec.json.decode(text)
    except (OSError, ValueError):
        return None
    return text


def _read_error(path: Path) -> str:
    """Return the last error line of a command."""
    try:
        text = path.read_bytes()[-4_096:].decode("utf-8", "replace")
    except OSError:
        return "its error output is missing"
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("retally: ")]
    error = (errors or lines or ["the command ended without an error message"])[-1]
    return error.removeprefix("retally: ")
