"""A file of a table: Parquet with a checksum on every page, which is held against it in reading.

Without checksums four of five flipped bits are read as other values, and nobody notices. Files of
before have none; they are read as they are.
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

from schemas.table.object_path import TablePath, source

WRITTEN: dict[str, Any] = {"write_page_checksum": True}
READ: dict[str, Any] = {"page_checksum_verification": True}
_SEEN_IN = ("checksum", "thrift", "Parquet", "page", "decompress", "stream")


# What the kernel says of the machine, or of whoever reads, and not of what is in the file.
_NO_DAMAGE = frozenset(
    {errno.EIO, errno.ENOMEM, errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ESTALE}
)


class TableDamaged(Exception):
    """Something of the table is not what was written."""


class TableFileGone(TableDamaged, FileNotFoundError):
    """A file that the table names is not there. Who reads may have looked at a version whose files
    were swept away meanwhile, and looks again; whose table it is has lost it."""


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
    """All rows of a file, or those that `filters` are true for."""
    with naming(path):
        if filters is None:
            return table_file(path).read(columns, use_threads=threads)
        return pq.read_table(
            source(path), columns=columns, filters=filters, partitioning=None,
            use_threads=threads, **READ,
        )  # fmt: skip


@contextmanager
def naming(path: TablePath) -> Iterator[None]:
    """What is wrong with a file, said with its name. Storage that does not answer is no damage, and
    neither is a disk that fails to be read: another start may go better."""
    try:
        yield
    except TableFileGone:
        raise
    except FileNotFoundError as error:
        raise TableFileGone(f"{path} is gone; restore it from a backup") from error
    except (pa.ArrowException, OSError) as error:
        code = getattr(error, "errno", None)
        if isinstance(path, Path) and code in _NO_DAMAGE:
            raise OSError(code, os.strerror(code), str(path)) from error
        if not isinstance(path, Path) and not any(word in str(error) for word in _SEEN_IN):
            raise
        raise TableDamaged(f"{path} is damaged ({error}); restore it from a backup") from error
