"""retally suggest: prints a spec for a topic, from its newest messages.

The service gives the same suggestion in the console and as /v1/topics/TOPIC/suggestion.
"""

from __future__ import annotations

import argparse
import sys

from jobs.cli.errors import CommandFailed
from jobs.core.suggestion.spec_text import suggest_spec
from jobs.topics.samples import read_newest
from schemas.spec.connections import load_connections


def run(options: argparse.Namespace) -> None:
    connections = load_connections(options.connections, options.brokers)
    newest = read_newest(connections.lookup(options.connection), [options.topic])
    messages = [(each.key, each.value) for each in newest]
    found = suggest_spec(options.topic, options.connection, messages)
    if found.text is None:
        raise CommandFailed(f"no suggestion: {found.reason}")
    sys.stdout.write(found.text)
