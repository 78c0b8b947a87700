"""The messages of a table's topic as they are now, with the database's answer to a query."""

from __future__ import annotations

from collections.abc import Mapping

from tests.cdc.canal import Canal
from tests.cdc.source import PARTITIONS
from tests.cdc.workload import Query
from tests.support.recordings import Recording


def recorded(
    canal: Canal, table: str, query: Query, columns: Mapping[str, str], repeats: bool = False
) -> Recording:
    partitions: list[list[str]] = [[] for _ in range(PARTITIONS)]
    for partition, text in canal.texts(table):
        partitions[partition].append(text)
    version = canal.database.rows("SELECT VERSION() AS version")[0]["version"]
    return Recording(
        table=table,
        source=f"{canal.database.kind} {version}, canal 1.1.7",
        columns=columns,
        query=query.text,
        keys=query.keys,
        truth=canal.database.rows(query.truth or query.text),
        partitions=partitions,
        repeats=repeats,
    )
