"""A Parquet file of a table; every page has a checksum, which readers verify.

Without checksums, four of five flipped bits change values, and no reader notices. Files of older
versions have no checksums and are read without.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.failures.catalogue import CodedError
from schemas.table.object_path import TablePath, source

WRITTEN = {"write_page_checksum": True}
READ = {"page_checksum_verification": True}
_STORAGE_ERROR = "AWS Error"  # its text also has the key, which may contain any word
_DAMAGE_WORDS = ("checksum", "thrift", "Parquet", "page", "decompress", "stream")
# Errors of the machine or the reading process; they say nothing about the file.
_NO_DAMAGE = frozenset(
    {errno.EIO, errno.ENOMEM, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ESTALE}
)


class TableDamaged(CodedError, code="table-damaged"):
    """A file of the table is damaged or missing."""


class TableFileGone(TableDamaged, FileNotFoundError):
    """A file that the table names does not exist.

    A reader may have an old version whose files were deleted; it reads the newest version then. For
    the job itself, the file is lost.
    """


def table_file(path: TablePath, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    with naming(path):
        return pq.ParquetFile(source(path), metadata=metadata, **READ)


def rows_in(
    path: TablePath,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    *,
    threads: bool = True,
) -> pa.Table:
    """Return all rows of a file, or those that meet `filters`."""
    with naming(path):
        if filters is None:
            return table_file(path).read(columns, use_threads=threads)
        return pq.read_table(
            source(path),
            columns=columns,
            filters=filters,
            partitioning=None,
            use_threads=threads,
            **READ,
        )


@contextmanager
def naming(path: TablePath) -> Iterator[None]:
    """Raise errors of reading a file with its name; tell damage from failing storage.

    An unreachable storage or a disk that cannot be read is not damage: another start may succeed.
    """
    try:
        yield
    except TableFileGone:
        raise
    except FileNotFoundError as error:
        raise TableFileGone(f"{path} is gone; restore it from a backup") from error
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as error:
        code = getattr(error, "errno", None)
        if isinstance(path, Path) and code in _NO_DAMAGE:
            raise OSError(code, os.strerror(code), str(path)) from error
        if not isinstance(path, Path) and not _is_damage(str(error)):
            raise
        raise TableDamaged(f"{path} is damaged ({error}); restore it from a backup") from error


def _is_damage(error: str) -> bool:
    return _STORAGE_ERROR not in error and any(word in error for word in _DAMAGE_WORDS)
