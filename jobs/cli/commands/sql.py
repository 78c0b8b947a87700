"""retally sql: answers a SELECT over the results of all jobs, now or at an epoch."""

from __future__ import annotations

import argparse
import json
import resource
import sys
from typing import Any

import msgspec

from jobs.cli.errors import UsageError
from jobs.cli.output import print_json, print_note, print_table
from schemas import limits


def run(options: argparse.Namespace) -> None:
    if options.data is None:
        _query_service(options)
        return
    from jobs.querying.answers import answer_statement
    from jobs.querying.statement import StatementRefused

    text = sys.stdin.read() if options.statement == "-" else options.statement
    _limit_process()
    try:
        found = answer_statement(options.data, text)
        match "json" if options.json else options.format:
            case "json":
                print_json(*found.documents())
            case "document":
                print_json(found.document())
            case "csv":
                sys.stdout.write(found.write_csv())
            case "arrow":
                sys.stdout.buffer.write(found.write_arrow())
            case _:
                rows = list(found.documents())
                _print_table([column["name"] for column in found.columns], rows)
    except StatementRefused as error:
        raise UsageError(str(error)) from None
    except MemoryError:
        raise UsageError("the statement needs too much memory; ask for less") from None
    sys.stdout.flush()
    print_note(f"epochs: {json.dumps(dict(found.epochs))}")


def _query_service(options: argparse.Namespace) -> None:
    from jobs.cli.service import service_client

    text = sys.stdin.read() if options.statement == "-" else options.statement
    with service_client(options) as client:
        if options.format in ("arrow", "csv") and not options.json:
            sys.stdout.buffer.write(client.sql_stream(text, options.format))
            return
        found = client.sql(text)
    if options.json:
        print_json(*found.rows)
    elif options.format == "document":
        print_json(msgspec.to_builtins(found))
    else:
        _print_table([column.name for column in found.columns], found.rows)
    print_note(f"epochs: {json.dumps(found.epochs)}")


def _print_table(names: list[str], rows: list[dict[str, Any]]) -> None:
    print_table([(name, False) for name in names], ([row[name] for name in names] for row in rows))


def _limit_process() -> None:
    """Bound what a statement can take of the machine, whatever DuckDB does."""
    seconds = int(4 * limits.SQL_SECONDS_MAX)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (4 * limits.SQL_MEMORY_BYTES_MAX,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
