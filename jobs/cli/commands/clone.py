"""retally clone: a new job with the state of another."""

from __future__ import annotations

import argparse

from jobs.cli.errors import CommandFailed
from jobs.cli.output import print_json
from jobs.cli.spec_reading import load_job
from jobs.core.job.cloning import cloned_spec
from jobs.edge.process.job_directory import JobDirectory, existing_job
from schemas.spec.file import load_spec


def run(options: argparse.Namespace) -> None:
    place = existing_job(options.data, options.job)
    if options.spec is None:
        spec = cloned_spec(load_spec(place.spec), options.name)
    else:
        spec, _ = load_job(options.spec)
    if spec.name != options.name:
        raise CommandFailed(f"the spec names {spec.name!r}, not {options.name!r}")
    from jobs.changing.clone import CannotClone, clone
    from jobs.changing.rewind import CannotRewind

    new = JobDirectory(place.data, spec.name)
    try:
        row = clone(place, new, spec, options.to, options.tables)
    except (CannotClone, CannotRewind) as error:
        raise CommandFailed(str(error)) from None
    if options.json:
        print_json(
            {
                "job": new.name,
                "of": place.name,
                "cloned": row.counters["cloned"],
                "epoch": row.epoch,
                "groups": row.counters["groups"],
            }
        )
    else:
        print(
            f"{new.name} begins with {row.counters['groups']} groups, as {place.name} had them at "
            f"epoch {row.counters['cloned']}; start it with retally run"
        )
