"""Keep the results that this process has read, as long as the table is what it was.

    the version's log entry and the spec are the same files, no newer entry ──► kept results
                                                                      else ──► read the table

A table that is dropped and made anew has other files, even at the same version. If a file was
written while the table was read, nothing is kept.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from jobs.edge.table.reading import TableReader
from jobs.reading.files import log_entry
from schemas import limits
from schemas.directory.paths import JobDirectory
from schemas.table.object_path import TablePath

CLOCK_NS = 50_000_000  # a file's time may be so much earlier than when it was written


class JobResults(NamedTuple):
    """The results of a job at an epoch."""

    epoch: int
    rows: pa.Table


class _File(NamedTuple):
    device: int
    inode: int
    changed_ns: int


class _Kept(NamedTuple):
    results: JobResults
    version: int
    files: tuple[_File | None, ...]


class KeptResults:
    """The results that were used last, within a limit of tables and bytes."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept] = {}  # the oldest use first

    def find(self, paths: JobDirectory, moment: Hashable) -> JobResults | None:
        """Return the results at a moment, if they were read and the table has not changed."""
        kept = self._kept.pop((paths, moment), None)
        if kept is None or kept.files != _scan_files(paths, kept.version):
            return None
        if log_entry(paths.table, kept.version + 1).exists():
            return None
        self._kept[paths, moment] = kept
        return kept.results

    def add(
        self, table: TableReader, moment: Hashable, results: JobResults, started_ns: int
    ) -> None:
        """Keep results that were read since `started_ns`, a time of the system's clock."""
        files = _scan_files(table.paths, table.version)
        if not all(each and each.changed_ns < started_ns - CLOCK_NS for each in files):
            return
        self._kept[table.paths, moment] = _Kept(results, table.version, files)
        sizes = [each.results.rows.nbytes for each in self._kept.values()]
        while sum(sizes) > limits.SQL_KEPT_BYTES_MAX or len(sizes) > limits.SQL_KEPT_TABLES_MAX:
            del self._kept[next(iter(self._kept))], sizes[0]


def _scan_files(paths: JobDirectory, version: int) -> tuple[_File | None, ...]:
    """Return the files that determine what a table has; None for a missing or a remote file."""
    return _identify(log_entry(paths.table, version)), _identify(paths.spec)


def _identify(path: TablePath) -> _File | None:
    if not isinstance(path, Path):
        return None  # in object storage, a check costs as much as the table
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return _File(found.st_dev, found.st_ino, found.st_ctime_ns)  # a rename changes it as well
