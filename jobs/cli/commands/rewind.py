"""retally rewind: restores a savepoint or an epoch of a stopped job."""

from __future__ import annotations

import argparse

from jobs.cli.output import print_json
from jobs.cli.sources import open_source


def run(options: argparse.Namespace) -> None:
    with open_source(options) as source:
        done = source.rewind(options.to)
    job, to, epoch, kept = done["job"], done["to"], done["epoch"], done["kept"]
    if options.json:
        print_json(done)
    elif epoch == to:
        print(f"{job} is at epoch {epoch} already")
    else:
        print(
            f"{job} is at epoch {epoch}, with the results of epoch {to} "
            f"({done['changelog_rows']} changelog rows lead there)"
        )
        if kept is not None:
            print(f"epoch {epoch - 1} is kept as savepoint {kept}")
