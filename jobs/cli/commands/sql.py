"""retally sql: answers a SELECT over the results of all jobs, now or at an epoch."""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.cli.errors import UsageError
from jobs.cli.output import print_json, print_note, print_table
from schemas import limits
from schemas.process.kernel import read_process_memory
from schemas.types.json_types import JsonObject

if TYPE_CHECKING:
    from jobs.querying.answers import Answer


_UNWRITABLE = (
    "the answer has a value that cannot be written: a time outside the years 1 to 9999, or one "
    "that is nested too deeply; CAST it to VARCHAR"
)


def run(options: argparse.Namespace) -> None:
    if options.data is None:
        _query_service(options)
        return
    from jobs.querying.answers import answer_statement
    from jobs.querying.statement import StatementRefused

    text = sys.stdin.read() if options.statement == "-" else options.statement
    try:
        with _limited_process():
            found = answer_statement(options.data, text, _end_process)
            try:
                _write(found, "json" if options.json else options.format)
            except StatementRefused:
                raise
            except (ValueError, OverflowError, RecursionError):
                raise StatementRefused(_UNWRITABLE) from None
    except StatementRefused as error:
        raise UsageError(str(error)) from None
    except MemoryError:
        raise UsageError("the statement needs too much memory; ask for less") from None
    sys.stdout.flush()
    print_note(f"epochs: {json.dumps(dict(found.epochs))}")


def _write(found: Answer, form: str) -> None:
    match form:
        case "json":
            sys.stdout.writelines(found.write_lines())
        case "document":
            sys.stdout.writelines(found.write_document())
        case "csv":
            sys.stdout.writelines(found.write_csv())
        case "arrow":
            sys.stdout.buffer.write(found.write_arrow())
        case _:
            rows = list(found.documents())
            _print_table([column["name"] for column in found.columns], rows)


def _query_service(options: argparse.Namespace) -> None:
    from jobs.cli.service import service_client

    text = sys.stdin.read() if options.statement == "-" else options.statement
    with service_client(options) as client:
        found = client.sql(text)
        if options.format in ("arrow", "csv") and not options.json:
            sys.stdout.buffer.write(found.read(options.format))
            return
        rows = found.rows()
    if options.json:
        print_json(*rows)
    elif options.format == "document":
        columns = [{"name": name, "type": kind} for name, kind in found.columns.items()]
        print_json({"epochs": found.epochs, "columns": columns, "rows": rows})
    else:
        _print_table([*found.columns], rows)
    print_note(f"epochs: {json.dumps(found.epochs)}")


def _print_table(names: list[str], rows: list[JsonObject]) -> None:
    print_table([(name, False) for name in names], ([row[name] for name in names] for row in rows))


def _end_process() -> None:
    """End this process from a thread: the statement's own thread does not come back in time."""
    from jobs.querying.engine import describe_lateness

    print_note(f"retally: {describe_lateness()}")
    sys.stderr.flush()
    os._exit(2)


@contextmanager
def _limited_process() -> Iterator[None]:
    """Bound what a statement can take of the machine, whatever DuckDB does.

    The limits are soft ones, and end with the statement: a program that calls main() goes on.
    """
    spent = resource.getrusage(resource.RUSAGE_SELF)
    # Later than the end that has a sentence, also if several cores work on the statement.
    own = 4 * (limits.SQL_SECONDS_MAX + limits.SQL_GRACE_SECONDS)
    seconds = int(spent.ru_utime + spent.ru_stime + own)
    memory = read_process_memory()
    wanted = {
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_DATA: (memory.data if memory else 0) + limits.SQL_PROCESS_BYTES_MAX,
        resource.RLIMIT_CORE: 0,
    }
    before = {which: resource.getrlimit(which) for which in wanted}
    for which, soft in wanted.items():
        hard = before[which][1]
        bounded = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
        resource.setrlimit(which, (bounded, hard))
    try:
        yield
    finally:
        for which, limit in before.items():
            resource.setrlimit(which, limit)
