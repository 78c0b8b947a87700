"""retally evolve: changes the query of a job, in a directory or through a service."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import print_answer
from jobs.cli.parser import MASTER_DEFAULT
from jobs.cli.spec_reading import load_job
from jobs.edge.process.job_directory import find_job
from schemas.spec.connections import load_connections
from schemas.spec.job import JobSpec
from schemas.types.json_types import JsonObject

if TYPE_CHECKING:
    from jobs.cli.service import State


def run(options: argparse.Namespace) -> int:
    spec, _ = load_job(options.spec)
    if options.beside and not (options.replay and options.data):
        raise UsageError("--beside belongs to --data and --replay; a service reads beside the job")
    if options.data is None:
        if options.brokers or options.connections or options.master != MASTER_DEFAULT:
            raise UsageError("a service has its own --brokers, --connections and --master")
        return _evolve_by_service(options, spec.name)
    if options.wait is not None:
        raise UsageError("--wait belongs to --service")
    paths = find_job(options.data, spec.name)
    from jobs.changing.evolve import CannotEvolve, activate_replay, compare, evolve

    try:
        if options.check:
            found = compare(paths, spec)
            _print(options, spec.name, found, {})
            return 0 if found.continues else 1
        if options.replay:
            found = compare(paths, spec)  # raises if reading the topic again would not help
            if found.replayed:
                _read_topic_again(options, spec)
            if options.beside:
                _print(options, spec.name, compare(paths, spec), {})
                return 0
            done = activate_replay(paths, spec)
        else:
            done = evolve(paths, spec)
    except CannotEvolve as error:
        raise CommandFailed(f"{spec.name} cannot evolve: {error}") from None
    row = done.row
    end = {} if row is None else {"epoch": row.epoch, "changelog_rows": row.counts.changelog_rows}
    _print(options, spec.name, done.evolution, end)
    return 0


def _evolve_by_service(options: argparse.Namespace, name: str) -> int:
    """Put the changed spec and approve it; the service holds a running job for one epoch."""
    from jobs.cli.commands.service import approve_pending
    from jobs.cli.service import name_places, service_client

    with service_client(options) as client, name_places(options.spec):
        revision = {job.name: job.revision for job in client.jobs()}.get(name)
        found = client.validate(options.spec).evolution
        if found is None:
            raise CommandFailed(f"{name} has no state; retally jobs put {options.spec} changes it")
        done: JsonObject = {}
        if not options.check:
            if not (found.continues or (options.replay and found.replays)):
                others = "; retally evolve --replay reads the topic again" if found.replays else ""
                raise CommandFailed(f"{name} cannot evolve: {'; '.join(found.reasons)}{others}")
            job = client.put(options.spec, name, replace=True, revision=revision)
            if job.pending is not None:
                state: State = "keep" if found.continues else "replay"
                done, _ = approve_pending(client, options, name, state)
            options.saved = job.revision != revision
    _print(options, name, found, done)
    return 0 if found.continues or not options.check else 1


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


def _print(options: argparse.Namespace, job: str, found: Any, done: JsonObject) -> None:
    """Print a JobEvolution, or what a service says of one, and the epoch that it led to."""
    document = {
        "job": job,
        "continues": found.continues,
        "reasons": list(found.reasons),
        "added": list(found.added),
        "dropped": list(found.dropped),
        "epoch": done.get("epoch"),
        "changelog_rows": done.get("changelog_rows"),
    }
    print_answer(options.output, [document], text=partial(_print_text, options))


def _print_text(options: argparse.Namespace, done: JsonObject) -> None:
    job = done["job"]
    if done["epoch"] is not None:
        print(
            f"{job} is at epoch {done['epoch']} under the new query "
            f"({done['changelog_rows'] or 0} changelog rows lead there)"
            + ("; start it with retally run" if options.data else "")
        )
    elif options.beside:
        print(f"read the topic of {job} again; now stop the job and run this without --beside")
    elif not options.check:
        same = "the spec was saved; the query is the same"
        print(f"{job}: {same}" if options.saved else f"{job} has this query already")
    elif done["continues"]:
        print(f"{job} can continue with its state (retally evolve)")
    else:
        print(f"{job} has to read its topic again (retally evolve --replay):")
        print("\n".join(f"- {reason}" for reason in done["reasons"]))
    for word, names in (("new", done["added"]), ("removed", done["dropped"])):
        if names:
            print(f"{word}: {', '.join(names)}")
