"""The row store: a job's results as rows of SQLite, with their old versions for some time.

    accumulators ──fill──► rows of one epoch
    changelog    ──apply─► replaces rows, and moves the old versions to `ended`; one epoch at a time
                 ──undo──► the rows of an earlier epoch (only in a store of one epoch)

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

from jobs.table.json_columns import encode_texts
from jobs.table.parts import ACCUMULATORS
from jobs.table.version import TableVersion
from schemas.limits import INDEX_SLICE_ROWS
from schemas.types.arrow_values import to_list
from service.live.recent_changes import EpochChanges
from service.table.row_shape import RowShape


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

    def fill(self, table: TableVersion, epoch: int) -> None:
        """Replace all rows by the results of a table version, whose newest epoch is `epoch`."""
        names = ", ".join(self._columns)
        self.connection.execute("DROP TABLE IF EXISTS temp.fresh")
        self.connection.execute(
            "CREATE TEMP TABLE fresh (key BLOB PRIMARY KEY, epoch INTEGER, tombstone INTEGER, "
            f"document BLOB, {names}) WITHOUT ROWID"
        )
        marks = ", ".join("?" for _ in range(len(self._columns) + 4))
        for file in table.of_part(ACCUMULATORS):
            wanted = ["epoch", "tombstone", *self.shape.columns]
            for state in table.batches(file, wanted, INDEX_SLICE_ROWS):
                self.connection.executemany(
                    f"INSERT INTO fresh VALUES ({marks}) ON CONFLICT (key) DO UPDATE SET "  # noqa: S608
                    "epoch = excluded.epoch, tombstone = excluded.tombstone, "
                    "document = excluded.document, "
                    + ", ".join(f"{name} = excluded.{name}" for name in self._columns)
                    + " WHERE excluded.epoch >= epoch",
                    self._make_upserts(state),
                )
        for version in ("rows", "ended"):
            self.connection.execute(f"DELETE FROM {version}")  # noqa: S608 - named here
        self.connection.execute(
            f"INSERT INTO rows SELECT key, ?, document, {names} FROM fresh "  # noqa: S608
            "WHERE NOT tombstone ORDER BY key",
            [epoch],
        )
        self.connection.execute("DROP TABLE fresh")

    def _make_upserts(self, state: pa.Table) -> Iterator[tuple[Any, ...]]:
        empty = (b"",) * (len(self._columns) + 1)
        rows = zip(
            to_list(state["epoch"]),
            to_list(state["tombstone"]),
            self.shape.encode_keys(state),
            encode_texts(self.shape.render_rows(state)),
            self.shape.encode_sortable(state),
            strict=True,
        )
        for epoch, dead, key, document, ordered in rows:
            yield (key, epoch, 1, *empty) if dead else (key, epoch, 0, document, *ordered)

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

    def undo(self, changelog: pa.Table | None) -> None:
        """Restore the rows before these changes: the first change of each group has the old row.

        Only for a store of one epoch, whose versions start at 0.
        """
        if changelog is None:
            return
        first: dict[bytes, int] = {}
        for at, key in enumerate(self.shape.encode_keys(changelog)):
            first.setdefault(key, at)
        self.connection.executemany("DELETE FROM rows WHERE key = ?", ((key,) for key in first))
        ops = to_list(changelog["op"])
        existed = {key: at for key, at in first.items() if ops[at] != "+I"}
        before = _take_rows(changelog, list(existed.values()))
        rows = zip(
            existed,
            encode_texts(self.shape.render_rows(before)),
            self.shape.encode_sortable(before),
            strict=True,
        )
        self.connection.executemany(
            self._replace_sql, ((key, 0, document, *ordered) for key, document, ordered in rows)
        )

    def delete_ended(self, until: int) -> None:
        """Delete the versions that ended by an epoch."""
        self.connection.execute("DELETE FROM ended WHERE until <= ?", [until])


def _take_rows(table: pa.Table, positions: Sequence[int]) -> pa.Table:
    return table.take(pa.array(positions, pa.int64()))
