"""retally init: from a topic to a spec, with a trial."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from jobs.cli.commands.topics import create_topic
from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.offer import confirm, is_terminal, read_answer
from jobs.cli.output import print_note, print_table
from jobs.core.job.job_plan import plan_of
from jobs.core.suggestion.spec_text import Suggestion, suggest_spec
from jobs.offline.replay import ReplayError, replay
from jobs.topics.consumer import list_topics
from jobs.topics.samples import Sample, read_newest
from schemas.spec.connections import BROKERS_DEFAULT, BROKERS_VARIABLE, load_connections
from schemas.spec.file import load_spec
from schemas.types.json_types import JsonObject

_NAMED = 20  # topics in the question
_PARTITIONS = 4  # of a topic that init creates, as of topics create


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
        found = suggest_spec(topic, connection.name, messages, by)
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
        f"wrote {options.out}; start it on a service (retally jobs put {options.out}) or here:\n"
        f"retally run {options.out} --data data --brokers {','.join(connection.bootstrap)}"
    )


def _try(text: str, newest: Sequence[Sample]) -> None:
    """Run a spec on the newest messages of its topic, and print the results."""
    spec, refused, rows = load_spec(text), 0, dict[str, JsonObject]()
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
    columns = [(name, plan.types[name].numeric) for name in plan.output]
    print_table(columns, ([row[name] for name, _ in columns] for row in rows.values()))
    print_note(f"that is the query over the {len(steps)} newest messages; {refused} were refused")
