"""retally diff: prints the groups whose results differ between two epochs."""

from __future__ import annotations

import argparse
import json

from jobs.cli.output import escape_controls, open_console, print_json, print_note
from jobs.cli.sources import open_source

_STYLES = {"-": "red", "+": "green"}


def run(options: argparse.Namespace) -> None:
    with open_source(options) as source:
        to, found = source.compare_epochs(options.first, options.last)
    if options.json:
        print_json(*found)
    else:
        screen = open_console()
        for each in found:
            for sign, row in (("-", each["before"]), ("+", each["after"])):
                if row is not None:
                    text = escape_controls(json.dumps(row, ensure_ascii=False))
                    screen.print(f"{sign} {text}", style=_STYLES[sign], soft_wrap=True)
    groups = "group differs" if len(found) == 1 else "groups differ"
    print_note(f"{len(found)} {groups} between epochs {options.first} and {to}")
