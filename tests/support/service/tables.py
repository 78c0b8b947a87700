"""Jobs whose tables a test writes itself, epoch by epoch, for the service to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from schemas.spec.file import load_spec
from schemas.types.sql_types import INT, STRING
from tests.support.service.served import Served, eventually
from tests.support.tables.written_table import WrittenTable

QUERY = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"


class WatchedTable:
    """A table and the service's view of it."""

    def __init__(
        self, served: Served, query: str = QUERY, columns: Mapping[str, object] | None = None
    ) -> None:
        self.served = served
        self.table = WrittenTable(served.data, query, columns or {"name": STRING, "v": INT})
        spec = load_spec(self.table.place.spec)
        with served.client() as client:
            assert client.put("/v1/jobs/items", json=spec.document()).status_code == 201

    @property
    def newest(self) -> int:
        return len(self.table.history) - 1

    def live(self, epoch: int = -1) -> dict[Any, tuple[int, int]]:
        """Return total and top by group, as written."""
        history = self.table.history[epoch]
        return {key[0]: (sum(values), max(values)) for key, values in history.items()}

    def write(self, *lives: Mapping[Any, tuple[int, ...]]) -> int:
        for live in lives:
            self.table.epoch({(name,): values for name, values in live.items()})
        return self.newest

    def seen(self) -> None:
        """Wait until the service has read all epochs."""
        eventually(lambda: self.served.job("items")["epoch"] == self.newest)


def shown(response: httpx.Response) -> dict[Any, tuple[int, int]]:
    assert response.status_code == 200, response.text
    return {row["name"]: (row["total"], row["top"]) for row in response.json()["rows"]}
