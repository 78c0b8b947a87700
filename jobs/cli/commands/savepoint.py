"""retally savepoint: names the newest epoch, lists the names, or lets go of one."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from jobs.changing.savepoint import SavepointExists, keep_newest
from jobs.cli.errors import CommandFailed, UsageError
from jobs.cli.output import note, print_json, print_table
from jobs.edge.process.job_directory import JobDirectory, existing_job
from jobs.edge.table.savepoints import NAME, Savepoint, delete_savepoint, savepoints


def run(options: argparse.Namespace) -> None:
    place = existing_job(options.data, options.job)
    if options.list:
        _list(place, options.json)
        return
    if options.delete is not None:
        if not delete_savepoint(place.home, options.delete):
            raise CommandFailed(f"job {place.name!r} has no savepoint {options.delete!r}")
        note(f"savepoint {options.delete} is gone")
        return
    if options.name is not None and NAME.fullmatch(options.name) is None:
        raise UsageError(f"{options.name!r} is no savepoint name; use letters, digits, . _ -")
    if options.name is not None and options.name.isdigit():
        raise UsageError(f"{options.name!r} would be read as an epoch; put a letter into the name")
    try:
        kept = keep_newest(place, options.name)
    except SavepointExists as error:
        raise CommandFailed(str(error)) from None
    if options.json:
        print_json(_document(kept))
    else:
        print(f"{kept.name}: epoch {kept.row.epoch}, {kept.row.counters.get('groups', 0)} groups")


def _list(place: JobDirectory, as_json: bool) -> None:
    found = savepoints(place.home)
    if as_json:
        for savepoint in found:
            print_json(_document(savepoint))
        return
    columns = [("savepoint", False), ("epoch", True), ("groups", True), ("committed", False)]
    rows = [
        [s.name, s.row.epoch, s.row.counters.get("groups", 0), _instant(s.row.committed_at)]
        for s in found
    ]
    print_table(columns, rows)


def _document(savepoint: Savepoint) -> dict[str, object]:
    row = savepoint.row
    return {
        "name": savepoint.name,
        "epoch": row.epoch,
        "committed_at": _instant(row.committed_at),
        "groups": row.counters.get("groups", 0),
        "offsets": row.offsets,
    }


def _instant(microseconds: int) -> str:
    moment = datetime.fromtimestamp(microseconds / 1e6, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
