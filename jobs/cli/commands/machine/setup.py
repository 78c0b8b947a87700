"""retally setup: fetches jars, and Java if there is none, into the user's cache."""

from __future__ import annotations

import argparse
import time

from jobs.cli.errors import CommandFailed
from jobs.edge.machine.jars import directory
from jobs.setup.steps import Environment, SetupFailed, is_set_up, report, set_up


def run(options: argparse.Namespace) -> None:
    environment = Environment.of_this_process(runtime=options.runtime)
    if is_set_up(environment):
        report(f"everything is in place in {directory().parent}")
        return
    began = time.monotonic()
    try:
        set_up(environment)
    except SetupFailed as problem:
        raise CommandFailed(str(problem)) from None
    report(f"done in {time.monotonic() - began:.0f} s, in {directory().parent}")
