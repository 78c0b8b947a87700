"""retally savepoint, rewind and clone: earlier states of a job."""

from __future__ import annotations

import argparse

from jobs.cli.errors import UsageError
from jobs.cli.output import Columns, print_answer, print_note
from jobs.cli.sources import open_source
from schemas.types.json_types import JsonObject

_COLUMNS: Columns = {
    "savepoint": "name",
    "epoch": "epoch",
    "groups": "groups",
    "committed": "committed_at",
}


def savepoint(options: argparse.Namespace) -> None:
    """Create, list or delete savepoints of a job."""
    if options.name is not None:
        _check_name(options.name)
    with open_source(options) as source:
        if options.delete is not None:
            source.delete_savepoint(options.delete)
            print_note(f"deleted savepoint {options.delete}")
            return
        found = (
            source.list_savepoints() if options.list else [source.create_savepoint(options.name)]
        )
    print_answer(options.output, found, _COLUMNS, text=None if options.list else _print_kept)


def _print_kept(kept: JsonObject) -> None:
    print(f"{kept['name']}: epoch {kept['epoch']}, {kept['groups']} groups")


def _check_name(name: str) -> None:
    from jobs.reading.savepoints import NAME

    if NAME.fullmatch(name) is None:
        raise UsageError(f"{name!r} is not a savepoint name; use letters, digits, . _ -")
    if name.isdigit():
        raise UsageError(f"{name!r} would be read as an epoch; put a letter into the name")


def rewind(options: argparse.Namespace) -> None:
    """Restore a savepoint or an epoch of a stopped job."""
    with open_source(options) as source:
        print_answer(options.output, [source.rewind(options.to)], text=_print_rewound)


def _print_rewound(done: JsonObject) -> None:
    job, to, epoch, kept = done["job"], done["to"], done["epoch"], done["kept"]
    if epoch == to:
        print(f"{job} is at epoch {epoch} already")
    else:
        print(
            f"{job} is at epoch {epoch}, with the results of epoch {to} "
            f"({done['changelog_rows']} changelog rows lead there)"
        )
        if kept is not None:
            print(f"epoch {epoch - 1} is kept as savepoint {kept}")


def clone(options: argparse.Namespace) -> None:
    """Create a job with the state of another."""
    with open_source(options) as source:
        done = source.clone(options.name, options.to, options.spec)
    print_answer(options.output, [done], text=_print_cloned)


def _print_cloned(done: JsonObject) -> None:
    print(
        f"{done['job']} begins with the {done['groups']} groups that {done['of']} had at epoch "
        f"{done['cloned']}; start it with retally run or retally start"
    )
