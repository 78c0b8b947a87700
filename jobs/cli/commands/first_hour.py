"""retally init and up: from a topic to a spec, and from a spec to its first results."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from jobs.cli.commands.jobs import await_epoch, describe_pending
from jobs.cli.commands.reading import changes
from jobs.cli.commands.topics import create_topic
from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.offer import confirm, is_terminal, read_answer
from jobs.cli.output import print_answer, print_note
from jobs.cli.service import name_places, service_client
from jobs.core.job.job_plan import plan_of
from jobs.core.suggestion.spec_text import Suggestion, suggest_spec
from jobs.offline.replay import ReplayError, replay
from jobs.topics.consumer import list_topics
from jobs.topics.samples import Sample, read_newest
from jobs.topics.schema_registry import finders_of
from schemas.spec.connections import BROKERS_DEFAULT, BROKERS_VARIABLE, load_connections
from schemas.spec.file import load_spec
from schemas.types.json_types import JsonObject

_NAMED = 20  # topics in the question
_PARTITIONS = 4  # of a topic that init creates, as of topics create


def up(options: argparse.Namespace) -> None:
    """Put a spec, start its job, and print the changes until Ctrl-C, which leaves it running."""
    with service_client(options) as client:
        with name_places(options.spec):
            job = client.put(options.spec)
        if job.pending is not None:
            raise CommandFailed(describe_pending(job))
        options.job, options.since = job.name, job.epoch
        options.view = next(iter((job.spec or {}).get("views") or {}), "")
        if job.desired != "RUNNING":
            client.start(job.name)
        with suppress(KeyboardInterrupt):
            await_epoch(client, job.name)
            changes(options)
    print_note(f"{job.name} continues to run; retally stop {job.name} stops it")


def init(options: argparse.Namespace) -> None:
    """Write a spec for a topic; what no option answers is asked on a terminal."""
    if options.out.exists():
        raise UsageError(f"{options.out} is there already; name another file with --out")
    if options.brokers is None and options.connections is None:
        known = os.environ.get(BROKERS_VARIABLE) or BROKERS_DEFAULT
        options.brokers = read_answer("Which broker?", known) if is_terminal() else known
    connections = load_connections(options.connections, options.brokers)
    connection = connections.lookup(options.connection)
    topics = list(list_topics(connection).topics)
    if options.topic is None:
        if not is_terminal():
            raise UsageError("name the topic: retally init --topic TOPIC")
        print_note(f"topics: {', '.join(topics[:_NAMED]) or 'none yet'}")
        options.topic = read_answer("Which topic?", topics[0] if len(topics) == 1 else "")
    topic = options.topic
    if topic not in topics and is_terminal() and confirm(f"Create topic {topic}?"):
        create_topic(connection, topic, _PARTITIONS)
        raise CommandFailed(
            f"{topic} is empty; write rows to it (retally topics produce {topic} < rows.jsonl), "
            f"and call retally init --topic {topic}"
        )
    newest = read_newest(connection, [topic])
    messages = [(each.key, each.value) for each in newest]

    def suggest(by: str | None) -> Suggestion:
        found = suggest_spec(topic, connection.name, messages, by, finders_of(connections))
        if found.text is None:
            raise CommandFailed(f"no suggestion: {found.reason}")
        return found

    found = suggest(options.by)
    if options.by is None and is_terminal():
        print_note(f"columns: {', '.join(found.columns)}")
        found = suggest(read_answer("Count the rows of each?", found.group) or None)
    assert found.text is not None
    sys.stdout.write(found.text)
    _try(found.text, newest)
    if is_terminal() and not confirm(f"Write {options.out}?"):
        return
    options.out.write_text(found.text)
    print_note(
        f"wrote {options.out}; next: retally up {options.out}, with retally serve, or\n"
        f"retally run {options.out} --data data --brokers {','.join(connection.bootstrap)}"
    )


def _try(text: str, newest: Sequence[Sample]) -> None:
    """Run a spec on the newest messages of its topic, and print the results."""
    spec, refused, rows = load_spec(text), 0, dict[str, JsonObject]()
    if spec.source.schema_registry is not None:  # a replay asks no registry
        return
    plan = plan_of(spec)
    steps = [{"message": m.value, "key": m.key} for m in reversed(newest) if m.value is not None]
    with suppress(ReplayError):  # these messages may need what is before them
        for output in replay(spec, steps):
            refused += "rejected" in output
            if "op" in output:
                key = json.dumps([output["row"][name] for name, _ in plan.key])
                rows.pop(key, None)
                if output["op"] in ("+I", "+U"):
                    rows[key] = output["row"]
    numbers = [name for name in plan.output if plan.types[name].numeric]
    columns = {name: name for name in plan.output}
    print_answer("table", rows.values(), columns, numbers=numbers)
    print_note(f"that is the query over the {len(steps)} newest messages; {refused} were refused")
