"""retally watermarks: runs the watermarks of a job on a file of steps."""

from __future__ import annotations

import argparse

from jobs.cli.spec_reading import load_job


def run(options: argparse.Namespace) -> int:
    load_job(options.spec)  # raises with the position of every problem
    from jobs.offline import watermarks

    return watermarks.main(str(options.spec), options.steps)
