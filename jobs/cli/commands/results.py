"""retally results: the groups of a job and their values, now or at an epoch."""

from __future__ import annotations

import argparse

from jobs.cli.group_key import group_key
from jobs.cli.output import moved_note, note, print_json, print_table
from jobs.edge.process.job_directory import existing_job
from jobs.edge.table.reading import Results, RowShape, TableReader, reading


def run(options: argparse.Namespace) -> None:
    def read(table: TableReader) -> tuple[RowShape, Results, int | None]:
        key = None if options.key is None else group_key(options.key, table.plan)
        results = table.results(options.epoch, key)
        moved = table.newest.moved
        return table.shape, results, None if (moved or 0) > results.epoch else moved

    shape, results, moved = reading(existing_job(options.data, options.job), read)
    rows = [shape.row(key, result) for key, result in results.rows]
    if options.json:
        for row in rows:
            print_json(row)
    else:
        numeric = [sql_type.numeric for sql_type in shape.types]
        columns = list(zip(shape.names, numeric, strict=True))
        print_table(columns, ([row[name] for name in shape.names] for row in rows))
    if moved is not None:
        note(moved_note(moved))
    if options.key is not None and not rows:
        note(f"there is no such group at epoch {results.epoch}")
    elif not options.json:
        note(f"{len(rows)} {'group' if len(rows) == 1 else 'groups'} at epoch {results.epoch}")
