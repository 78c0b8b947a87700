"""retally replay: a job on a file of steps."""

from __future__ import annotations

import argparse


def run(options: argparse.Namespace) -> int:
    from jobs import replay

    return replay.main(str(options.spec), options.steps)
