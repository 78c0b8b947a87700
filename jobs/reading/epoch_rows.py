"""Read epoch rows from the files of a table version.

From the root of a view, a row has the counters, the files and the due work of this view.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa

from jobs.reading.files import LiveFile
from jobs.reading.parts import EPOCHS
from jobs.reading.scan import scan_files, some_at_once
from schemas.table.epoch import AUDITED_COUNTERS, JSON_FIELDS, RETRACTION_ERRORS, EpochRow
from schemas.table.object_path import TablePath
from schemas.table.parquet_file import TableDamaged, rows_in
from schemas.table.view_path import split_root


def newest_epoch(root: TablePath, files: Iterable[LiveFile]) -> EpochRow | None:
    """Return the row of the newest epoch; None if there is none yet."""
    row = newest_of_job(root, files)
    return None if row is None else row.of_view(split_root(root)[1])


def newest_of_job(root: TablePath, files: Iterable[LiveFile]) -> EpochRow | None:
    """Return the newest row as it is written, with all views; None if there is none yet."""
    newest = max(_epoch_files(files), key=lambda file: file.epoch_max, default=None)
    if newest is None:
        return None
    return max(read_epoch_rows(root / newest.path), key=lambda row: row.epoch)


def epoch_rows(
    root: TablePath, files: Iterable[LiveFile], since: int = -1, *, whole: bool = False
) -> list[EpochRow]:
    """Return the epoch rows after `since`, in order and without a gap up to the newest.

    With `whole`, return them as they are written, with all views.
    """
    read = [file.path for file in _epoch_files(files) if file.epoch_max > since]
    view = split_root(root)[1]
    rows = [row for names in some_at_once(read) for row in _read_files(root, names)]
    rows = [row if whole else row.of_view(view) for row in rows if row.epoch > since]
    rows.sort(key=lambda row: row.epoch)
    if len(rows) > 1 and rows[1].epoch > rows[0].epoch + 1:
        return rows[1:]  # retention kept only the start, see `start_row`
    return rows


def start_row(
    root: TablePath, files: Iterable[LiveFile], *, whole: bool = False
) -> EpochRow | None:
    """Return the row of the job's start, or None if the oldest row is another one.

    It has the first offsets. Retention keeps it and adds the counters of removed epochs to it. With
    `whole`, return it as it is written, with all views.
    """
    oldest = min(_epoch_files(files), key=lambda file: file.epoch_min, default=None)
    if oldest is None:
        return None
    row = min(read_epoch_rows(root / oldest.path), key=lambda row: row.epoch)
    if row.kind != "start":
        return None
    return row if whole else row.of_view(split_root(root)[1])


def describe_missing_start(job: str) -> str:
    """Return why nothing can be read from the start of a job whose table has no start row."""
    return (
        f"the oldest epoch row of job {job!r} is not its start, so its first offsets are unknown; "
        "restore the table from a backup, or start a new job from the topic"
    )


def counted_rows(root: TablePath, files: Sequence[LiveFile]) -> list[EpochRow]:
    """Return all rows with all views; their counters have each epoch since the start once."""
    rows, start = epoch_rows(root, files, whole=True), start_row(root, files, whole=True)
    kept = start is None or any(row.epoch == start.epoch for row in rows)
    return rows if start is None or kept else [start, *rows]


def drop_undone(rows: Sequence[EpochRow]) -> list[EpochRow]:
    """Return the epochs that have led to the newest one, of rows of one view in order.

    A rewind has undone the epochs after its target. A replay, the first epoch of a new view, and a
    rewind to an epoch that retention had removed have sums, instead of all epochs before.
    """
    kept: list[EpochRow] = []
    last = rows[-1].epoch if rows else 0
    for row in reversed(rows):
        if row.epoch > last:
            continue
        kept.append(row)
        if row.replaces_state:
            break
        if row.kind == "rewind" and row.counts.rewound_to is not None:
            last = row.counts.rewound_to
    return kept[::-1]


def sum_audited(rows: Sequence[EpochRow]) -> dict[str, int]:
    """Return the sums that an audit needs of the newest of these rows, which are of one view."""
    kept = drop_undone(rows)
    return {
        name: sum(getattr(row.counts, name) for row in kept)
        for name in AUDITED_COUNTERS
        if name in RETRACTION_ERRORS or any(name in row.counters for row in kept)
    }


def read_epoch_rows(path: TablePath) -> list[EpochRow]:
    """Return the epoch rows in one file."""
    table = rows_in(path)
    try:
        return _convert(table)
    # A Parquet footer has no checksum, so damage can rename a column.
    except (KeyError, ValueError) as error:
        raise TableDamaged(f"{path} is damaged ({error}); restore it from a backup") from error


def _read_files(root: TablePath, names: Sequence[str]) -> list[EpochRow]:
    try:
        return [row for table in scan_files(root, names) for row in _convert(table)]
    except (KeyError, ValueError):  # damaged; find out which file
        return [row for name in names for row in read_epoch_rows(root / name)]


def _convert(table: pa.Table) -> list[EpochRow]:
    rows = []
    stamps = table["committed_at"].combine_chunks().view("int64").to_pylist()
    for record, stamp in zip(table.drop(["committed_at"]).to_pylist(), stamps, strict=True):
        for name in JSON_FIELDS:
            record[name] = json.loads(record[name] or "{}")
        rows.append(msgspec.convert({**record, "committed_at": stamp}, EpochRow))
    return rows


def _epoch_files(files: Iterable[LiveFile]) -> list[LiveFile]:
    return [file for file in files if file.part == EPOCHS]
