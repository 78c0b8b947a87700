"""The command `retally`: its arguments, and what its exit codes mean.

    arguments ──► one file of jobs.cli.commands ──► 0   done
                            └─ exceptions ────► 1   failed: one sentence on standard error
                                                2   bad usage, or FILE:LINE:COL: path: reason
                                                75  another writer owns the job

A subcommand's file is imported when it is called, so that the light ones start at once.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path

from jobs.cli.errors import UsageError
from schemas.limits import JOBS_RUNNING_MAX
from schemas.table.object_path import TABLES_VARIABLE, ObjectPath

ACTIONS = {
    "start": "has a job of the service run",
    "stop": "ends a job of the service, for good",
    "pause": "ends a job of the service for a while",
    "resume": "has a paused job run again",
    "restart": "ends a job of the service and starts it again",
    "logs": "the newest lines of a job's log",
}
JOB_ACTIONS = ("list", "show", "put", "delete", *ACTIONS)
DONE, FAILED, BAD_USAGE, OWNED_ELSEWHERE = 0, 1, 2, 75
# Errors of ours whose text is a whole sentence; of others the kind is shown too.
_SERVICE = "the service that is asked (RETALLY_SERVICE, then http://127.0.0.1:8080)"
_OWN_PACKAGES = ("jobs.", "schemas.", "service.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; the return value is the exit code.

    As the process's own command it does not return: threads of native libraries (Arrow's pool was
    seen) that still start while Python tears itself down abort one process in forty, and then a
    finished command reports a crash. All that must be closed is closed by then.
    """
    if argv is not None:
        return _run(list(argv))
    code = _run(sys.argv[1:])
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["demo"]:  # has arguments of its own
        return _guarded(lambda: _exit_code(import_module("jobs.demo").main(arguments[1:])), False)
    try:
        options = parser().parse_args(arguments)
    except SystemExit as end:  # argparse has said why
        return int(end.code or 0)
    _log_to_standard_error(options.verbose)
    over_http = "service" in options and "data" in options and options.data is None
    module = "jobs.cli.over_http" if over_http else f"jobs.cli.commands.{options.module}"
    run = import_module(module).run
    return _guarded(lambda: _exit_code(run(options)), options.verbose)


def _exit_code(answer: object) -> int:
    return answer if isinstance(answer, int) else DONE


def _guarded(run: Callable[[], int], verbose: bool) -> int:
    """Call it, and turn exceptions into sentences and exit codes."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        if verbose:
            traceback.print_exc()
        code, text = _explained(error)
        print(text, file=sys.stderr)
        return code


def _explained(error: Exception) -> tuple[int, str]:
    """The exit code of an exception, and what to print."""
    from jobs.edge.process.fence import OwnedElsewhere
    from schemas.spec.file import SpecError

    if isinstance(error, SpecError):
        return BAD_USAGE, str(error)
    if isinstance(error, UsageError):
        return BAD_USAGE, f"retally: {error}"
    # The table's word and the publisher's for the same; not imported, for they are heavy.
    fenced = type(error).__name__ == "Fenced"
    fenced = fenced or getattr(getattr(error, "fatal", None), "code", None) == "fenced"
    if isinstance(error, OwnedElsewhere) or fenced:
        return OWNED_ELSEWHERE, f"retally: {error}"
    return FAILED, f"retally: {_sentence(error)}"


def _sentence(error: Exception) -> str:
    kind = type(error)
    text = " ".join(str(error).split())
    if kind.__module__.startswith("kafka."):
        return f"Kafka: {text or kind.__name__} (is the broker there? see retally doctor)"
    if kind.__module__.startswith(_OWN_PACKAGES) or isinstance(error, FileNotFoundError):
        return text
    shown = text if len(text) <= 500 else text[:500] + " ..."
    return f"{kind.__name__}: {shown} (--verbose shows where)"


def _log_to_standard_error(verbose: bool) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("jobs").setLevel(logging.DEBUG if verbose else logging.WARNING)
    # Reconnecting is their daily business; what comes of it reaches us as an exception.
    logging.getLogger("kafka").setLevel(logging.WARNING if verbose else logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.WARNING)


# --- arguments ------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """All commands with their options."""
    parser = argparse.ArgumentParser(
        prog="retally",
        description="Exact GROUP BY aggregates over a change stream: Kafka in, Delta as the "
        "truth, a changelog out.",
    )
    version = metadata.version("retally")
    parser.add_argument("--version", action="version", version=f"retally {version}")
    commands = _Commands(parser)
    _add_running(commands)
    _add_reading(commands)
    _add_specs(commands)
    _add_upkeep(commands)
    return parser


class _Commands:
    """The subparsers, each with the options that every subcommand has."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._group = parser.add_subparsers(
            title="commands", dest="command", required=True, metavar="COMMAND"
        )

    def add(self, name: str, summary: str, *, module: str | None = None) -> _Command:
        parser = self._group.add_parser(name, help=summary, description=f"{summary}.")
        parser.set_defaults(module=module or name)
        parser.add_argument("-v", "--verbose", action="store_true", help="logs, and tracebacks")
        return _Command(parser)


class _Command:
    """One subparser, filled by chained calls."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser

    def data(self) -> _Command:
        self.parser.add_argument(
            "--data", type=Path, required=True, metavar="DIR", help="where jobs keep their tables"
        )
        return self

    def job(self) -> _Command:
        """Of the tables in a directory, or else of a service."""
        self.parser.add_argument("job", metavar="JOB", help="a job's name")
        where = self.parser.add_mutually_exclusive_group()
        where.add_argument(
            "--data", type=Path, metavar="DIR", help="read the tables there, without a service"
        )
        where.add_argument("--service", metavar="URL", help=_SERVICE)
        return self

    def service(self) -> _Command:
        self.parser.add_argument("--service", metavar="URL", help=_SERVICE)
        return self

    def spec(self) -> _Command:
        self.parser.add_argument("spec", type=Path, metavar="SPEC", help="a job spec, YAML or JSON")
        return self

    def brokers(self) -> _Command:
        self.parser.add_argument(
            "--brokers",
            metavar="HOST:PORT",
            help="the connection named default (RETALLY_BROKERS, then 127.0.0.1:9092)",
        )
        self.parser.add_argument(
            "--connections", type=Path, metavar="FILE", help="more connections, with SASL and TLS"
        )
        return self

    def master(self) -> _Command:
        self.parser.add_argument(
            "--master", default="local[2]", metavar="M", help="Spark's master (local[2])"
        )
        return self

    def tables(self) -> _Command:
        self.parser.add_argument(
            "--tables",
            type=_tables,
            default=os.environ.get(TABLES_VARIABLE) or None,
            metavar="URL",
            help=f"s3://BUCKET/PREFIX: new tables are made there ({TABLES_VARIABLE}, then --data)",
        )
        return self

    def json(self) -> _Command:
        self.parser.add_argument("--json", action="store_true", help="JSON instead of a table")
        return self


def _add_running(commands: _Commands) -> None:
    broker = commands.add("broker", "an embedded Kafka broker in the foreground").data().parser
    broker.add_argument("--host", default="127.0.0.1", help="where it listens (127.0.0.1)")
    broker.add_argument("--port", type=_port, default=9092, help="0: a free one (9092)")
    run = commands.add("run", "runs one job in the foreground").spec().data().brokers().master()
    run.tables()
    run.parser.add_argument(
        "--until-caught-up",
        action="store_true",
        help="end when everything that was there at the start is published",
    )
    serve = commands.add("serve", "the service that starts and supervises jobs")
    serve.data().brokers().master().tables()
    serve.parser.add_argument("--host", default="127.0.0.1", help="where it listens (127.0.0.1)")
    serve.parser.add_argument("--port", type=_port, default=8080, help="0: a free one (8080)")
    serve.parser.add_argument(
        "--running-max",
        type=_whole,
        default=JOBS_RUNNING_MAX,
        metavar="N",
        help=f"jobs that run at once ({JOBS_RUNNING_MAX})",
    )
    token = serve.parser.add_mutually_exclusive_group()
    token.add_argument(
        "--new-token",
        metavar="NAME=ROLE[:30d]",
        help="print a new token (viewer, operator, admin), which ends after so long, and end",
    )
    token.add_argument("--revoke-token", metavar="NAME", help="revoke a token, and end")
    token.add_argument("--list-tokens", action="store_true", help="list the tokens, and end")
    jobs = commands.add("jobs", "the jobs of a running service: look, put, start, stop")
    jobs.service().json()
    jobs.parser.add_argument("action", choices=JOB_ACTIONS, nargs="?", default="list")
    jobs.parser.add_argument("name", metavar="NAME", nargs="?", help="a job's name")
    jobs.parser.add_argument("--spec", metavar="FILE", help="of put: a job spec, YAML or JSON")
    jobs.parser.add_argument("--job-data", choices=("keep", "drop"), help="of delete: its table")
    _add_action(jobs.parser, logs=True, others=True)
    for action, summary in ACTIONS.items():
        command = commands.add(action, summary, module="jobs").service().json().parser
        command.set_defaults(action=action)
        command.add_argument("name", metavar="JOB", help="a job's name")
        _add_action(command, logs=action == "logs", others=action != "logs")
    commands.add("demo", "a broker, a living source, the service, and two jobs")
    completion = commands.add("completion", "what a shell needs to complete this command")
    completion.parser.add_argument("shell", choices=("bash", "zsh"))


def _add_action(parser: argparse.ArgumentParser, *, logs: bool, others: bool) -> None:
    """The options of some actions; those that a command does not have are unsaid."""
    parser.set_defaults(limit=100, wait=None)
    if logs:
        parser.add_argument("--limit", type=_whole, default=100, help="of logs: lines (100)")
    if others:
        parser.add_argument(
            "--wait", type=_whole, metavar="SECONDS", help="until it is so, at most that long"
        )


def _add_reading(commands: _Commands) -> None:
    results = commands.add("results", "a job's results, now or at an epoch").job().json().parser
    results.add_argument(
        "--key", metavar="JSON", help="one group: its value, or an object of its columns"
    )
    results.add_argument("--epoch", type=_epoch, metavar="N", help="as they were after epoch N")
    changes = commands.add("changes", "a job's changelog").job().json().parser
    changes.add_argument("--since", type=_epoch, metavar="EPOCH", help="only what came after it")
    changes.add_argument("--follow", action="store_true", help="go on as epochs are committed")
    explain = commands.add("explain", "why a group's values are what they are").job().json().parser
    explain.add_argument(
        "key", metavar="KEY", nargs="?", help="the group's value, or an object of its columns"
    )


def _add_specs(commands: _Commands) -> None:
    for name, summary in (
        ("replay", "a job on a file of steps, without Kafka and Delta"),
        ("watermarks", "only the watermarks of a job, on a file of steps"),
    ):
        parser = commands.add(name, summary).spec().parser
        parser.add_argument(
            "steps", nargs="?", default="-", metavar="STEPS", help="JSON lines (standard input)"
        )
    commands.add("plan", "types, operators, state layout and code of a job").spec().json()
    commands.add("validate", "checks a job spec; every error with its place").spec().json()


def _add_upkeep(commands: _Commands) -> None:
    savepoint = commands.add("savepoint", "names a job's newest epoch, to go back to").job().json()
    which = savepoint.parser.add_mutually_exclusive_group()
    which.add_argument("--name", help="its name (epoch-N)")
    which.add_argument("--list", action="store_true", help="show the savepoints there are")
    which.add_argument("--delete", metavar="NAME", help="let go of one")
    rewind = commands.add("rewind", "sets a stopped job back to a savepoint or an epoch")
    rewind.job().brokers().json().parser.add_argument(
        "--to", required=True, metavar="N|NAME", help="a savepoint's name, or an epoch"
    )
    offsets = commands.add("offsets", "where a job goes on in its topics; sets a stopped one")
    offsets.job().brokers().json().parser.add_argument(
        "--at", type=_epoch, metavar="EPOCH", help="only if the job stands at this epoch"
    )
    where = offsets.parser.add_mutually_exclusive_group()
    where.add_argument(
        "--set", action="append", metavar="TOPIC/P=N", help="go on there from offset N"
    )
    where.add_argument("--reset", action="store_true", help="go on from source.start")
    quarantine = commands.add("quarantine", "messages that a job did not take; sends one again")
    replay = quarantine.job().brokers().json().parser
    replay.add_argument("--replay", metavar="ID", help="send this one to its topic again")
    replay.add_argument("--message", metavar="FILE", help="fixed, as in this file (-: stdin)")
    replay.add_argument("--again", action="store_true", help="though it was sent again before")
    clone = commands.add("clone", "a new job with the state of another")
    clone.job().json().tables().parser.add_argument(
        "name", metavar="NAME", help="the new job's name"
    )
    clone.parser.add_argument(
        "--to", metavar="N|NAME", help="of a savepoint or an epoch (the newest)"
    )
    clone.parser.add_argument(
        "--spec", type=Path, metavar="FILE", help="its spec (the other's, without its sink)"
    )
    evolve = commands.add("evolve", "lets a stopped job go on under a changed query").spec()
    evolve.data().brokers().master().json().parser.add_argument(
        "--beside",
        action="store_true",
        help="of --replay: only read the topic, beside the running job; the next call takes over",
    )
    how = evolve.parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="only say what it would take")
    how.add_argument(
        "--replay", action="store_true", help="read the topic again where the state does not do"
    )
    audit = commands.add("audit", "recomputes a job's results from its topic, and compares")
    audit.job().brokers().master().json()
    doctor = commands.add("doctor", "checks this machine").brokers().json().parser
    doctor.add_argument("--data", type=Path, metavar="DIR", help="check this directory too")


def _tables(text: str) -> ObjectPath:
    try:
        return ObjectPath.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _port(text: str) -> int:
    number = _whole(text)
    if number > 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return number


def _epoch(text: str) -> int:
    return _whole(text)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
