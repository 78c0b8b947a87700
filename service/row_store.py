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
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import pyarrow as pa

from jobs.core.change import Row
from service.row_shape import RowShape
from service.table import ACCUMULATORS, Key, Table, group_columns, result_columns, rows_of

STILL = 2**63 - 1  # the end of a version that is true now
_SLICE_ROWS = 20_000
_ENDING, _BEGINNING = ("-D",), ("+I", "+U")

_encode = msgspec.json.Encoder().encode


class RowStore:
    """The rows behind one connection; the caller holds transactions and threads apart."""

    def __init__(self, connection: sqlite3.Connection, shape: RowShape) -> None:
        self.connection = connection
        self.shape = shape
        self._columns = [f"c{index}" for index in range(len(shape.columns))]
        self._group = group_columns(shape.plan)
        self._results = result_columns(shape.plan)

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
                    f"INSERT INTO fresh VALUES ({marks}) ON CONFLICT (key) DO UPDATE SET "
                    "epoch = excluded.epoch, tombstone = excluded.tombstone, "
                    "document = excluded.document, "
                    + ", ".join(f"{name} = excluded.{name}" for name in self._columns)
                    + " WHERE excluded.epoch >= epoch",
                    self._upserts(state),
                )
        self.connection.execute("DELETE FROM rows")
        self.connection.execute(
            f"INSERT INTO rows SELECT key, ?, {STILL}, document, {names} FROM fresh "
            "WHERE NOT tombstone ORDER BY key",
            [epoch],
        )
        self.connection.execute("DROP TABLE fresh")

    def _upserts(self, state: pa.Table) -> Iterator[tuple[Any, ...]]:
        rows = zip(
            state["epoch"].to_pylist(),
            state["tombstone"].to_pylist(),
            rows_of(state, self._group),
            rows_of(state, self._results),
            strict=True,
        )
        for epoch, dead, key, result in rows:
            if dead:
                empty = (b"",) * (len(self._columns) + 1)
                yield (self.shape.key_bytes(key), epoch, 1, *empty)
            else:
                yield (self.shape.key_bytes(key), epoch, 0, *self._row(key, result))

    def apply(
        self,
        epoch: int,
        changelog: pa.Table | None,
        buried: pa.Table | None = None,
        written: Mapping[bytes, bytes | None] = MappingProxyType({}),
    ) -> None:
        """What an epoch changed: of each group the last of its rows says how it is now. Groups
        that were buried without a word in the changelog (state.emit_expired: false) go too.
        `written` are rows that are JSON already, by group: those that the changelog ends with."""
        last: dict[Key, Row | None] = {}
        if buried is not None:
            last = dict.fromkeys(rows_of(buried, self._group))
        for op, key, result in self._changes(changelog):
            if op in _BEGINNING:
                last[key] = result
            elif op in _ENDING:
                last[key] = None
        keys = [(epoch, self.shape.key_bytes(key)) for key in last]
        self.connection.executemany(
            f"UPDATE rows SET until = ? WHERE key = ? AND until = {STILL}", keys
        )
        alive = {key: result for key, result in last.items() if result is not None}
        self._insert(epoch, alive, written)

    def keys(self, table: pa.Table) -> list[bytes]:
        """The groups of a table's rows, as lookups name them."""
        return [self.shape.key_bytes(key) for key in rows_of(table, self._group)]

    def undo(self, changelog: pa.Table | None) -> None:
        """Turn the rows back to before these changes: of each group its first one says how it was.

        Versions begin at 0 here: who turns back keeps a single epoch.
        """
        first: dict[Key, Row | None] = {}
        for op, key, result in self._changes(changelog):
            if key not in first:
                first[key] = None if op == "+I" else result
        self.connection.executemany(
            "DELETE FROM rows WHERE key = ?", [(self.shape.key_bytes(key),) for key in first]
        )
        self._insert(0, {key: result for key, result in first.items() if result is not None})

    def forget(self, until: int) -> None:
        """Versions that ended by an epoch: nobody can ask for one before it any more."""
        self.connection.execute("DELETE FROM rows WHERE until <= ?", [until])

    def _changes(self, changelog: pa.Table | None) -> Iterator[tuple[str, Key, Row]]:
        if changelog is None:
            return
        for start in range(0, changelog.num_rows, _SLICE_ROWS):
            piece = changelog.slice(start, _SLICE_ROWS)
            yield from zip(
                piece["op"].to_pylist(),
                rows_of(piece, self._group),
                rows_of(piece, self._results),
                strict=True,
            )

    def _insert(
        self,
        since: int,
        rows: dict[Key, Row],
        written: Mapping[bytes, bytes | None] = MappingProxyType({}),
    ) -> None:
        marks = ", ".join("?" for _ in range(len(self._columns) + 4))
        named = ((self.shape.key_bytes(key), key, result) for key, result in rows.items())
        self.connection.executemany(
            f"INSERT INTO rows VALUES ({marks})",
            (
                (name, since, STILL, *self._row(key, result, written.get(name)))
                for name, key, result in named
            ),
        )

    def _row(self, key: Key, result: Row, document: bytes | None = None) -> tuple[bytes, ...]:
        if document is None:
            document = _encode(self.shape.row(key, result))
        return (document, *self.shape.ordered(key, result))
