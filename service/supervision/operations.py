"""Operations: commands that take a while, run as processes of their own, remembered for good.

    POST ──► register: WAITING ──► `retally audit ... --json` ──► RUNNING ──► DONE, with its result
                                        │ output to a file                └─► FAILED, with why
                                        └ service gone and back: found by pid, or by what it wrote

The result is what the command printed as JSON; an audit that finds differences is DONE.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from schemas import limits
from schemas.spec.file import SpecError, load_spec
from schemas.table.epoch import Offsets
from service.moments import instant, now_ms
from service.problems import Problem
from service.settings import Settings
from service.supervision import job_process
from service.supervision.evolving import Evolving, Outcome
from service.supervision.jobs import at_work
from service.supervision.register import OperationRecord, Register

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.2
WAITING, RUNNING, DONE, FAILED = "WAITING", "RUNNING", "DONE", "FAILED"
_COMMAND_SECONDS_MAX = 120.0


class Operations:
    """One thread that starts them and sees them end."""

    def __init__(
        self,
        register: Register,
        settings: Settings,
        evolving: Evolving,
        done: Callable[[OperationRecord, str], None],
    ) -> None:
        """`done` is told of what has been done and its result, before it is DONE, and may be told
        again."""
        self._register = register
        self._settings = settings
        self._evolving = evolving
        self._done = done
        self._home = settings.places.home / "operations"
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operations", daemon=True)

    def start(self) -> None:
        self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._thread.start()

    def close(self) -> None:
        """What runs goes on; the next service finds it."""
        self._closed.set()
        self._wake.set()
        self._thread.join()

    def ask(
        self,
        job: str,
        kind: str,
        arguments: dict[str, Any],
        request_key: str | None,
        given: bytes | None = None,
        *,
        asked_by: str = "",
        alone: bool = False,
    ) -> OperationRecord:
        """A new operation; the one of before where the client sends its key again. `given` is what
        the command reads besides its arguments: those are shown to everybody, it is not. One that
        is to be `alone` is refused while another of its kind is at work on the job."""
        identity = uuid4().hex
        with self._register.transaction():
            if request_key is not None:
                known = self._register.operation_of_request(job, request_key)
                if known is not None:
                    return known
            if alone and (other := self._register.at_work(job, kind)) is not None:
                raise at_work(other)
            if len(self._register.unfinished()) >= limits.OPERATIONS_WAITING_MAX:
                detail = f"{limits.OPERATIONS_WAITING_MAX} operations wait or run already"
                raise Problem("too-many-requests", 429, detail, headers={"Retry-After": "5"})
            if given is not None:
                self._file(identity, "in").write_bytes(given)
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
                log.exception("operations")
            self._wake.wait(_TICK_SECONDS)
            self._wake.clear()

    def _tick(self) -> None:
        unfinished = sorted(self._register.unfinished(), key=lambda each: each.created_at)
        running = [each for each in unfinished if each.state == RUNNING]
        for each in running:
            self._look(each)
        free = limits.OPERATIONS_AT_ONCE_MAX - len(running)
        for each in [each for each in unfinished if each.state == WAITING][: max(free, 0)]:
            self._begin(each)

    def _begin(self, record: OperationRecord) -> None:
        if record.kind == "evolve":  # in steps, of which a command may not be the first
            self._register.change_operation(record.id, state=RUNNING, began_at=now_ms())
            return
        self._start(record, self._command(record))

    def _start(self, record: OperationRecord, command: Sequence[str]) -> None:
        with (
            self._file(record.id, "json").open("wb") as out,
            self._file(record.id, "err").open("wb") as err,
        ):
            child = subprocess.Popen(
                [sys.executable, "-m", "jobs.cli.main", *command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
        self._children[record.id] = child
        self._register.change_operation(
            record.id,
            state=RUNNING,
            began_at=record.began_at or now_ms(),
            pid=child.pid,
            pid_born=job_process.birth(child.pid),
        )

    def _command(self, record: OperationRecord) -> list[str]:
        arguments = msgspec.json.decode(record.arguments)
        command = [record.kind, record.job, "--data", str(self._settings.places.data), "--json"]
        given = str(self._file(record.id, "in"))
        match record.kind:
            case "rewind":
                return [*command, "--to", str(arguments["to"]), *self._settings.kafka_arguments]
            case "offsets":
                command += ["--at", str(arguments["epoch"]), *self._settings.kafka_arguments]
                moved = arguments["offsets"]
                return [*command, *(["--reset"] if moved is None else _settings_of(moved))]
            case "clone":
                to = [] if arguments["to"] is None else ["--to", str(arguments["to"])]
                return [*command, arguments["name"], "--spec", given, *to]
            case "quarantine":
                command += ["--replay", arguments["id"], *self._settings.kafka_arguments]
                command += ["--message", given] if arguments["fixed"] else []
                return [*command, "--again"] if arguments["again"] else command
        return [*command, *self._settings.run_arguments]

    def _look(self, record: OperationRecord) -> None:
        child = self._children.get(record.id)
        if child is not None:
            ended = child.poll() is not None
        else:
            ended = record.pid is None or not job_process.alive(record.pid, record.pid_born)
        if not ended:
            ran = now_ms() - (record.began_at or 0)
            if ran > limits.OPERATION_SECONDS_MAX * 1_000 and record.pid is not None:
                job_process.kill(record.pid)
            return
        self._children.pop(record.id, None)
        outcome: Outcome | None = self._said(record)
        if record.kind == "evolve":
            outcome = self._step(record)
        if outcome is None:
            return
        result, reason = outcome
        if result is not None:
            try:
                self._done(record, result)  # before it is DONE: a kill in between does it again
            except Problem as problem:
                result, reason = None, problem.detail
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

    def _said(self, record: OperationRecord) -> Outcome:
        """What the operation's last command has come to."""
        result = _json(self._file(record.id, "json"))
        return result, None if result else _sentence(self._file(record.id, "err"))

    def _step(self, record: OperationRecord) -> Outcome | None:
        given = self._file(record.id, "in")
        data = ["--data", str(self._settings.places.data), "--json", *self._settings.run_arguments]

        def start(record: OperationRecord, arguments: list[str]) -> None:
            command, *options = arguments
            self._start(record, [command, str(given), *options, *data])

        try:
            spec = load_spec(given)
        except (OSError, SpecError) as error:
            return None, f"the spec of the operation cannot be read: {error}"
        return self._evolving.step(record, spec, start, lambda: self._said(record))


def _settings_of(offsets: Offsets) -> list[str]:
    return [
        f"--set={topic}/{partition}={offset}"
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    ]


def described(record: OperationRecord) -> dict[str, Any]:
    def moment(at: int | None) -> str | None:
        return None if at is None else instant(at)

    return {
        "id": record.id,
        "job": record.job,
        "kind": record.kind,
        "state": record.state,
        "arguments": msgspec.json.decode(record.arguments),
        "asked_by": record.asked_by,
        "created_at": moment(record.created_at),
        "began_at": moment(record.began_at),
        "ended_at": moment(record.ended_at),
        "result": None if record.result is None else msgspec.json.decode(record.result),
        "reason": record.reason,
    }


def command(settings: Settings, arguments: Sequence[str]) -> tuple[int, str, str]:
    """A command that is done in a moment: exit code, output, its sentence on standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "jobs.cli.main", *arguments, "--data", str(settings.places.data)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_COMMAND_SECONDS_MAX,
        env={**os.environ, "PYTHONUTF8": "1"},
        check=False,
    )
    errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
    said = errors[-1].removeprefix("retally: ") if errors else f"exit code {done.returncode}"
    return done.returncode, done.stdout.decode("utf-8", "replace"), said


def _json(path: Path) -> str | None:
    """What a command printed, where that is JSON."""
    try:
        if path.stat().st_size > limits.OPERATION_OUTPUT_BYTES_MAX:
            return None
        text = path.read_text().strip()
        msgspec.json.decode(text)
    except (OSError, ValueError):
        return None
    return text


def _sentence(path: Path) -> str:
    try:
        text = path.read_bytes()[-4_096:].decode("utf-8", "replace")
    except OSError:
        return "it left no word"
    lines = [line for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("retally: ")]
    said = (own or lines or ["it ended without a word"])[-1]
    return said.removeprefix("retally: ")[: limits.REASON_CHARACTERS_MAX]
