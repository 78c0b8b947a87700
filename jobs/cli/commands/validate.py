"""retally validate: checks a spec, and prints every problem with its position."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from jobs.cli.output import print_json
from jobs.cli.spec_reading import load_job
from schemas.spec.file import SpecError


def run(options: argparse.Namespace) -> int:
    try:
        load_job(options.spec)
    except SpecError as error:
        if not options.json:
            raise
        problems = [asdict(problem) for problem in error.problems]
        print_json({"ok": False, "file": error.source, "problems": problems})
        return 2
    if options.json:
        print_json({"ok": True, "file": str(options.spec), "problems": []})
    else:
        print("ok")
    return 0
