"""retally validate, schema, suggest, replay and watermarks: specs, without a table."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from importlib import import_module
from json import dumps
from pathlib import Path

from jobs.cli.errors import CommandFailed
from jobs.cli.output import describe_problems, print_answer, print_note
from jobs.cli.spec_reading import load_document, load_job
from jobs.core.job.window_rules import window_notes
from schemas.spec.file import SpecError, spec_schema
from schemas.types.json_types import JsonObject


def validate(options: argparse.Namespace) -> int:
    """Check specs, and print every problem with its position."""
    found = [_check(path, options.output == "table") for path in options.spec]
    alone = len(found) == 1

    def show(checked: JsonObject) -> None:
        if checked["ok"]:
            print("ok" if alone else f"{checked['file']}: ok")

    print_answer(options.output, found, text=show)
    return 0 if all(each["ok"] for each in found) else 2


def _check(path: Path, noted: bool) -> JsonObject:
    """Return what is wrong with a spec; for people print it with its lines."""
    try:
        spec, _, document = load_document(path)
    except SpecError as error:
        if noted:
            print_note(describe_problems(error))
        problems = [asdict(problem) for problem in error.problems]
        return {"ok": False, "file": error.source, "problems": problems, "notes": []}
    notes = [document.problem(keys, reason) for keys, reason in window_notes(spec).items()]
    for note in notes if noted else ():
        print_note(note.describe(document.name))
    found = [asdict(note) for note in notes]
    return {"ok": True, "file": document.name, "problems": [], "notes": found}


def schema(_: argparse.Namespace) -> None:
    """Print the JSON Schema of a job spec, as GET /v1/schema gives it."""
    print(dumps(spec_schema(), indent=2))


def suggest(options: argparse.Namespace) -> None:
    """Print a spec for a topic, from its newest messages.

    The service gives the same suggestion in the console and as /v1/topics/TOPIC/suggestion.
    """
    from jobs.core.suggestion.spec_text import suggest_spec
    from jobs.topics.samples import read_newest
    from jobs.topics.schema_registry import finders_of
    from schemas.spec.connections import load_connections

    connections = load_connections(options.connections, options.brokers)
    newest = read_newest(connections.lookup(options.connection), [options.topic])
    messages = [(each.key, each.value) for each in newest]
    finders = finders_of(connections)
    found = suggest_spec(options.topic, options.connection, messages, None, finders)
    if found.text is None:
        raise CommandFailed(f"no suggestion: {found.reason}")
    sys.stdout.write(found.text)


def run_steps(options: argparse.Namespace) -> int:
    """Run a job, or its watermarks, on a file of steps."""
    load_job(options.spec)  # raises with the position of every problem
    exit_code: int = import_module(f"jobs.offline.{options.runs}").main(
        str(options.spec), options.steps
    )
    return exit_code
