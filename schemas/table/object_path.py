"""The place of a table in S3-compatible object storage, used as `Path` is used for local ones.

    s3://bucket/prefix/items/epochs  ─┬─ Arrow's file system   files, entries of the log
                                      └─ delta-rs              the log; a commit is put if absent

A table is at a `TablePath`: a `Path`, or this. It has what the readers and the writer of a table
ask of a path, under the same names and with the same errors, and nothing else. There are no
directories: a place `is_dir` where something lies below it.

Where the storage is and who we are there is only in the environment, in the variables that all
tools for it have: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
their like. Nothing of it is written down, passed on or told.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.limits import (
    OBJECT_CONNECT_SECONDS_MAX,
    OBJECT_REQUEST_SECONDS_MAX,
    OBJECT_WHOLE_BYTES_MAX,
)

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

SCHEME = "s3://"
TABLES_VARIABLE = "RETALLY_TABLES"
_URL = re.compile(
    r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?P<prefix>(/[A-Za-z0-9._=-]+)*)/?", re.ASCII
)


class ObjectStat(NamedTuple):
    """What `os.stat_result` has of it too."""

    st_size: int
    st_mtime: float


@dataclass(frozen=True, slots=True, order=True)
class ObjectPath:
    """An object, or what lies below it. The text goes to tasks as it is; each process has a
    connection of its own."""

    key: str  # bucket/prefix/name
    _listed: ObjectStat | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, url: str) -> ObjectPath:
        """ValueError where that is no URL of ours; one with a user's name or a key is none."""
        match = _URL.fullmatch(url)
        if match is None or {".", ".."} & set(match["prefix"].split("/")):
            raise ValueError(
                "tables are in s3://BUCKET or s3://BUCKET/PREFIX, with letters, digits and ._=- "
                "in the prefix; endpoint and keys are in the environment (AWS_ENDPOINT_URL, "
                "AWS_ACCESS_KEY_ID, ...)"
            )
        return cls(match["bucket"] + match["prefix"])

    def __str__(self) -> str:
        return SCHEME + self.key

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self.key}/{name}")

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(self.key.rpartition("/")[0])

    # --- looking ------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether there is such an object: one request, where a look for directories takes two."""
        try:
            _storage().open_input_file(self.key).close()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        from pyarrow.fs import FileType

        return bool(_storage().get_file_info(self.key).type == FileType.Directory)

    def stat(self) -> ObjectStat:
        if self._listed is not None:
            return self._listed
        found = _storage().get_file_info(self.key)
        if not found.is_file:
            raise FileNotFoundError(f"there is no {self}")
        return ObjectStat(found.size, found.mtime.timestamp())

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Objects right below, with size and time as they were listed."""
        from pyarrow.fs import FileSelector

        for found in _storage().get_file_info(FileSelector(self.key, allow_not_found=True)):
            if found.is_file and fnmatchcase(found.base_name, pattern):
                listed = ObjectStat(found.size, found.mtime.timestamp())
                yield ObjectPath(f"{self.key}/{found.base_name}", listed)

    # --- reading and writing ------------------------------------------------------------------

    def read_bytes(self) -> bytes:
        with _storage().open_input_stream(self.key) as stream:
            return bytes(stream.readall())

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def source(self) -> Any:
        """For Arrow's readers. A small object comes in one piece, whatever is wanted of it."""
        import pyarrow as pa

        file = _storage().open_input_file(self.key)
        if file.size() > OBJECT_WHOLE_BYTES_MAX:
            return file
        with file:
            return pa.BufferReader(file.read_buffer())

    def sink(self) -> Any:
        """For Arrow's writers. Nothing is there before it is closed, and then all of it is."""
        return _storage().open_output_stream(self.key)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing to be done."""

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            _storage().delete_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_tree(self) -> None:
        """Everything below."""
        with suppress(FileNotFoundError):
            _storage().delete_dir(self.key)


TablePath = Path | ObjectPath


def table_path(text: str) -> TablePath:
    """A place that was passed on as text."""
    return ObjectPath.of(text) if text.startswith(SCHEME) else Path(text)


def source(path: TablePath) -> Any:
    """A file of a table, for Arrow's readers."""
    return path if isinstance(path, Path) else path.source()


def sink(path: TablePath) -> Any:
    """A new file of a table, for Arrow's writers."""
    return path.open("wb") if isinstance(path, Path) else path.sink()


def storage_options(root: TablePath) -> dict[str, str] | None:
    """What delta-rs has to know of a table's place; credentials it takes from the environment."""
    if isinstance(root, Path):
        return None
    endpoint = _endpoint()
    options = {"aws_region": _region(), "aws_conditional_put": "etag"}
    if endpoint is not None:
        options["aws_endpoint"] = endpoint
        options["aws_allow_http"] = str(endpoint.startswith("http://")).lower()
    return options


def _endpoint() -> str | None:
    found = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return found.rstrip("/") if found else None


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _storage() -> S3FileSystem:
    """Of this process: a connection does not outlive a fork."""
    return _connected(os.getpid(), _endpoint(), _region())


@lru_cache(maxsize=4)
def _connected(_process: int, endpoint: str | None, region: str) -> S3FileSystem:
    from pyarrow.fs import S3FileSystem

    scheme, _, host = (endpoint or "https://").partition("://")
    return S3FileSystem(
        endpoint_override=host or None,
        scheme=scheme,
        region=region,
        connect_timeout=OBJECT_CONNECT_SECONDS_MAX,
        request_timeout=OBJECT_REQUEST_SECONDS_MAX,
        allow_delayed_open=True,  # a small file is one request, not the three of an upload in parts
    )
