"""retally explain: why a group's values are what they are."""

from __future__ import annotations

import argparse

from jobs.checking.explain import explained
from jobs.cli.explanation import print_explanation
from jobs.cli.group_key import group_key
from jobs.cli.output import print_json
from jobs.edge.process.job_directory import existing_job
from jobs.edge.table.reading import reading


def run(options: argparse.Namespace) -> None:
    document = reading(
        existing_job(options.data, options.job),
        lambda table: explained(table, group_key(options.key, table.plan)),
    )
    if options.json:
        print_json(document)
    else:
        print_explanation(document)
