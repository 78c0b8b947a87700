"""retally changes: prints the changelog of a job, and follows it with --follow."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress

from jobs.cli.output import OP_STYLES, escape_controls, open_console, print_json
from jobs.cli.sources import open_source


def run(options: argparse.Namespace) -> None:
    screen = None if options.json else open_console()
    with suppress(KeyboardInterrupt), open_source(options) as source:  # Ctrl-C ends --follow
        for change in source.read_changes(options.since, options.key, follow=options.follow):
            if screen is None:
                print_json(change)
            else:
                text = escape_controls(json.dumps(change["row"], ensure_ascii=False))
                line = f"{change['epoch']:>6} {change['op']} {text}"
                screen.print(line, style=OP_STYLES[change["op"]], soft_wrap=True)
            if options.follow:
                sys.stdout.flush()
