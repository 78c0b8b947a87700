"""retally results, changes, diff and explain: what a job's table says."""

from __future__ import annotations

import argparse
from contextlib import suppress

import msgspec

from jobs.cli.answers import Wanted
from jobs.cli.errors import UsageError
from jobs.cli.explanation import print_explanation
from jobs.cli.output import (
    OP_STYLES,
    describe_moved,
    open_console,
    print_answer,
    print_note,
    render_cell,
)
from jobs.cli.sources import open_source
from schemas.types.json_types import JsonObject

_STYLES = {"-": "red", "+": "green"}


def results(options: argparse.Namespace) -> None:
    """Print the groups of a job and their values, now or at an epoch."""
    listed = options.where or options.order or options.limit is not None
    if options.key is not None and listed:
        raise UsageError("--key names one group; --where, --order and --limit are for many")
    wanted = Wanted(
        options.epoch,
        options.time,
        options.key,
        tuple(options.where or ()),
        options.order,
        options.limit,
    )
    with open_source(options) as source:
        found = source.read_results(wanted)
    numbers = [name for name, numeric in found.columns if numeric]
    print_answer(options.output, found.rows, {c: c for c, _ in found.columns}, numbers=numbers)
    if found.moved is not None:
        print_note(describe_moved(found.moved))
    if options.key is not None and not found.rows:
        print_note(f"there is no such group at epoch {found.epoch}")
    elif options.output == "table":
        groups = "group" if len(found.rows) == 1 else "groups"
        kept = " that match" if options.where else ""
        print_note(f"{len(found.rows)} {groups}{kept} at epoch {found.epoch}")


def changes(options: argparse.Namespace) -> None:
    """Print the changelog of a job, and follow it with --follow."""
    screen, follow = open_console(), options.follow

    def show(change: JsonObject) -> None:
        line = f"{change['epoch']:>6} {change['op']} {render_cell(change['row'])}"
        screen.print(line, style=OP_STYLES[change["op"]], soft_wrap=True)

    with suppress(KeyboardInterrupt), open_source(options) as source:  # Ctrl-C ends --follow
        found = source.read_changes(options.since, options.key, follow=follow)
        print_answer(options.output, found, text=show, flush=follow)


def diff(options: argparse.Namespace) -> None:
    """Print the groups whose results differ between two epochs."""
    with open_source(options) as source:
        to, found = source.compare_epochs(options.first, options.last)
    screen = open_console()

    def show(group: JsonObject) -> None:
        for sign, row in (("-", group["before"]), ("+", group["after"])):
            if row is not None:
                screen.print(f"{sign} {render_cell(row)}", style=_STYLES[sign], soft_wrap=True)

    print_answer(options.output, found, text=show)
    groups = "group differs" if len(found) == 1 else "groups differ"
    print_note(f"{len(found)} {groups} between epochs {options.first} and {to}")


def explain(options: argparse.Namespace) -> None:
    """Explain the values of a group."""
    with open_source(options) as source:
        explained = source.explain(options.key)
    name = f"{options.job}.{options.view}" if options.view else options.job
    document = msgspec.to_builtins(explained)
    print_answer(options.output, [document], text=lambda _: print_explanation(name, explained))
