"""retally evolve: a job goes on under a changed query."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import print_json
from jobs.cli.spec_reading import load_job
from jobs.edge.process.job_directory import existing_job
from schemas.spec.connections import load_connections
from schemas.spec.file import load_spec
from schemas.spec.job import JobSpec

if TYPE_CHECKING:
    from jobs.core.job.evolution import Evolution
    from schemas.table.epoch import EpochRow


def run(options: argparse.Namespace) -> int:
    spec, _ = load_job(options.spec)
    place = existing_job(options.data, spec.name)
    from jobs.changing.evolve import CannotEvolve, compared, evolve, take_over

    if options.beside and not options.replay:
        raise UsageError("--beside belongs to --replay")
    try:
        if options.check:
            found = compared(place, spec)
            _show(options, spec, found, None)
            return 0 if found.continues else 1
        if options.replay:
            compared(place, spec)  # where not even that would do
            _read_again(options, spec)
            if options.beside:
                _show(options, spec, compared(place, spec), None)
                return 0
            done = take_over(place, spec)
        else:
            done = evolve(place, spec)
    except CannotEvolve as error:
        hint = "" if options.replay else "; --replay reads the topic again, from the job's start on"
        raise CommandFailed(f"{spec.name} cannot go on with what it has: {error}{hint}") from None
    _show(options, spec, done.evolution, done.row)
    return 0


def _read_again(options: argparse.Namespace, spec: JobSpec) -> None:
    """The topic under the new query, beside the job, up to its end."""
    from jobs.changing.evolve import begin_again
    from jobs.running.job import Job  # only now: it brings Spark

    place = existing_job(options.data, spec.name)
    shadow = begin_again(place, spec)
    document: dict[str, Any] = spec.document()
    for key in ("sink", "mirror"):
        document.pop(key, None)
    document["source"]["group"] = f"retally-{spec.name}-next"
    connections = load_connections(options.connections, options.brokers)
    job = Job(
        load_spec(document), shadow.data, connections, master=options.master, until_caught_up=True
    )
    job.stop_on_signals()
    job.run()


def _show(
    options: argparse.Namespace, spec: JobSpec, found: Evolution, row: EpochRow | None
) -> None:
    if options.json:
        document = {
            "job": spec.name,
            "continues": found.continues,
            "reasons": list(found.reasons),
            "added": list(found.added),
            "dropped": list(found.dropped),
            "epoch": None if row is None else row.epoch,
            "changelog_rows": None if row is None else row.counters["changelog_rows"],
        }
        print_json(document)
        return
    if row is not None:
        print(
            f"{spec.name} is at epoch {row.epoch} under the new query "
            f"({row.counters['changelog_rows']} changelog rows lead there); start it with "
            "retally run"
        )
    elif options.beside:
        print(
            f"the topic of {spec.name} is read again; stop the job, and call this without --beside"
        )
    elif not options.check:
        print(f"{spec.name} has this query already")
    elif found.continues:
        print(f"{spec.name} can go on with the state that it has; see retally evolve")
    else:
        print(f"{spec.name} has to read its topic again (retally evolve --replay):")
        print("\n".join(f"- {reason}" for reason in found.reasons))
    for word, names in (("new", found.added), ("gone", found.dropped)):
        if names:
            print(f"{word}: {', '.join(names)}")
