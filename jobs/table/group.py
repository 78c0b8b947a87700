"""One group of a job's table: its state, its changes, and why its values are what they are.

accumulator ──► row count, sums and counts      multisets ──► what is behind MAX and MIN
changelog   ──► how the values came about       epoch rows ──► which source offsets did it
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.core.aggregates import Cell, Storage
from jobs.core.explain.explanation import StoredGroup, explain_group
from jobs.core.explain.extreme_changes import (
    MultisetEntry,
    MultisetHistory,
    explain_extremes,
)
from jobs.core.fold.program import Program
from jobs.core.fold.state import rank
from jobs.core.plan.bucket import bucket_of_group
from jobs.core.values.change import Row, Value
from jobs.table.files import LiveFile
from jobs.table.multisets import find_known_multisets
from jobs.table.parts import ACCUMULATORS, CHANGELOG, LATE, MULTISETS
from jobs.table.row_shape import RowShape
from jobs.table.version import Key, TableVersion
from schemas.table.epoch import EpochRow
from schemas.table.parquet_file import rows_in
from schemas.types.arrow_values import from_arrow, to_list, to_tuples
from schemas.types.sql_types import Kind

ReadFiles = dict[str, list[MultisetEntry]]  # by the name of a file
_READ_THREADS, _FILES_AT_ONCE = 4, 64
_SMALL_BYTES = 256 * 1024


class UnknownGroup(LookupError):
    """There is no such group, and the changelog does not know that there ever was one."""


class GroupReader:
    """Reads one group at one version of a table.

    `read_files` are the multiset rows of files that an earlier reader of the group has read.
    """

    def __init__(
        self,
        table: TableVersion,
        shape: RowShape,
        key: Key,
        buckets: int,
        read_files: ReadFiles | None = None,
    ) -> None:
        self._read_files = {} if read_files is None else read_files
        self._table = table
        self._shape = shape
        self._key = key
        self._bucket = bucket_of_group(shape.plan, key, buckets)
        self._program = Program(shape.plan)

    def explain(self) -> dict[str, Any]:
        """Return the explanation of the group as a document; raise UnknownGroup without one."""
        newest, rows = self._table.newest, self.epochs
        state, changes = self._newest_state(), self.changes()
        if state is None and not changes:
            named = json.dumps(self._shape.key(self._key), ensure_ascii=False)
            raise UnknownGroup(f"there is no group {named} at epoch {newest.epoch}, nor was one")
        by_number = {each.epoch: each for each in rows}
        row = None
        if state is not None and not state["tombstone"][0].as_py():
            row = self._shape.row(self._key, self._result(state))
        document = {
            "epoch": newest.epoch,
            "moved": newest.moved,
            "group": self._shape.key(self._key),
            "row": row,
            **explain_group(
                self._program,
                self.read_stored(state),
                write=self._shape.writers,
                changes=((each["epoch"], each["op"], each["row"]) for each in changes),
                rows=by_number,
                late=(row for table in self._rows(LATE) for row in table.to_pylist()),
            ),
            "history_complete": bool(rows) and self.complete(rows),
        }
        multisets = self.multiset_history(by_number)
        return document | {
            "why": explain_extremes(self._shape.plan, document, multisets, by_number)
        }

    @cached_property
    def epochs(self) -> list[EpochRow]:
        """The rows of all epochs of the table."""
        return self._table.epochs()

    def read_stored(self, state: pa.Table | None) -> StoredGroup:
        """Return what the state has of the group.

        A group that was never emitted has a tombstone and is withheld; one that HAVING hides has a
        tombstone and is not withheld; the tombstone of one that is gone says neither.
        """
        if state is None:
            return StoredGroup()
        gone, withheld = state["tombstone"][0].as_py(), state["withheld"][0].as_py()
        if gone and withheld is None:
            return StoredGroup()
        return StoredGroup(
            [_cell(state, cell) for cell in self._program.cells],
            state["epoch"][0].as_py(),
            withheld=bool(withheld),
            hidden=gone and not withheld,
            closed=bool(state["window_closed"][0].as_py()),
            written_ms=state["written_ms"][0].as_py(),
            entries=self.entries(),
        )

    def _result(self, state: pa.Table) -> Row:
        return to_tuples(state, self._shape.results)[0]

    def complete(self, rows: Sequence[EpochRow]) -> bool:
        """Return whether the changelog goes back to the job's first epoch."""
        counts = self._table.count_changelog(-1)
        return rows[0].kind == "start" and all(
            counts.get(row.epoch, 0) == row.counts.changelog_rows for row in rows
        )

    def changes(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the changelog rows of the group, oldest first; at most the newest `limit`."""
        found: list[dict[str, Any]] = []
        files = reversed(self._table.of_part(CHANGELOG))
        for rows in self._select(files, self._filter()):
            results = to_tuples(rows, self._shape.results)
            found += [
                {"op": op, "epoch": epoch, "seq": seq, "row": self._shape.row(self._key, result)}
                for op, epoch, seq, result in zip(
                    to_list(rows["op"]),
                    to_list(rows["epoch"]),
                    to_list(rows["seq"]),
                    results,
                    strict=True,
                )
            ]
            if limit is not None and len(found) > 2 * limit:
                found.sort(key=_position)
                del found[:-limit]
        found.sort(key=_position)
        return found if limit is None else found[-limit:]

    # --- state ----------------------------------------------------------------------------------

    def _newest_state(self) -> pa.Table | None:
        """Return the newest accumulator of the group, a tombstone too, as a table of one row."""
        newest: pa.Table | None = None
        for table in self._state(ACCUMULATORS):
            for index in range(table.num_rows):
                row = table.slice(index, 1)
                if newest is None or row["epoch"][0].as_py() >= newest["epoch"][0].as_py():
                    newest = row
        return newest

    def _state(self, part: str) -> list[pa.Table]:
        return self._rows(part, pc.field("bucket") == self._bucket)

    def _rows(self, part: str, wanted: pc.Expression | None = None) -> list[pa.Table]:
        """Return the rows of the group in the files of a part, oldest epochs first."""
        mine = self._filter() if wanted is None else self._where(wanted)
        found = self._select(self._table.of_part(part), mine)
        return [table for table in found if table.num_rows]

    def _select(
        self, files: Iterable[LiveFile], wanted: pc.Expression | None
    ) -> Iterator[pa.Table]:
        """Yield the group's rows, in the order of the files."""
        for small, run in groupby(files, lambda file: file.size <= _SMALL_BYTES):
            if not small:
                for file in run:
                    yield self._mine(rows_in(self._table.root / file.path, filters=wanted))
                continue
            for together in self._read_whole(file.path for file in run):
                tables = (table for _, table in together)
                # Files of older versions may have other columns.
                for _, same in groupby(tables, lambda table: table.schema):
                    rows = pa.concat_tables(same)
                    yield self._mine(rows if wanted is None else rows.filter(wanted))

    def _read_whole(self, names: Iterable[str]) -> Iterator[list[tuple[str, pa.Table]]]:
        """Yield small files with all of their rows, some files at once.

        The caller filters their rows together: a filter of each file takes far longer.
        """

        def read(name: str) -> tuple[str, pa.Table]:
            return name, rows_in(self._table.root / name, threads=False)

        left = iter(names)
        with ThreadPoolExecutor(_READ_THREADS) as pool:
            while together := list(islice(left, _FILES_AT_ONCE)):
                yield list(pool.map(read, together))

    def _where(self, wanted: pc.Expression) -> pc.Expression:
        mine = self._filter()
        return wanted if mine is None else wanted & mine

    def _filter(self) -> pc.Expression | None:
        """Return the condition that Parquet's statistics can test; `_mine` compares the rest."""
        found: pc.Expression | None = None
        for (name, kind), value in zip(self._shape.group, self._key, strict=True):
            if value is None:
                condition = pc.field(name).is_null()
            elif kind.integer or kind.kind in (Kind.STRING, Kind.BOOLEAN):
                condition = pc.field(name) == value
            else:
                continue
            found = condition if found is None else found & condition
        return found

    def _mine(self, table: pa.Table) -> pa.Table:
        wanted = self._shape.key_bytes(self._key)
        keys = to_tuples(table, self._shape.group)
        marks = [self._shape.key_bytes(key) == wanted for key in keys]
        return table.filter(pa.array(marks, pa.bool_()))

    def multiset_history(self, rows: Mapping[int, EpochRow]) -> MultisetHistory:
        """Return the group's multisets over the epochs; `rows` are all epoch rows."""
        live = self._table.of_part(MULTISETS)
        known = find_known_multisets(self._table.root, live, rows.values())
        return MultisetHistory([*self._entry_rows, *self._read_merged(known.merged)], known.since)

    def _read_merged(self, names: Sequence[str]) -> list[MultisetEntry]:
        """Return the rows that epochs wrote before merges; thousands of small files."""
        for name in self._read_files.keys() - set(names):
            del self._read_files[name]
        missing = [name for name in names if name not in self._read_files]
        for together in self._read_whole(missing):
            self._keep_entries(together)
        return [entry for name in names for entry in self._read_files[name]]

    def _keep_entries(self, files: Sequence[tuple[str, pa.Table]]) -> None:
        """Keep the group's entries of each file."""
        numbered = [
            table.append_column("file", pa.repeat(number, table.num_rows))
            for number, (_, table) in enumerate(files)
        ]
        wanted = self._where(pc.field("bucket") == self._bucket)
        rows = self._mine(pa.concat_tables(numbered).filter(wanted))
        found: list[list[MultisetEntry]] = [[] for _ in files]
        for number, entry in zip(to_list(rows["file"]), self._entries_of(rows), strict=True):
            found[number].append(entry)
        self._read_files.update(zip((name for name, _ in files), found, strict=True))

    @cached_property
    def _entry_rows(self) -> list[MultisetEntry]:
        """Every row of the group's multisets that merges have left."""
        tables = self._state(MULTISETS) if self._program.multisets else ()
        return [entry for table in tables for entry in self._entries_of(table)]

    def _entries_of(self, table: pa.Table) -> list[MultisetEntry]:
        arguments = self._shape.plan.arguments
        indexes = {arguments[index].name: index for index in self._program.multisets}
        columns = {
            name: from_arrow(table[f"value_{name}"], arguments[index].type)
            for name, index in indexes.items()
        }
        rows = zip(
            to_list(table["epoch"]),
            to_list(table["argument"]),
            to_list(table["multiplicity"]),
            strict=True,
        )
        return [
            MultisetEntry(indexes[name], columns[name][index], epoch, count)
            for index, (epoch, name, count) in enumerate(rows)
        ]

    def entries(self) -> list[tuple[int, Value, int]]:
        """Return argument, value and multiplicity of the entries, in order."""
        newest: dict[tuple[int, bytes], MultisetEntry] = {}
        for entry in self._entry_rows:
            name = (entry.argument, repr(entry.value).encode())
            if name not in newest or entry.epoch >= newest[name].epoch:
                newest[name] = entry
        found = [(e.argument, e.value, e.multiplicity) for e in newest.values() if e.multiplicity]
        return sorted(found, key=lambda entry: (entry[0], rank(entry[1])))


def _position(change: dict[str, Any]) -> tuple[int, int]:
    return change["epoch"], change["seq"]


def _cell(state: pa.Table, cell: Cell) -> int:
    column = state[cell.name]
    if cell.storage is Storage.DECIMAL:
        return int(from_arrow(column, cell.decimal_type)[0])
    return int(column[0].as_py())
