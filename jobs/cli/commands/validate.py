"""retally validate: checks a spec, and prints every problem with its position."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from jobs.cli.output import print_json, print_note
from jobs.cli.spec_reading import load_job
from jobs.core.job.window_rules import window_notes
from schemas.spec.file import SpecError, read_file


def run(options: argparse.Namespace) -> int:
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
