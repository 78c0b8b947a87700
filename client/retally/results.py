"""Results: rows that are requested when they are used, as dicts, Arrow, pandas or polars.

    client.results("items", where="n>=10") ──► Results ──.rows()──────► JSON, page by page
                                                  └──.to_arrow()──► Arrow, page by page

All pages are of one epoch.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote_plus

import httpx

from retally.http import Connection, Request, encode_json

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Row = dict[str, Any]

PAGE_ROWS_MAX = 10_000
_ARROW = "application/vnd.apache.arrow.stream"
_NEXT = re.compile(r'<[^>]*[?&]cursor=([^&>]*)[^>]*>; *rel="?next')


class HasArrow(Protocol):
    async def to_arrow(self) -> pyarrow.Table: ...


class AsyncFrames:
    """What has a `to_arrow` also has these."""

    async def to_pandas(self: HasArrow) -> pandas.DataFrame:
        """Return the rows as a pandas DataFrame; needs `retally-client[pandas]`."""
        return (await self.to_arrow()).to_pandas()

    async def to_polars(self: HasArrow) -> polars.DataFrame:
        """Return the rows as a polars DataFrame; needs `retally-client[polars]`."""
        import polars

        return polars.from_arrow(await self.to_arrow())


class AsyncResults(AsyncFrames):
    """The rows of a job; nothing is requested before a method is called.

    `epoch` is that of the rows which were read last.
    """

    epoch: int | None

    def __init__(
        self, connection: Connection, path: str, parameters: Mapping[str, Any], limit: int | None
    ) -> None:
        self._connection = connection
        self._path = path
        page = PAGE_ROWS_MAX if limit is None else max(1, min(limit, PAGE_ROWS_MAX))
        self._parameters = {**parameters, "limit": page}
        self._limit = limit
        self.epoch = None

    async def rows(self) -> list[Row]:
        """Return the rows as dicts; whole numbers beyond 2^53 and decimals are text."""
        return [row async for row in self]

    async def __aiter__(self) -> AsyncIterator[Row]:
        left = self._limit
        async for response in self._read_pages("application/json"):
            page = response.json()
            self.epoch = page["epoch"]
            for row in page["rows"][:left]:
                yield row
            left = None if left is None else left - len(page["rows"])
            if left is not None and left <= 0:
                return

    async def to_arrow(self) -> pyarrow.Table:
        """Return the rows as an Arrow table with the types of the job's table.

        It needs `retally-client[arrow]`.
        """
        import pyarrow

        tables: list[pyarrow.Table] = []
        count = 0
        async for response in self._read_pages(_ARROW):
            self.epoch = int(response.headers["X-Epoch"])
            tables.append(read_arrow(response.content))
            count += tables[-1].num_rows
            if self._limit is not None and count >= self._limit:
                break
        return pyarrow.concat_tables(tables).slice(0, self._limit)

    async def _read_pages(self, media: str) -> AsyncIterator[httpx.Response]:
        cursor: str | None = None
        while True:
            parameters = {**self._parameters, "cursor": cursor}
            request = Request("GET", self._path, parameters, headers={"Accept": media})
            response = await self._connection.send(request)
            yield response
            found = _NEXT.search(response.headers.get("Link", ""))
            if found is None:
                return
            cursor = unquote_plus(found[1])


class AsyncAnswer(AsyncFrames):
    """The answer of a SQL statement, which runs when a method is called.

    `epochs` has the epoch of each table that the statement has read.
    """

    epochs: dict[str, int]
    columns: dict[str, str]  # types by name, after `rows`

    def __init__(self, connection: Connection, statement: str) -> None:
        self._connection = connection
        self._statement = statement
        self.epochs, self.columns = {}, {}

    async def rows(self) -> list[Row]:
        """Return the rows as dicts; whole numbers beyond 2^53 and decimals are text."""
        document = (await self._run("json")).json()
        self.columns = {each["name"]: each["type"] for each in document["columns"]}
        found: list[Row] = document["rows"]
        return found

    async def to_arrow(self) -> pyarrow.Table:
        """Return the rows as a table with the types of the answer."""
        return read_arrow(await self.read("arrow"))

    async def read(self, form: str) -> bytes:
        """Return the answer as the service writes it: `json`, `csv` or `arrow`."""
        return (await self._run(form)).content

    async def _run(self, form: str) -> httpx.Response:
        body = encode_json({"sql": self._statement, "format": form})
        response = await self._connection.send(Request("POST", "/v1/sql", body=body))
        self.epochs = json.loads(response.headers["Retally-Epochs"])
        return response


def read_arrow(content: bytes) -> pyarrow.Table:
    """Return an Arrow stream as a table."""
    import pyarrow

    with pyarrow.ipc.open_stream(content) as reader:
        return reader.read_all()
