"""Argparse with a suggestion for a misspelled command, choice or option.

`Commands` and `Command` add the options that many commands have.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from jobs.cli.errors import UsageError
from schemas.limits import ADDRESS_CHARACTERS_MAX, JOBS_PER_DRIVER_MAX
from schemas.spec.duration import parse_duration
from schemas.table.object_path import TABLES_VARIABLE, ObjectPath
from schemas.types import moments

MASTER_DEFAULT = "local[2]"

# Words of kubectl, Docker, git, Kafka's tools and Flink, and what does the same here. A suggestion
# by likeness alone once led from `delete` to `evolve`.
NEIGHBOURS = {
    **dict.fromkeys(("list", "ls", "get", "ps"), "jobs"),
    **dict.fromkeys(("status", "stat", "stats", "describe", "inspect"), "jobs show JOB"),
    **dict.fromkeys(("create", "apply", "put", "add", "deploy", "submit"), "jobs put SPEC"),
    **dict.fromkeys(("delete", "rm", "remove", "drop"), "jobs delete JOB"),
    **dict.fromkeys(("select", "query"), "sql SELECT"),
    **dict.fromkeys(("down", "kill", "cancel"), "stop JOB"),
    **dict.fromkeys(("restore", "rollback", "reset", "undo"), "rewind JOB --to N"),
    **dict.fromkeys(("consume", "tail", "watch"), "changes JOB --follow"),
    "check": "validate SPEC",
    "produce": "topics produce TOPIC",
    "topic": "topics",
}
NEIGHBOUR_ACTIONS = {
    **dict.fromkeys(("ls", "ps"), "list"),
    **dict.fromkeys(("get", "status", "describe", "inspect"), "show"),
    **dict.fromkeys(("apply", "add", "new"), "put"),
    **dict.fromkeys(("rm", "remove", "drop"), "delete"),
}


class Parser(argparse.ArgumentParser):
    """A parser of `retally` or of one of its commands."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a word that is no command and no choice, and name the nearest."""
        known = None if action.choices is None else list(action.choices)
        if known is not None and value not in known:
            is_command = isinstance(action, argparse._SubParsersAction)
            what, others = ("command", NEIGHBOURS) if is_command else ("choice", NEIGHBOUR_ACTIONS)
            if not is_command:
                others = {word: ours for word, ours in others.items() if ours in known}
            raise argparse.ArgumentError(
                None, f"there is no {what} {value!r}; {_suggest(str(value), known, others)}"
            )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and name the nearest option of the command for an unknown one."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            command = self._find_command(options)
            known = [name for name in command._option_string_actions if name.startswith("--")]
            word = unknown[0].partition("=")[0]
            if not word.startswith("-"):
                command.error(f"one argument too many: {word!r}")
            command.error(f"there is no option {word}; {_suggest(word, known)}")
        return options

    def _find_command(self, options: argparse.Namespace) -> argparse.ArgumentParser:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return action.choices.get(options.command) or self
        return self

    def error(self, message: str) -> NoReturn:
        """Print one sentence instead of the usage, which has a line for each option."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _suggest(
    word: str, known: Iterable[str], others: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the nearest known word, or what `others` has for a word of another tool."""
    names = list(known)
    near = get_close_matches(word.lower(), [*names, *others], n=1, cutoff=0.65)
    ours = [others.get(each, each) for each in near]
    return f"did you mean {ours[0]}?" if ours else f"known: {', '.join(names)}"


class Commands:
    """The subparsers, with the options that every subcommand has."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._group = parser.add_subparsers(
            title="commands", dest="command", required=True, metavar="COMMAND"
        )

    def add(self, name: str, summary: str, *, module: str | None = None) -> Command:
        parser = self._group.add_parser(name, help=summary, description=f"{summary}.")
        parser.set_defaults(module=module or name)
        parser.add_argument("-v", "--verbose", action="store_true", help="logs, and tracebacks")
        return Command(parser)


class Command:
    """One subparser, or options of which one can be given; calls that add options are chained."""

    def __init__(self, parser: argparse._ActionsContainer) -> None:
        self._parser = parser

    def option(self, name: str, metavar: str | None, help: str | None, **more: Any) -> Command:
        """Add an option; `-s --long` has a short name too."""
        self._parser.add_argument(*name.split(), metavar=metavar, help=help, **more)
        return self

    def flag(self, name: str, help: str) -> Command:
        self._parser.add_argument(*name.split(), action="store_true", help=help)
        return self

    def either(self) -> Command:
        """Return options of which one can be given."""
        return Command(self._parser.add_mutually_exclusive_group())

    def default(self, **values: Any) -> Command:
        self._parser.set_defaults(**values)
        return self

    def data(self) -> Command:
        text = "the directory of the jobs and their tables"
        return self.option("--data", "DIR", text, type=Path, required=True)

    def job(self) -> Command:
        """Add the job's name, and where it is."""
        self.option("job", "JOB", "a job's name").default(view="", takes_view=False)
        return self.place()

    def place(self) -> Command:
        """Add where a job is: tables in a directory, or a service."""
        where = "read the tables in DIR instead of calling a service"
        self.either().option("--data", "DIR", where, type=Path).service()
        return self

    def view(self) -> Command:
        """Add the view of a job with several, which JOB.VIEW names too."""
        self.default(takes_view=True)
        return self.option("--view", "NAME", "one view of a job with several", default="")

    def service(self) -> Command:
        text = "the service, or several: URL,URL (RETALLY_SERVICE, then http://127.0.0.1:8080)"
        return self.option("--service", "URL", text)

    def waiting(self) -> Command:
        text = "wait up to SECONDS until a running job runs again (-o table: no limit, others: 0)"
        return self.option("--wait", "SECONDS", text, type=parse_whole)

    def spec(self, **more: Any) -> Command:
        return self.option("spec", "SPEC", "a job spec, YAML or JSON", type=Path, **more)

    def brokers(self) -> Command:
        text = "the connection named default (RETALLY_BROKERS, then 127.0.0.1:9092)"
        self.option("--brokers", "HOST:PORT", text)
        return self.option(
            "--connections", "FILE", "more connections, with SASL and TLS", type=Path
        )

    def connection(self) -> Command:
        return self.option(
            "--connection", "NAME", "the connection to use (default)", default="default"
        )

    def master(self) -> Command:
        return self.option("--master", "M", "Spark's master (local[2])", default=MASTER_DEFAULT)

    def tables(self) -> Command:
        default = os.environ.get(TABLES_VARIABLE) or None
        text = f"s3://BUCKET/PREFIX for new tables ({TABLES_VARIABLE}, then --data)"
        return self.option("--tables", "URL", text, type=parse_tables, default=default)

    def time_defaults(self) -> Command:
        text = "watermark.idle_after for specs that have none, as in 30s (never idle)"
        self.option("--idle-after", "DURATION", text, type=parse_duration_option)
        text = "watermark.emit_every for specs that have none (200ms)"
        return self.option("--emit-every", "DURATION", text, type=parse_duration_option)

    def jobs_per_driver(self) -> Command:
        text = "up to N jobs of DIR share a Spark JVM; a local master only (1)"
        return self.option("--jobs-per-driver", "N", text, type=parse_jobs_per_driver, default=1)

    def output(self, *more: str, also: str = "") -> Command:
        """Add the form of what is printed; `also` is a second name of the option."""
        text, forms = "the form of what is printed (table)", ("json", "csv", "table", *more)
        self.option(f"-o --output {also}", None, text, choices=forms, default="table")
        json = "the same as -o json: a document a line, with the keys of the REST API"
        return self.option("--json", None, json, dest="output", action="store_const", const="json")


# --- values of options -------------------------------------------------------------------------


def parse_tables(text: str) -> ObjectPath:
    try:
        return ObjectPath.of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_duration_option(text: str) -> int:
    try:
        milliseconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if milliseconds == 0:
        raise argparse.ArgumentTypeError("must be greater than 0")
    return milliseconds


def parse_jobs_per_driver(text: str) -> int:
    number = parse_whole(text)
    if not 1 <= number <= JOBS_PER_DRIVER_MAX:
        raise argparse.ArgumentTypeError(f"must be 1 to {JOBS_PER_DRIVER_MAX}")
    return number


def require_local_master(options: argparse.Namespace) -> None:
    """Raise UsageError if jobs should share a driver on a cluster, which they cannot."""
    from jobs.edge.spark.shared_driver import count_cores

    if options.jobs_per_driver > 1 and count_cores(options.master) is None:
        raise UsageError("--jobs-per-driver needs a local master, such as --master local[2]")


def parse_instant(text: str) -> int:
    """Return milliseconds since 1970."""
    try:
        milliseconds = moments.parse_instant(text) // 1_000
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time; write it like 2026-01-31T12:00:00Z"
        ) from None
    if milliseconds < 0:
        raise argparse.ArgumentTypeError(f"{text} is before 1970")
    return milliseconds


def parse_port(text: str) -> int:
    number = parse_whole(text)
    if number > 65_535:
        raise argparse.ArgumentTypeError(f"{text} is not a port, 0 to 65535")
    return number


def parse_address(text: str) -> str:
    known = re.fullmatch(r"https?://[\w.\[\]:-]+(/[\w./~-]*)?", text, re.ASCII)
    if known is None or len(text) > ADDRESS_CHARACTERS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address like https://host:8080")
    return text.rstrip("/")


def parse_whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 0 or more")
    return int(text)
