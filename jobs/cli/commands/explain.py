"""retally explain: explains the values of a group."""

from __future__ import annotations

import argparse

from jobs.cli.explanation import print_explanation
from jobs.cli.output import print_json
from jobs.cli.sources import open_source


def run(options: argparse.Namespace) -> None:
    with open_source(options) as source:
        document = source.explain(options.key)
    if options.json:
        print_json(document)
    else:
        name = f"{options.job}.{options.view}" if options.view else options.job
        print_explanation({**document, "job": name})
