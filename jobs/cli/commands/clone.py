"""retally clone: creates a job with the state of another."""

from __future__ import annotations

import argparse

from jobs.cli.output import print_json
from jobs.cli.sources import open_source


def run(options: argparse.Namespace) -> None:
    with open_source(options) as source:
        done = source.clone(options.name, options.to, options.spec)
    if options.json:
        print_json(done)
    else:
        print(
            f"{done['job']} begins with the {done['groups']} groups that {done['of']} had at epoch "
            f"{done['cloned']}; start it with retally run or retally start"
        )
