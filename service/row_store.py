"""The row store: a job's results as rows of SQLite, each version with the epochs it was true in.

    accumulators ──fill──► rows of one epoch
    changelog    ──apply─► old versions end, new ones begin, in one transaction an epoch
                 ──undo──► the rows of an epoch before (a store of one epoch only)

SQLite, because a lookup by key and a page in any order are what B-trees are for, it is in every
Python, its readers never wait for its writer, and a store that is lost is filled again from the
table. Every column is kept as bytes that sort as its values do (jobs.core.order_key), so one rule
holds for comparing and ordering all types, NULL and NaN and 38 digits of a DECIMAL among them. The
row itself is kept as the JSON that is answered.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from service.json_columns import as_bytes
from service.recent import EpochChanges
from service.row_shape import RowShape
from service.table import ACCUMULATORS, Table

STILL = 2**63 - 1  # the end of a version that is true now
_SLICE_ROWS = 20_000


class RowStore:
    """The rows behind one connection; the caller holds transactions and threads apart."""

    def __init__(self, connection: sqlite3.Connection, shape: RowShape) -> None:
        self.connection = connection
        self.shape = shape
        self._columns = [f"c{index}" for index in range(len(shape.columns))]
        marks = ", ".join("?" for _ in range(len(self._columns) + 4))
        self._insertion = f"INSERT INTO rows VALUES ({marks})"  # noqa: S608 - columns have numbers

    def create(self) -> None:
        columns = "".join(f", {name} BLOB" for name in self._columns)
        for statement in (
            # One B-tree: an epoch ends a version where it lies, and puts the next one beside it.
            "CREATE TABLE IF NOT EXISTS rows (key BLOB NOT NULL, since INTEGER NOT NULL, "
            f"until INTEGER NOT NULL, document BLOB NOT NULL{columns}, "
            "PRIMARY KEY (key, since)) WITHOUT ROWID",
            f"CREATE INDEX IF NOT EXISTS ended ON rows (until) WHERE until < {STILL}",
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
        self.connection.execute("DELETE FROM rows")
        self.connection.execute(
            f"INSERT INTO rows SELECT key, ?, {STILL}, document, {names} FROM fresh "  # noqa: S608
            "WHERE NOT tombstone ORDER BY key",
            [epoch],
        )
        self.connection.execute("DROP TABLE fresh")

    def _upserts(self, state: pa.Table) -> Iterator[tuple[Any, ...]]:
        empty = (b"",) * (len(self._columns) + 1)
        rows = zip(
            state["epoch"].to_pylist(), state["tombstone"].to_pylist(), self.shape.keys(state),
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
        gone = sorted({*last, *buried})
        self.connection.executemany(
            f"UPDATE rows SET until = ? WHERE key = ? AND until = {STILL}",  # noqa: S608
            ((epoch, key) for key in gone),
        )
        places = [place for _, place in sorted(last.items()) if not told.changes[place].ends]
        if changelog is None or not places:
            return
        alive = (told.changes[place] for place in places)
        self.connection.executemany(
            self._insertion,
            (
                (change.key, epoch, STILL, change.row, *ordered)
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
        ops = changelog["op"].to_pylist()
        there = {key: place for key, place in first.items() if ops[place] != "+I"}
        before = _taken(changelog, list(there.values()))
        rows = zip(
            there, self.shape.json(before).cast(pa.large_binary()).to_pylist(),
            self.shape.ordered(before), strict=True,
        )  # fmt: skip
        self.connection.executemany(
            self._insertion,
            ((key, 0, STILL, document, *ordered) for key, document, ordered in rows),
        )

    def forget(self, until: int) -> None:
        """Versions that ended by an epoch: nobody can ask for one before it any more."""
        self.connection.execute("DELETE FROM rows WHERE until <= ?", [until])


def _taken(table: pa.Table, places: Sequence[int]) -> pa.Table:
    return table.take(pa.array(places, pa.int64()))
