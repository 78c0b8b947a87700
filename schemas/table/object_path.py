"""The path of a table in S3-compatible object storage, used like `Path` for local tables.

    s3://bucket/prefix/items/epochs  ─┬─ Arrow's file system   files, entries of the log
                                      └─ delta-rs              the log; a commit is put if absent

A `TablePath` is a `Path` or an `ObjectPath`. An `ObjectPath` has only those methods of `Path` that
readers and the writer of a table use, with the same errors. Object storage has no directories:
`is_dir` is true if an object exists below the path.

Endpoint and credentials come from the usual environment variables only: AWS_ENDPOINT_URL,
AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and so on. They are never stored, logged or
passed to other processes.
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

from schemas import limits

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

SCHEME = "s3://"
TABLES_VARIABLE = "RETALLY_TABLES"
_URL = re.compile(
    r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?P<prefix>(/[A-Za-z0-9._=-]+)*)/?", re.ASCII
)


class ObjectStat(NamedTuple):
    """The fields that it shares with `os.stat_result`."""

    st_size: int
    st_mtime: float


@dataclass(frozen=True, slots=True, order=True)
class ObjectPath:
    """The path of an object or a prefix. Tasks receive it as text; each process connects itself."""

    key: str  # bucket/prefix/name
    _listed: ObjectStat | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, url: str) -> ObjectPath:
        """Parse a URL; raise ValueError if it is not valid or contains credentials."""
        match = _URL.fullmatch(url)
        if match is None or {".", ".."} & set(match["prefix"].split("/")):
            raise ValueError(
                "write the URL of the tables as s3://BUCKET or s3://BUCKET/PREFIX, with letters, "
                "digits and ._=- in the prefix; set endpoint and keys in the environment "
                "(AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...)"
            )
        return cls(match["bucket"] + match["prefix"])

    def __str__(self) -> str:
        return SCHEME + self.key

    def __truediv__(self, name: str) -> ObjectPath:
        if name.startswith("../"):
            return self.parent / name.removeprefix("../")
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

    # --- metadata -----------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether the object exists; one request, where checking directories takes two."""
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
            raise FileNotFoundError(f"{self} does not exist")
        return ObjectStat(found.size, found.mtime.timestamp())

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield objects directly below, with size and time from the listing."""
        from pyarrow.fs import FileSelector

        for found in _storage().get_file_info(FileSelector(self.key, allow_not_found=True)):
            if found.is_file and fnmatchcase(found.base_name, pattern):
                listed = ObjectStat(found.size, found.mtime.timestamp())
                yield ObjectPath(f"{self.key}/{found.base_name}", listed)

    def list_directories(self) -> list[str]:
        """Return the names of the prefixes directly below."""
        from pyarrow.fs import FileSelector, FileType

        below = _storage().get_file_info(FileSelector(self.key, allow_not_found=True))
        return [found.base_name for found in below if found.type == FileType.Directory]

    # --- reading and writing ------------------------------------------------------------------

    def read_bytes(self) -> bytes:
        with _storage().open_input_stream(self.key) as stream:
            return bytes(stream.readall())

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def source(self) -> Any:
        """Return a source for Arrow's readers; a small object is read whole, in one request."""
        import pyarrow as pa

        file = _storage().open_input_file(self.key)
        if file.size() > limits.OBJECT_WHOLE_BYTES_MAX:
            return file
        with file:
            return pa.BufferReader(file.read_buffer())

    def sink(self) -> Any:
        """Return a sink for Arrow's writers; the object appears, complete, when it is closed."""
        return _storage().open_output_stream(self.key)

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing, because object storage has no directories."""

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            _storage().delete_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_tree(self) -> None:
        """Delete all objects below."""
        with suppress(FileNotFoundError):
            _storage().delete_dir(self.key)


TablePath = Path | ObjectPath


def table_path(text: str) -> TablePath:
    """Return the path of a text that `str` made of one."""
    return ObjectPath.of(text) if text.startswith(SCHEME) else Path(text)


def source(path: TablePath) -> Any:
    """Return a file of a table as a source for Arrow's readers."""
    return path if isinstance(path, Path) else path.source()


def sink(path: TablePath) -> Any:
    """Return a new file of a table as a sink for Arrow's writers."""
    return path.open("wb") if isinstance(path, Path) else path.sink()


def storage_options(root: TablePath) -> dict[str, str] | None:
    """Return delta-rs's options for a table; it reads credentials from the environment itself."""
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
    """Return the connection of this process; after a fork, a child needs its own."""
    return _connect(os.getpid(), _endpoint(), _region())


@lru_cache(maxsize=4)
def _connect(_process: int, endpoint: str | None, region: str) -> S3FileSystem:
    from pyarrow.fs import S3FileSystem

    scheme, _, host = (endpoint or "https://").partition("://")
    return S3FileSystem(
        endpoint_override=host or None,
        scheme=scheme,
        region=region,
        connect_timeout=limits.OBJECT_CONNECT_SECONDS_MAX,
        request_timeout=limits.OBJECT_REQUEST_SECONDS_MAX,
        allow_delayed_open=True,  # a small file takes one request; a multipart upload takes three
    )
