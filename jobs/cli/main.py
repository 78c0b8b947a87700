"""The command `retally`: its arguments and its exit codes.

    arguments ──► one function of jobs.cli.commands ──► 0   done
                            └─ exceptions ────────► 1   failed: one sentence on standard error
                                                    2   bad usage, or FILE:LINE:COL: path: reason
                                                    3   from-flink: a result may differ from Flink's
                                                    75  another writer owns the job

A subcommand's module is imported when it is called, so that light commands start at once.
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
from jobs.cli.parser import SERVICE_HELP, Commands, Parser, parse_instant, parse_port, parse_whole
from schemas.limits import JOBS_RUNNING_MAX

ACTIONS = {
    "start": "starts a job of the service",
    "stop": "stops a job of the service",
    "pause": "pauses a job of the service",
    "resume": "resumes a paused job of the service",
    "restart": "stops a job of the service and starts it again",
    "logs": "prints the newest lines of a job's log",
}
JOB_ACTIONS = ("list", "show", "put", "delete", *ACTIONS)
DONE, FAILED, BAD_USAGE, DIFFERS, OWNED_ELSEWHERE = 0, 1, 2, 3, 75
# The text of our own errors is a whole sentence; the text of others is printed with its class.
_OWN_PACKAGES = ("jobs.", "schemas.", "service.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return the exit code; without `argv` end the process.

    Threads of native libraries (we saw Arrow's pool) may start while Python shuts down. That aborts
    one process in forty, so a command that succeeded would report a crash. So the process ends at
    once; everything that has to be closed is closed by then.
    """
    if argv is not None:
        return _run(list(argv))
    # For the processes that we start with `python -m`: a package called `jobs` or `service` in the
    # working directory must not hide ours.
    os.environ["PYTHONSAFEPATH"] = "1"
    code = _run(sys.argv[1:])
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["demo"]:  # has arguments of its own
        return _call(lambda: _run_demo(arguments[1:]), False)
    try:
        options = build_parser().parse_args(arguments)
    except SystemExit as end:  # argparse has printed why
        return int(end.code or 0)
    _log_to_standard_error(options.verbose)
    module, _, function = options.module.partition(":")
    run = getattr(import_module(f"jobs.cli.commands.{module}"), function or "run")
    return _call(lambda: _to_exit_code(run(options)), options.verbose)


def _run_demo(arguments: list[str]) -> int:
    from jobs.edge.machine.jars import broker_jars
    from jobs.edge.machine.java import java

    if not {"-h", "--help"} & set(arguments):
        java(), broker_jars()  # or else `_call` offers to fetch them
    return _to_exit_code(import_module("jobs.demo").main(arguments))


def _to_exit_code(answer: object) -> int:
    return answer if isinstance(answer, int) else DONE


def _call(run: Callable[[], int], verbose: bool) -> int:
    """Call `run`, and turn exceptions into sentences and exit codes."""
    try:
        code = run()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        if verbose:
            traceback.print_exc()
        from jobs.cli.offer import MISSING, offer_setup

        if isinstance(error, MISSING) and offer_setup(error):
            return _call(run, verbose)
        code, text = describe_error(error)
        print(text, file=sys.stderr)
        return code


def describe_error(error: Exception) -> tuple[int, str]:
    """Return the exit code of an exception, and the text to print."""
    from jobs.cli.excerpt import describe_problems
    from jobs.edge.process.fence import OwnedElsewhere
    from schemas.spec.file import SpecError

    if isinstance(error, SpecError):
        return BAD_USAGE, describe_problems(error)
    if isinstance(error, UsageError):
        return BAD_USAGE, f"retally: {error}"
    # The table and the publisher raise "fenced"; importing their exceptions would take a second.
    if getattr(error, "code", None) in (OwnedElsewhere.code, "fenced"):
        return OWNED_ELSEWHERE, f"retally: {error}"
    return FAILED, f"retally: {_describe(error)}"


def _describe(error: Exception) -> str:
    kind = type(error)
    text = " ".join(str(error).split())
    if kind.__module__.startswith("kafka."):
        return f"Kafka: {text or kind.__name__} (is the broker there? see retally doctor)"
    if kind.__module__.startswith(_OWN_PACKAGES):
        return text
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename is not None else ""
        return f"{where}{error.strerror} (--verbose shows where)"
    shown = text if len(text) <= 500 else text[:500] + " ..."
    return f"{kind.__name__}: {shown} (--verbose shows where)"


def _log_to_standard_error(verbose: bool) -> None:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("jobs").setLevel(logging.DEBUG if verbose else logging.WARNING)
    # The client logs every reconnect; a failure reaches us as an exception.
    logging.getLogger("kafka").setLevel(logging.WARNING if verbose else logging.CRITICAL)
    logging.getLogger("py4j").setLevel(logging.WARNING)


# --- arguments ------------------------------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands with their options."""
    parser = Parser(
        prog="retally",
        description="Exact GROUP BY aggregates over a change stream: reads Kafka, keeps state in "
        "Delta, publishes a changelog.",
    )
    version = metadata.version("retally")
    parser.add_argument("--version", action="version", version=f"retally {version}")
    commands = Commands(parser)
    _add_running(commands)
    _add_service(commands)
    _add_machine(commands)
    _add_reading(commands)
    _add_specs(commands)
    _add_upkeep(commands)
    _add_changes(commands)
    return parser


def _add_running(commands: Commands) -> None:
    command = commands.add(
        "broker", "runs an embedded Kafka broker in the foreground", module="machine:broker"
    )
    broker = command.data().parser
    broker.add_argument("--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)")
    broker.add_argument("--port", type=parse_port, default=9092, help="0: a free port (9092)")
    run = commands.add("run", "runs one job in the foreground").spec().data().brokers().master()
    run.tables().idle_after().jobs_per_driver()
    run.parser.add_argument(
        "--until-caught-up",
        action="store_true",
        help="end when all records that the topics had at the start are published",
    )
    run.parser.add_argument(
        "--drain",
        action="store_true",
        help="the same, and then close every window, because no rows follow",
    )
    serve = commands.add("serve", "runs the service, which starts and supervises jobs")
    serve.data().brokers().master().tables().idle_after().jobs_per_driver()
    serve.parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on (127.0.0.1)"
    )
    serve.parser.add_argument("--port", type=parse_port, default=8080, help="0: a free port (8080)")
    serve.parser.add_argument(
        "--running-max",
        type=parse_whole,
        default=JOBS_RUNNING_MAX,
        metavar="N",
        help=f"the maximum number of running jobs ({JOBS_RUNNING_MAX})",
    )
    token = serve.parser.add_mutually_exclusive_group()
    token.add_argument(
        "--new-token",
        metavar="NAME=ROLE[:30d]",
        help="print a new token (viewer, operator, admin) that expires after so long, and exit",
    )
    token.add_argument("--revoke-token", metavar="NAME", help="revoke a token, and exit")
    token.add_argument("--list-tokens", action="store_true", help="list the tokens, and exit")


def _add_service(commands: Commands) -> None:
    jobs = commands.add("jobs", "lists, shows, puts, starts and stops the jobs of a service")
    jobs.service().json()
    jobs.parser.add_argument("action", choices=JOB_ACTIONS, nargs="?", default="list")
    jobs.parser.add_argument("name", metavar="NAME", nargs="?", help="a job's name")
    jobs.parser.add_argument(
        "--spec", type=Path, metavar="FILE", help="for put: a job spec, YAML or JSON"
    )
    jobs.parser.add_argument(
        "--replace",
        action="store_true",
        help="for put: save a spec that does not fit the state, until it is approved",
    )
    jobs.parser.add_argument(
        "--job-data", choices=("keep", "drop"), help="for delete: keep or drop the job's table"
    )
    _add_action(jobs.parser, logs=True, others=True)
    for action, summary in ACTIONS.items():
        command = commands.add(action, summary, module="jobs").service().json().parser
        command.set_defaults(action=action)
        command.add_argument("name", metavar="JOB", help="a job's name")
        _add_action(command, logs=action == "logs", others=action != "logs")
    approve = commands.add(
        "approve", "approves the pending spec of a job", module="service:approve"
    )
    approve.service().json().parser.add_argument("name", metavar="JOB", help="a job's name")
    approve.parser.add_argument(
        "--state",
        choices=("keep", "replay", "drop"),
        help="continue with the state, read the topic again, or start over (keep, if it fits)",
    )
    operations = commands.add(
        "operations", "lists what was done with a job, newest first", module="service:operations"
    )
    operations.service().json().parser.add_argument("name", metavar="JOB", help="a job's name")
    log = commands.add(
        "audit-log", "lists who requested which change, newest first", module="service:audit_log"
    ).service()
    for each in (operations, log.json()):
        each.parser.add_argument(
            "--limit", type=parse_whole, default=100, metavar="N", help="at most N lines (100)"
        )


def _add_machine(commands: Commands) -> None:
    setup = commands.add(
        "setup",
        "fetches the jars, and Java if there is none, for this user",
        module="machine:setup",
    )
    setup.parser.add_argument(
        "--runtime", action="store_true", help="without the jars of the embedded broker"
    )
    commands.add("demo", "runs a broker, a changing source, the service, and two jobs")
    completion = commands.add(
        "completion", "prints a shell's completion script for retally", module="machine:completion"
    )
    completion.parser.add_argument("shell", choices=("bash", "zsh"))


def _add_action(parser: argparse.ArgumentParser, *, logs: bool, others: bool) -> None:
    """Add the options that some actions have, and their defaults for all."""
    parser.set_defaults(limit=100, wait=None)
    if logs:
        parser.add_argument("--limit", type=parse_whole, default=100, help="for logs: lines (100)")
    if others:
        parser.add_argument(
            "--wait",
            type=parse_whole,
            metavar="SECONDS",
            help="wait up to SECONDS for the new state",
        )


def _add_reading(commands: Commands) -> None:
    sql = commands.add("sql", "answers a SELECT over the results of all jobs").json().parser
    sql.add_argument("statement", metavar="SELECT", help="the statement; -: from standard input")
    where = sql.add_mutually_exclusive_group()
    where.add_argument("--data", type=Path, metavar="DIR", help="read the tables in DIR")
    where.add_argument("--service", metavar="URL", help=SERVICE_HELP)
    sql.add_argument(
        "--format",
        choices=("table", "document", "arrow", "csv"),
        default="table",
        help="document: one JSON object with epochs, columns and rows (table)",
    )
    results = commands.add(
        "results", "prints a job's results, now or at an epoch", module="reading:results"
    )
    results.job().view().json()
    results.parser.add_argument(
        "--key", metavar="JSON", help="one group: its value, or an object of its columns"
    )
    when = results.parser.add_mutually_exclusive_group()
    when.add_argument("--epoch", type=parse_whole, metavar="N", help="the results at epoch N")
    when.add_argument(
        "--time", type=parse_instant, metavar="T", help="the results at a time, ISO 8601"
    )
    results.parser.add_argument(
        "--where",
        action="append",
        metavar="CONDITION",
        help="such as total>=10, name^=bo or 'name is null'; several must all hold",
    )
    results.parser.add_argument(
        "--order", metavar="COLUMNS", help="such as --order=-total,name; - is descending"
    )
    results.parser.add_argument("--limit", type=parse_whole, metavar="N", help="at most N rows")
    changes = (
        commands.add("changes", "prints a job's changelog", module="reading:changes")
        .job()
        .view()
        .json()
        .parser
    )
    changes.add_argument(
        "--since", type=parse_whole, metavar="EPOCH", help="only changes after EPOCH"
    )
    changes.add_argument("--key", metavar="JSON", help="only the changes of one group")
    changes.add_argument("--follow", action="store_true", help="continue with each new epoch")
    diff = commands.add(
        "diff", "prints the groups that differ between two epochs", module="reading:diff"
    )
    diff.job().view().json().parser.add_argument(
        "--from", dest="first", type=parse_whole, required=True, metavar="N", help="an epoch"
    )
    diff.parser.add_argument(
        "--to", dest="last", type=parse_whole, metavar="N", help="another epoch (the newest)"
    )
    explain = (
        commands.add("explain", "explains the values of a group", module="reading:explain")
        .job()
        .view()
        .json()
        .parser
    )
    explain.add_argument(
        "key", metavar="KEY", nargs="?", help="the group's value, or an object of its columns"
    )


def _add_specs(commands: Commands) -> None:
    for name, summary in (
        ("replay", "runs a job on a file of steps, without Kafka and Delta"),
        ("watermarks", "runs only the watermarks of a job, on a file of steps"),
    ):
        parser = commands.add(name, summary, module="specs:run_steps").spec().parser
        parser.set_defaults(runs=name)
        parser.add_argument(
            "steps", nargs="?", default="-", metavar="STEPS", help="JSON lines (standard input)"
        )
    plan = commands.add("plan", "prints types, operators, state layout and code of a job")
    plan.spec().json().parser.add_argument("--view", metavar="NAME", help="only this view")
    commands.add(
        "validate", "checks a job spec; prints the place of every error", module="specs:validate"
    ).spec().json()
    suggest = commands.add(
        "suggest", "prints a spec for a topic, from its newest messages", module="specs:suggest"
    )
    suggest.brokers().connection().parser.add_argument("topic", metavar="TOPIC", help="a topic")
    topics = commands.add("topics", "lists, shows and creates topics")
    topics.brokers().connection().json()
    topics.parser.add_argument(
        "action", choices=("list", "show", "create"), nargs="?", default="list"
    )
    topics.parser.add_argument("name", metavar="TOPIC", nargs="?", help="a topic")
    topics.parser.add_argument(
        "--partitions", type=parse_whole, default=4, metavar="N", help="for create: its number (4)"
    )
    flink = commands.add(
        "from-flink", "writes the job specs of a Flink SQL file", module="from_flink"
    )
    flink.parser.add_argument("file", type=Path, metavar="FILE", help="statements of Flink SQL")
    flink.parser.add_argument(
        "--out", type=Path, default=Path(), metavar="DIR", help="where to write the specs (.)"
    )


def _add_upkeep(commands: Commands) -> None:
    savepoint = commands.add(
        "savepoint", "creates, lists or deletes savepoints of a job", module="states:savepoint"
    )
    which = savepoint.job().json().parser.add_mutually_exclusive_group()
    which.add_argument("--name", help="the name of the new savepoint (epoch-N)")
    which.add_argument("--list", action="store_true", help="list the savepoints")
    which.add_argument("--delete", metavar="NAME", help="delete the savepoint NAME")
    rewind = commands.add(
        "rewind", "restores a savepoint or an epoch of a stopped job", module="states:rewind"
    )
    rewind.job().brokers().json().parser.add_argument(
        "--to", required=True, metavar="N|NAME", help="an epoch, or a savepoint's name"
    )
    offsets = commands.add(
        "offsets", "prints the offsets of a job, or changes those of a stopped job"
    )
    offsets.job().brokers().json().parser.add_argument(
        "--at",
        type=parse_whole,
        metavar="EPOCH",
        help="change them only if EPOCH is the newest epoch",
    )
    where = offsets.parser.add_mutually_exclusive_group()
    where.add_argument(
        "--set", action="append", metavar="TOPIC/P=N", help="continue partition P at offset N"
    )
    where.add_argument("--reset", action="store_true", help="continue at source.start")
    quarantine = commands.add(
        "quarantine", "lists the messages that a job refused, or resends some"
    )
    replay = quarantine.job().view().brokers().json().parser
    replay.add_argument(
        "--replay",
        action="append",
        metavar="ID",
        help="send the message ID to its topic again; may be repeated",
    )
    replay.add_argument(
        "--message", metavar="FILE", help="send the content of FILE instead (-: standard input)"
    )
    replay.add_argument("--again", action="store_true", help="send it even if it was sent before")


def _add_changes(commands: Commands) -> None:
    """Add the commands that clone or evolve a job, and those that check one."""
    clone = commands.add("clone", "creates a job with the state of another", module="states:clone")
    clone.job().json().tables().parser.add_argument(
        "name", metavar="NAME", help="the new job's name"
    )
    clone.parser.add_argument(
        "--to", metavar="N|NAME", help="the epoch or savepoint to clone (the newest epoch)"
    )
    clone.parser.add_argument(
        "--spec", type=Path, metavar="FILE", help="the new job's spec (JOB's, without its sink)"
    )
    evolve = commands.add("evolve", "changes the query of a stopped job").spec()
    evolve.data().brokers().master().json().parser.add_argument(
        "--beside",
        action="store_true",
        help="for --replay: only read the topic, while the job runs; the next call takes over",
    )
    how = evolve.parser.add_mutually_exclusive_group()
    how.add_argument(
        "--check", action="store_true", help="only report whether the state answers the new query"
    )
    how.add_argument(
        "--replay", action="store_true", help="read the topic again if the state does not"
    )
    audit = commands.add("audit", "recomputes a job's results from its topic, and compares")
    audit.job().view().brokers().master().json()
    doctor = commands.add("doctor", "checks this machine").brokers().json().parser
    doctor.add_argument("--data", type=Path, metavar="DIR", help="check this directory too")


if __name__ == "__main__":
    sys.exit(main())
