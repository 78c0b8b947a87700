"""The row store: a job's results as rows of SQLite, with their old versions for some time.

    table      ──fill──► rows of one epoch (jobs.reading.results)
    changelog  ──apply─► replaces rows, and moves the old versions to `ended`; one epoch at a time

    rows as of an earlier epoch: rows older than it, and rows in `ended` that ended after it

SQLite has B-trees for lookups by key and pages in any order. It is in every Python, its readers
never wait for its writer, and a lost store is filled again from the table. Columns are stored as
bytes that sort like their values (jobs.core.values.order_key). So one rule compares all types,
including NULL, NaN and DECIMALs of 38 digits. The row itself is stored as the JSON of responses.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from jobs.reading.json_columns import encode_texts
from jobs.reading.results import RankedRows, rank_rows
from jobs.reading.row_shape import RowShape
from jobs.reading.version import TableVersion
from service.live.recent_changes import EpochChanges


class RowStore:
    """The rows of one connection; the caller handles transactions and threads."""

    def __init__(self, connection: sqlite3.Connection, shape: RowShape) -> None:
        self.connection = connection
        self.shape = shape
        self._columns = [f"c{index}" for index in range(len(shape.columns))]
        names = ", ".join(["document", *self._columns])
        marks = ", ".join("?" for _ in range(len(self._columns) + 3))
        self._replace_sql = f"INSERT OR REPLACE INTO rows VALUES ({marks})"  # noqa: S608 - numbers
        self._end_sql = f"INSERT INTO ended SELECT ?, key, since, {names} FROM rows WHERE key = ?"  # noqa: S608

    def create_tables(self) -> None:
        columns = "".join(f", {name} BLOB" for name in ("document", *self._columns))
        for statement in (
            "CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, since INTEGER NOT NULL"
            f"{columns}) WITHOUT ROWID",
            # Ordered by `until`: written at one end, deleted at the other, scanned from an epoch.
            "CREATE TABLE IF NOT EXISTS ended (until INTEGER, key BLOB, since INTEGER NOT NULL"
            f"{columns}, PRIMARY KEY (until, key)) WITHOUT ROWID",
        ):
            self.connection.execute(statement)

    def create_index(self, column: str) -> None:
        """Create an index on a column of the store, for ordering and ranges."""
        assert column in self._columns
        self.connection.execute(f"CREATE INDEX IF NOT EXISTS by_{column} ON rows ({column}, key)")

    def list_indexed(self) -> set[str]:
        """Return the columns with an index."""
        statement = "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'rows'"
        names = {name for (name,) in self.connection.execute(statement)}
        return {column for column in self._columns if f"by_{column}" in names}

    # --- writing; the caller has started a transaction ------------------------------------------

    def fill(self, table: TableVersion, since: int, after: int | None = None) -> None:
        """Replace all rows by the results of a table version, or by those at epoch `after`.

        `since` is the epoch at which their versions start.
        """
        names = ", ".join(self._columns)
        self.connection.execute("DROP TABLE IF EXISTS temp.fresh")
        self.connection.execute(
            "CREATE TEMP TABLE fresh (key BLOB PRIMARY KEY, rank INTEGER, turn INTEGER, "
            f"deleted INTEGER, document BLOB, {names}) WITHOUT ROWID"
        )
        marks = ", ".join("?" for _ in range(len(self._columns) + 5))
        stored = ", ".join(
            f"{name} = excluded.{name}"
            for name in ("rank", "turn", "deleted", "document", *self._columns)
        )
        for batch in rank_rows(table, self.shape, after):
            self.connection.executemany(
                f"INSERT INTO fresh VALUES ({marks}) ON CONFLICT (key) DO UPDATE SET {stored} "  # noqa: S608
                "WHERE (excluded.rank, excluded.turn) > (rank, turn)",
                self._make_upserts(batch),
            )
        for version in ("rows", "ended"):
            self.connection.execute(f"DELETE FROM {version}")  # noqa: S608 - named here
        self.connection.execute(
            f"INSERT INTO rows SELECT key, ?, document, {names} FROM fresh "  # noqa: S608
            "WHERE NOT deleted ORDER BY key",
            [since],
        )
        self.connection.execute("DROP TABLE fresh")

    def _make_upserts(self, batch: RankedRows) -> Iterator[tuple[Any, ...]]:
        empty = (b"",) * (len(self._columns) + 1)
        rows = zip(
            map(self.shape.key_bytes, batch.groups),
            batch.ranks,
            batch.deleted,
            encode_texts(self.shape.render_safely(batch.rows)),
            self.shape.encode_sortable(batch.rows),
            strict=True,
        )
        for key, rank, deleted, document, ordered in rows:
            yield (key, *rank, 1, *empty) if deleted else (key, *rank, 0, document, *ordered)

    def apply(
        self, changes: EpochChanges, changelog: pa.Table | None, expired: Sequence[bytes] = ()
    ) -> None:
        """Write the changes of an epoch: the last change of each group is its new row.

        `expired` are groups without a change in the changelog (state.emit_expired: false). Groups
        are written in the order of their keys, so that neighbours share pages.
        """
        epoch = changes.epoch
        last = changes.find_last()
        touched = sorted({*last, *expired})
        self.connection.executemany(self._end_sql, ((epoch, key) for key in touched))
        positions = [at for _, at in sorted(last.items()) if not changes.changes[at].ends]
        alive = [changes.changes[at] for at in positions]
        gone = {*touched}.difference(change.key for change in alive)
        self.connection.executemany("DELETE FROM rows WHERE key = ?", ((key,) for key in gone))
        if changelog is None or not positions:
            return
        self.connection.executemany(
            self._replace_sql,
            (
                (change.key, epoch, change.row, *ordered)
                for change, ordered in zip(
                    alive, self.shape.encode_sortable(_take_rows(changelog, positions)), strict=True
                )
            ),
        )

    def delete_ended(self, until: int) -> None:
        """Delete the versions that ended by an epoch."""
        self.connection.execute("DELETE FROM ended WHERE until <= ?", [until])


def _take_rows(table: pa.Table, positions: Sequence[int]) -> pa.Table:
    return table.take(pa.array(positions, pa.int64()))
