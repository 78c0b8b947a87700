"""retally sql: answers a SELECT over the results of all jobs, now or at an epoch."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from jobs.cli.errors import UsageError
from jobs.cli.output import print_json, print_note, print_table
from schemas.types.json_types import JsonObject

if TYPE_CHECKING:
    from jobs.querying.answers import Answer, AnswerForm

_FORMS: dict[str, AnswerForm] = {
    "lines": "lines",
    "document": "json",
    "csv": "csv",
    "arrow": "arrow",
}


def run(options: argparse.Namespace) -> None:
    if options.data is None:
        _query_service(options)
        return
    from jobs.querying.answers import answer_statement
    from jobs.querying.engine import limit_process
    from jobs.querying.statement import StatementRefused

    text = sys.stdin.read() if options.statement == "-" else options.statement
    try:
        with limit_process():
            found = answer_statement(options.data, text, _end_process)
            _write(found, "lines" if options.json else options.format)
    except StatementRefused as error:
        raise UsageError(str(error)) from None
    except MemoryError:
        raise UsageError("the statement needs too much memory; ask for less") from None
    sys.stdout.flush()
    print_note(f"epochs: {json.dumps(dict(found.epochs))}")


def _write(found: Answer, form: str) -> None:
    if form == "table":
        rows = [json.loads(line) for line in found.write("lines")]
        _print_table([column["name"] for column in found.columns], rows)
    else:
        pieces = found.write(_FORMS[form])
        sys.stdout.flush()
        sys.stdout.buffer.writelines(pieces)
        sys.stdout.buffer.flush()


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
