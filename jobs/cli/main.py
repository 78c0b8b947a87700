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
from jobs.cli.parser import (
    Command,
    Commands,
    Parser,
    parse_address,
    parse_instant,
    parse_port,
    parse_whole,
)
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
    if arguments[:1] in ([], ["help"]):
        arguments = [*arguments[1:], "--help"]
    elif arguments == ["version"]:
        arguments = ["--version"]
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
    return _to_exit_code(import_module("jobs.demo.run").main(arguments))


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
    from jobs.cli.output import describe_problems
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
    host = "the address to listen on (127.0.0.1)"
    broker = commands.add(
        "broker", "runs an embedded Kafka broker in the foreground", module="machine:broker"
    )
    broker.data().option("--host", None, host, default="127.0.0.1")
    broker.option("--port", None, "0: a free port (9092)", type=parse_port, default=9092)
    run = commands.add("run", "runs one job in the foreground").spec().data().brokers().master()
    run.tables().time_defaults().jobs_per_driver()
    caught_up = "end when all records that the topics had at the start are published"
    run.flag("--until-caught-up", caught_up)
    run.flag("--drain", "the same, and then close every window, because no rows follow")
    serve = commands.add("serve", "runs the service, which starts and supervises jobs")
    serve.data().brokers().master().tables().time_defaults().jobs_per_driver()
    serve.option("--host", None, host, default="127.0.0.1")
    serve.option("--port", None, "0: a free port (8080)", type=parse_port, default=8080)
    advertised = "the address for clients of standbys, which name it (http://HOST:PORT)"
    serve.option("--advertise", "URL", advertised, type=parse_address)
    postgres = "also answer PostgreSQL's clients, on this port (5433 is usual)"
    serve.option("--pg-port", None, postgres, type=parse_port)
    certificate = "the certificate (PEM) of that port, which then takes encrypted connections only"
    serve.option("--pg-tls-cert", "FILE", certificate, type=Path)
    serve.option("--pg-tls-key", "FILE", "its key (PEM, without a password)", type=Path)
    running = f"the maximum number of running jobs ({JOBS_RUNNING_MAX})"
    serve.option(
        "--log-format", None, "of the log (text)", choices=("text", "json"), default="text"
    )
    serve.option("--running-max", "N", running, type=parse_whole, default=JOBS_RUNNING_MAX)
    beside = serve.either()
    standby = "beside a service that leads, answer reads, and lead once it is gone (the default)"
    beside.flag("--standby", standby)
    beside.flag("--read-only", "beside a service that leads, only answer reads")
    new = "print a new token (viewer, operator, admin) that expires after so long, and exit"
    tokens = serve.either().option("--new-token", "NAME=ROLE[:30d]", new)
    tokens.option("--revoke-token", "NAME", "revoke a token, and exit")
    tokens.flag("--list-tokens", "list the tokens, and exit")


def _add_service(commands: Commands) -> None:
    jobs = commands.add("jobs", "lists, shows, puts, starts and stops the jobs of a service")
    jobs.service().output()
    jobs.option("action", None, None, choices=JOB_ACTIONS, nargs="?", default="list")
    jobs.option("name", "NAME|SPEC", "a job's name; for put: a job spec", nargs="?")
    jobs.option("--spec", "FILE", "for put: the job spec of NAME, YAML or JSON", type=Path)
    replace = "for put: save a spec that does not fit the state, until it is approved"
    jobs.flag("--replace", replace)
    jobs.option("--label", "LABEL", "for list: only the jobs whose spec has this label")
    data = "for delete: keep or drop the job's table"
    jobs.option("--job-data", None, data, choices=("keep", "drop"))
    _add_action(jobs, logs=True, others=True)
    for action, summary in ACTIONS.items():
        command = commands.add(action, summary, module="jobs").service().output()
        command.default(action=action).option("name", "JOB", "a job's name")
        _add_action(command, logs=action == "logs", others=action != "logs")
    follows = "puts a spec, starts its job and prints its changes"
    up = commands.add("up", follows, module="first_hour:up").spec().service().output()
    up.default(data=None, takes_view=False, key=None, follow=True)
    approve = commands.add(
        "approve", "approves the pending spec of a job", module="service:approve"
    )
    approve.service().output().option("name", "JOB", "a job's name")
    state = "continue with the state, read the topic again, or start over (keep, if it fits)"
    approve.option("--state", None, state, choices=("keep", "replay", "drop")).waiting()
    operations = commands.add(
        "operations", "lists what was done with a job, newest first", module="service:operations"
    )
    operations.service().output().option("name", "JOB", "a job's name")
    log = commands.add(
        "audit-log", "lists who requested which change, newest first", module="service:audit_log"
    ).service()
    for each in (operations, log.output()):
        each.option("--limit", "N", "at most N lines (100)", type=parse_whole, default=100)


def _add_machine(commands: Commands) -> None:
    summary = "fetches the jars, and Java if there is none, for this user"
    setup = commands.add("setup", summary, module="machine:setup")
    setup.flag("--runtime", "without the jars of the embedded broker")
    commands.add("demo", "runs a broker, a changing source, the service, and two jobs")
    summary = "prints a shell's completion script for retally"
    completion = commands.add("completion", summary, module="machine:completion")
    completion.option("shell", None, None, choices=("bash", "zsh", "fish"))


def _add_action(command: Command, *, logs: bool, others: bool) -> None:
    """Add the options that some actions have, and their defaults for all."""
    command.default(limit=100, follow=False, wait=None, label=None)
    if logs:
        lines = "for logs: the newest N lines (100)"
        command.option("--limit --tail", "N", lines, type=parse_whole, default=100)
        command.flag("-f --follow", "for logs: continue with each new line")
    if others:
        text = "wait up to SECONDS for the new state"
        command.option("--wait", "SECONDS", text, type=parse_whole)


def _add_reading(commands: Commands) -> None:
    sql = commands.add("sql", "answers a SELECT over the results of all jobs")
    sql.output("document", "arrow", also="--format")
    sql.option("statement", "SELECT", "the statement; -: from standard input")
    sql.either().option("--data", "DIR", "read the tables in DIR", type=Path).service()
    results = commands.add(
        "results", "prints a job's results, now or at an epoch", module="reading:results"
    )
    results.job().view().output()
    results.option("--key", "JSON", "one group: its value, or an object of its columns")
    when = results.either().option("--epoch", "N", "the results at epoch N", type=parse_whole)
    when.option("--time", "T", "the results at a time, ISO 8601", type=parse_instant)
    where = "such as total>=10, name^=bo or 'name is null'; several must all hold"
    results.option("--where", "CONDITION", where, action="append")
    results.option("--order", "COLUMNS", "such as --order=-total,name; - is descending")
    results.option("--limit", "N", "at most N rows", type=parse_whole)
    changes = commands.add("changes", "prints a job's changelog", module="reading:changes")
    changes.job().view().output()
    changes.option("--since", "EPOCH", "only changes after EPOCH", type=parse_whole)
    changes.option("--key", "JSON", "only the changes of one group")
    changes.flag("--follow", "continue with each new epoch")
    diff = commands.add(
        "diff", "prints the groups that differ between two epochs", module="reading:diff"
    )
    diff.job().view().output()
    diff.option("--from", "N", "an epoch", dest="first", type=parse_whole, required=True)
    diff.option("--to", "N", "another epoch (the newest)", dest="last", type=parse_whole)
    explain = commands.add("explain", "explains the values of a group", module="reading:explain")
    explain.job().view().output()
    explain.option("key", "KEY", "the group's value, or an object of its columns", nargs="?")


def _add_specs(commands: Commands) -> None:
    for name, summary in (
        ("replay", "runs a job on a file of steps, without Kafka and Delta"),
        ("watermarks", "runs only the watermarks of a job, on a file of steps"),
    ):
        command = commands.add(name, summary, module="specs:run_steps").spec().default(runs=name)
        command.option("steps", "STEPS", "JSON lines (standard input)", nargs="?", default="-")
    plan = commands.add("plan", "prints types, operators, state layout and code of a job")
    plan.spec().output().option("--view", "NAME", "only this view")
    commands.add(
        "validate", "checks a job spec; prints the place of every error", module="specs:validate"
    ).spec(nargs="+").output()
    commands.add("schema", "prints the JSON Schema of a job spec", module="specs:schema")
    suggest = commands.add(
        "suggest", "prints a spec for a topic, from its newest messages", module="specs:suggest"
    )
    suggest.brokers().connection().option("topic", "TOPIC", "a topic")
    topics = commands.add("topics", "lists, shows, fills, creates and deletes topics")
    topics.brokers().connection().output()
    actions = ("list", "show", "create", "produce", "delete")
    topics.option("action", None, None, choices=actions, nargs="?", default="list")
    topics.option("names", "TOPIC", "a topic; for delete: several", nargs="*")
    between = "for produce: what is between key and value of a line (lines have no key)"
    topics.option("--key-separator", "TEXT", between)
    topics.option("--partitions", "N", "for create: its number (4)", type=parse_whole, default=4)
    init = commands.add(
        "init", "writes a spec for a topic, after three questions", module="first_hour:init"
    )
    init.brokers().connection().option("--topic", "TOPIC", "the topic to read (asks)")
    init.option("--by", "COLUMN", "the column to group by (asks)")
    init.option(
        "--out", "FILE", "the file to write (job.yaml)", type=Path, default=Path("job.yaml")
    )
    flink = commands.add(
        "from-flink", "writes the job specs of a Flink SQL file", module="from_flink"
    )
    flink.option("file", "FILE", "statements of Flink SQL", type=Path)
    flink.option("--out", "DIR", "where to write the specs (.)", type=Path, default=Path())


def _add_upkeep(commands: Commands) -> None:
    savepoint = commands.add(
        "savepoint", "creates, lists or deletes savepoints of a job", module="states:savepoint"
    )
    which = savepoint.job().output().either()
    which.option("--name", None, "the name of the new savepoint (epoch-N)")
    which.flag("--list", "list the savepoints")
    which.option("--delete", "NAME", "delete the savepoint NAME")
    rewind = commands.add(
        "rewind", "restores a savepoint or an epoch of a stopped job", module="states:rewind"
    )
    rewind.job().brokers().output()
    rewind.option("--to", "N|NAME", "an epoch, or a savepoint's name", required=True)
    offsets = commands.add(
        "offsets", "prints the offsets of a job, or changes those of a stopped job"
    )
    at = "change them only if EPOCH is the newest epoch"
    offsets.job().brokers().output().option("--at", "EPOCH", at, type=parse_whole)
    to = offsets.either()
    to.option("--set", "TOPIC/P=N", "continue partition P at offset N", action="append")
    to.flag("--reset", "continue at source.start")
    quarantine = commands.add(
        "quarantine", "lists the messages that a job refused, or resends some"
    )
    quarantine.job().view().brokers().output()
    again = "send the message ID to its topic again; may be repeated"
    quarantine.option("--replay", "ID", again, action="append")
    message = "send the content of FILE instead (-: standard input)"
    quarantine.option("--message", "FILE", message)
    quarantine.flag("--again", "send it even if it was sent before")


def _add_changes(commands: Commands) -> None:
    """Add the commands that clone or evolve a job, and those that check one."""
    clone = commands.add("clone", "creates a job with the state of another", module="states:clone")
    clone.job().output().tables().option("name", "NAME", "the new job's name")
    clone.option("--to", "N|NAME", "the epoch or savepoint to clone (the newest epoch)")
    clone.option("--spec", "FILE", "the new job's spec (JOB's, without its sink)", type=Path)
    summary = "changes the query of a job; in a directory it must be stopped"
    evolve = commands.add("evolve", summary).spec()
    evolve.place().brokers().master().output()
    beside = (
        "for --data and --replay: only read the topic, while the job runs; the next call takes over"
    )
    evolve.flag("--beside", beside).waiting().default(saved=False)
    how = evolve.either()
    how.flag("--check", "only report whether the state answers the new query")
    how.flag("--replay", "read the topic again if the state does not")
    audit = commands.add("audit", "recomputes a job's results from its topic, and compares")
    audit.job().view().brokers().master().output()
    doctor = commands.add("doctor", "checks this machine").brokers().output()
    doctor.option("--data", "DIR", "check this directory too", type=Path)


if __name__ == "__main__":
    sys.exit(main())
