"""retally evolve: changes the query of a stopped job."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import print_json
from jobs.cli.spec_reading import load_job
from jobs.edge.process.job_directory import find_job
from schemas.spec.connections import load_connections
from schemas.spec.job import JobSpec

if TYPE_CHECKING:
    from jobs.core.job.job_evolution import JobEvolution
    from schemas.table.epoch import EpochRow


def run(options: argparse.Namespace) -> int:
    spec, _ = load_job(options.spec)
    paths = find_job(options.data, spec.name)
    from jobs.changing.evolve import CannotEvolve, activate_replay, compare, evolve

    if options.beside and not options.replay:
        raise UsageError("--beside belongs to --replay")
    try:
        if options.check:
            found = compare(paths, spec)
            _print(options, spec, found, None)
            return 0 if found.continues else 1
        if options.replay:
            found = compare(paths, spec)  # raises if reading the topic again would not help
            if found.replayed:
                _read_topic_again(options, spec)
            if options.beside:
                _print(options, spec, compare(paths, spec), None)
                return 0
            done = activate_replay(paths, spec)
        else:
            done = evolve(paths, spec)
    except CannotEvolve as error:
        raise CommandFailed(f"{spec.name} cannot evolve: {error}") from None
    _print(options, spec, done.evolution, done.row)
    return 0


def _read_topic_again(options: argparse.Namespace, spec: JobSpec) -> None:
    """Read the topic with the changed queries up to its end, beside the job.

    With views read it up to the offsets of the job, because all views have the same ones.
    """
    from jobs.changing.backfill import read_up_to
    from jobs.changing.evolve import CannotEvolve, prepare_replay
    from jobs.edge.kafka.source import SourceChanged
    from jobs.running.job import Job  # imports Spark

    replay = prepare_replay(find_job(options.data, spec.name), spec)
    connections = load_connections(options.connections, options.brokers)
    data, master = replay.shadow.data, options.master
    job = Job(replay.spec, data, connections, master=master, until_caught_up=True)
    if replay.goal is not None:
        job.epoch_loop = read_up_to(replay.goal)
    job.stop_on_signals()
    try:
        job.run()
    except SourceChanged as changed:
        raise CannotEvolve(
            f"the topic cannot be read again from the job's start ({changed}); change the query "
            "so that the state can answer it, or give it to a new job"
        ) from None


def _print(
    options: argparse.Namespace, spec: JobSpec, found: JobEvolution, row: EpochRow | None
) -> None:
    if options.json:
        document = {
            "job": spec.name,
            "continues": found.continues,
            "reasons": list(found.reasons),
            "added": list(found.added),
            "dropped": list(found.dropped),
            "epoch": None if row is None else row.epoch,
            "changelog_rows": None if row is None else row.counts.changelog_rows,
        }
        print_json(document)
        return
    if row is not None:
        print(
            f"{spec.name} is at epoch {row.epoch} under the new query "
            f"({row.counts.changelog_rows} changelog rows lead there); start it with "
            "retally run"
        )
    elif options.beside:
        print(
            f"read the topic of {spec.name} again; now stop the job and run this without --beside"
        )
    elif not options.check:
        print(f"{spec.name} has this query already")
    elif found.continues:
        print(f"{spec.name} can continue with its state (retally evolve)")
    else:
        print(f"{spec.name} has to read its topic again (retally evolve --replay):")
        print("\n".join(f"- {reason}" for reason in found.reasons))
    for word, names in (("new", found.added), ("removed", found.dropped)):
        if names:
            print(f"{word}: {', '.join(names)}")
