"""retally sql: answers a SELECT over the results of all jobs, now or at an epoch."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.cli.errors import UsageError
from jobs.cli.output import print_answer, print_note

if TYPE_CHECKING:
    from jobs.querying.answers import AnswerForm

_FORMS: dict[str, AnswerForm] = {
    "json": "lines",
    "document": "json",
    "csv": "csv",
    "arrow": "arrow",
}


def run(options: argparse.Namespace) -> None:
    text = sys.stdin.read() if options.statement == "-" else options.statement
    if options.data is None:
        epochs = _query_service(options, text)
    else:
        epochs = _query_tables(options.data, text, options.output)
    sys.stdout.flush()
    print_note(f"epochs: {json.dumps(epochs)}")


def _query_tables(data: Path, text: str, form: str) -> Mapping[str, int]:
    from jobs.querying.answers import answer_statement
    from jobs.querying.engine import limit_process
    from jobs.querying.statement import StatementRefused

    try:
        with limit_process():
            found = answer_statement(data, text, _end_process)
            if form == "table":
                rows = [json.loads(line) for line in found.write("lines")]
                print_answer(form, rows, {each["name"]: each["name"] for each in found.columns})
            else:
                sys.stdout.buffer.writelines(found.write(_FORMS[form]))
    except StatementRefused as error:
        raise UsageError(str(error)) from None
    except MemoryError:
        raise UsageError("the statement needs too much memory; ask for less") from None
    return dict(found.epochs)


def _query_service(options: argparse.Namespace, text: str) -> Mapping[str, int]:
    from jobs.cli.service import service_client

    form = options.output
    with service_client(options) as client:
        found = client.sql(text)
        if form in ("arrow", "csv"):
            sys.stdout.buffer.write(found.read(form))
            return found.epochs
        rows = found.rows()
    if form == "document":
        columns = [{"name": name, "type": kind} for name, kind in found.columns.items()]
        print_answer("json", [{"epochs": found.epochs, "columns": columns, "rows": rows}])
    else:
        print_answer(form, rows, {name: name for name in found.columns})
    return found.epochs


def _end_process() -> None:
    """End this process from a thread: the statement's own thread does not come back in time."""
    from jobs.querying.engine import describe_lateness

    print_note(f"retally: {describe_lateness()}")
    sys.stderr.flush()
    os._exit(2)
