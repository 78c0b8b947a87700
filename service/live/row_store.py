"""The row store: a job's results as rows of SQLite, and for a while what they were before.

    accumulators ──fill──► rows of one epoch
    changelog    ──apply─► rows are replaced; what they were goes to `ended`, an epoch in one piece
                 ──undo──► the rows of an epoch before (a store of one epoch only)

    rows as of an earlier epoch: rows from before it, and those in `ended` that ended after it

SQLite, because a lookup by key and a page in any order are what B-trees are for, it is in every
Python, its readers never wait for its writer, and a store that is lost is filled again from the
table. Every column is kept as bytes that sort as its values do (jobs.core.values.order_key), so one
rule holds for comparing and ordering all types, NULL and NaN and 38 digits of a DECIMAL among them.
The row itself is kept as the JSON that is answered.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from schemas.types.arrow_values import listed
from service.live.recent_changes import EpochChanges
from service.table.job_table import ACCUMULATORS, Table
from service.table.json_columns import as_bytes
from service.table.row_shape import RowShape

_SLICE_ROWS = 20_000


class RowStore:
    """The rows behind one connection; the caller holds transactions and threads apart."""

    def __init__(self, connection: sqlite3.Connection, shape: RowShape) -> None:
        self.connection = connection
        self.shape = shape
        self._columns = [f"c{index}" for index in range(len(shape.columns))]
        names = ", ".join(["document", *self._columns])
        marks = ", ".join("?" for _ in range(len(self._columns) + 3))
        self._replacement = f"INSERT OR REPLACE INTO rows VALUES ({marks})"  # noqa: S608 - numbers
        self._ending = f"INSERT INTO ended SELECT ?, key, since, {names} FROM rows WHERE key = ?"  # noqa: S608

    def create(self) -> None:
        columns = "".join(f", {name} BLOB" for name in ("document", *self._columns))
        for statement in (
            "CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, since INTEGER NOT NULL"
            f"{columns}) WITHOUT ROWID",
            # In the order in which it is written, forgotten from the other end, and looked through
            # from an epoch on: rows that are true stay few and near each other.
            "CREATE TABLE IF NOT EXISTS ended (until INTEGER, key BLOB, since INTEGER NOT NULL"
            f"{columns}, PRIMARY KEY (until, key)) WITHOUT ROWID",
        ):
            self.connection.execute(statement)

    def index(self, column: str) -> None:
        """An index over one of our own columns, for rows in its order and ranges of it."""
        assert column in self._columns
        self.connection.execute(f"CREATE INDEX IF NOT EXISTS by_{column} ON rows ({column}, key)")

    def indexed(self) -> set[str]:
        statement = "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'rows'"
        names = {name for (name,) in self.connection.execute(statement)}
        return {column for column in self._columns if f"by_{column}" in names}

    # --- writing; the caller has begun a transaction --------------------------------------------

    def fill(self, table: Table, epoch: int) -> None:
        """The results of a table's version, which stands at `epoch`, instead of all rows."""
        names = ", ".join(self._columns)
        self.connection.execute("DROP TABLE IF EXISTS temp.fresh")
        self.connection.execute(
            "CREATE TEMP TABLE fresh (key BLOB PRIMARY KEY, epoch INTEGER, tombstone INTEGER, "
            f"document BLOB, {names}) WITHOUT ROWID"
        )
        marks = ", ".join("?" for _ in range(len(self._columns) + 4))
        for file in table.of_part(ACCUMULATORS):
            wanted = ["epoch", "tombstone", *self.shape.columns]
            for state in table.batches(file, wanted, _SLICE_ROWS):
                self.connection.executemany(
                    f"INSERT INTO fresh VALUES ({marks}) ON CONFLICT (key) DO UPDATE SET "  # noqa: S608
                    "epoch = excluded.epoch, tombstone = excluded.tombstone, "
                    "document = excluded.document, "
                    + ", ".join(f"{name} = excluded.{name}" for name in self._columns)
                    + " WHERE excluded.epoch >= epoch",
                    self._upserts(state),
                )
        for version in ("rows", "ended"):
            self.connection.execute(f"DELETE FROM {version}")  # noqa: S608 - named here
        self.connection.execute(
            f"INSERT INTO rows SELECT key, ?, document, {names} FROM fresh "  # noqa: S608
            "WHERE NOT tombstone ORDER BY key",
            [epoch],
        )
        self.connection.execute("DROP TABLE fresh")

    def _upserts(self, state: pa.Table) -> Iterator[tuple[Any, ...]]:
        empty = (b"",) * (len(self._columns) + 1)
        rows = zip(
            listed(state["epoch"]), listed(state["tombstone"]), self.shape.keys(state),
            as_bytes(self.shape.json(state)), self.shape.ordered(state),
            strict=True,
        )  # fmt: skip
        for epoch, dead, key, document, ordered in rows:
            yield (key, epoch, 1, *empty) if dead else (key, epoch, 0, document, *ordered)

    def apply(
        self, told: EpochChanges, changelog: pa.Table | None, buried: Sequence[bytes] = ()
    ) -> None:
        """What an epoch changed: of each group its last change says how it is now; `changelog` is
        what was told. Groups that were buried without a word in it (state.emit_expired: false)
        go too. In the order of the groups, so that neighbours are written while they are there.
        """
        epoch = told.epoch
        last = told.last()
        touched = sorted({*last, *buried})
        self.connection.executemany(self._ending, ((epoch, key) for key in touched))
        places = [place for _, place in sorted(last.items()) if not told.changes[place].ends]
        alive = [told.changes[place] for place in places]
        gone = {*touched}.difference(change.key for change in alive)
        self.connection.executemany("DELETE FROM rows WHERE key = ?", ((key,) for key in gone))
        if changelog is None or not places:
            return
        self.connection.executemany(
            self._replacement,
            (
                (change.key, epoch, change.row, *ordered)
                for change, ordered in zip(
                    alive, self.shape.ordered(_taken(changelog, places)), strict=True
                )
            ),
        )

    def undo(self, changelog: pa.Table | None) -> None:
        """Turn the rows back to before these changes: of each group its first one says how it was.

        Versions begin at 0 here: who turns back keeps a single epoch.
        """
        if changelog is None:
            return
        first: dict[bytes, int] = {}
        for place, key in enumerate(self.shape.keys(changelog)):
            first.setdefault(key, place)
        self.connection.executemany("DELETE FROM rows WHERE key = ?", ((key,) for key in first))
        ops = listed(changelog["op"])
        there = {key: place for key, place in first.items() if ops[place] != "+I"}
        before = _taken(changelog, list(there.values()))
        rows = zip(
            there, as_bytes(self.shape.json(before)),
            self.shape.ordered(before), strict=True,
        )  # fmt: skip
        self.connection.executemany(
            self._replacement,
            ((key, 0, document, *ordered) for key, document, ordered in rows),
        )

    def forget(self, until: int) -> None:
        """What ended by an epoch: nobody can ask for one before it any more."""
        self.connection.execute("DELETE FROM ended WHERE until <= ?", [until])


def _taken(table: pa.Table, places: Sequence[int]) -> pa.Table:
    return table.take(pa.array(places, pa.int64()))
