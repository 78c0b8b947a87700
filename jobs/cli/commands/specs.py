"""retally validate, schema, suggest, replay and watermarks: specs, without a table."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from importlib import import_module
from json import dumps

from jobs.cli.errors import CommandFailed
from jobs.cli.output import print_json, print_note
from jobs.cli.spec_reading import load_job
from jobs.core.job.window_rules import window_notes
from schemas.spec.file import SpecError, read_file, spec_schema


def validate(options: argparse.Namespace) -> int:
    """Check a spec, and print every problem with its position."""
    try:
        spec, _ = load_job(options.spec)
    except SpecError as error:
        if not options.json:
            raise
        problems = [asdict(problem) for problem in error.problems]
        print_json({"ok": False, "file": error.source, "problems": problems})
        return 2
    document = read_file(options.spec)
    notes = [document.problem(keys, reason) for keys, reason in window_notes(spec).items()]
    if options.json:
        noted = [asdict(note) for note in notes]
        print_json({"ok": True, "file": document.name, "problems": [], "notes": noted})
        return 0
    for note in notes:
        print_note(note.describe(document.name))
    print("ok")
    return 0


def schema(_: argparse.Namespace) -> None:
    """Print the JSON Schema of a job spec, as GET /v1/schema gives it."""
    print(dumps(spec_schema(), indent=2))


def suggest(options: argparse.Namespace) -> None:
    """Print a spec for a topic, from its newest messages.

    The service gives the same suggestion in the console and as /v1/topics/TOPIC/suggestion.
    """
    from jobs.core.suggestion.spec_text import suggest_spec
    from jobs.topics.samples import read_newest
    from schemas.spec.connections import load_connections

    connections = load_connections(options.connections, options.brokers)
    newest = read_newest(connections.lookup(options.connection), [options.topic])
    messages = [(each.key, each.value) for each in newest]
    found = suggest_spec(options.topic, options.connection, messages)
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
