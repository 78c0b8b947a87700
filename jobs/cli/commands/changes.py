"""retally changes: the changelog of a job, from an epoch on, and as it grows."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress

from jobs.cli.output import print_change
from jobs.edge.process.job_directory import existing_job
from jobs.edge.table.reading import ChangeRow, RowShape, TableReader, reading


def run(options: argparse.Namespace) -> None:
    place = existing_job(options.data, options.job)
    with suppress(KeyboardInterrupt):  # how a follower ends
        if options.follow:
            table = TableReader.open(place)
            show = _Printer(table.shape, options.json)
            for change in table.follow(options.since):
                show(change)
                sys.stdout.flush()
            return
        shape, changes = reading(place, lambda table: (table.shape, table.changes(options.since)))
        show = _Printer(shape, options.json)
        for change in changes:
            show(change)


class _Printer:
    """Prints one row of the changelog, for programs or for people."""

    def __init__(self, shape: RowShape, as_json: bool) -> None:
        self.shape = shape
        self.as_json = as_json

    def __call__(self, change: ChangeRow) -> None:
        row = self.shape.row(change.key, change.result)
        document = {"op": change.op, "epoch": change.epoch, "seq": change.seq, "row": row}
        print_change(document, as_json=self.as_json)
