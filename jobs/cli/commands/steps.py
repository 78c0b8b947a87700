"""retally replay and retally watermarks: run a job, or its watermarks, on a file of steps."""

from __future__ import annotations

import argparse
from importlib import import_module

from jobs.cli.spec_reading import load_job


def run(options: argparse.Namespace) -> int:
    load_job(options.spec)  # raises with the position of every problem
    exit_code: int = import_module(f"jobs.offline.{options.runs}").main(
        str(options.spec), options.steps
    )
    return exit_code
