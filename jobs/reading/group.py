"""One group of a job's table: its state, its changes, and why its values are what they are.

accumulator ──► row count, sums and counts      multisets ──► what is behind MAX and MIN
changelog   ──► how the values came about       epoch rows ──► which source offsets did it
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec
import pyarrow as pa

from jobs.core.aggregates import Cell, Storage
from jobs.core.explain.explanation import (
    StoredGroup,
    epoch_offsets,
    list_arguments,
    list_epochs,
    read_late,
)
from jobs.core.explain.extreme_changes import MultisetEntry, MultisetHistory, explain_extremes
from jobs.core.fold.program import Program
from jobs.core.fold.state import rank
from jobs.core.plan.bucket import bucket_of_group
from jobs.core.values.change import Row, Value
from jobs.reading.files import LiveFile, open_table
from jobs.reading.joined_rows import JoinedGroup, find_tree
from jobs.reading.multisets import find_known_multisets
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, LATE, MULTISETS
from jobs.reading.row_shape import RowShape
from jobs.reading.scan import Wanted, scan_files, some_at_once
from jobs.reading.version import Key, TableVersion
from schemas.directory.paths import JobDirectory
from schemas.documents.explanation import Change, Explained, JoinedRow, SideRow
from schemas.table.epoch import EpochRow
from schemas.table.view_path import split_root
from schemas.types.arrow_values import from_arrow, to_list, to_tuples
from schemas.types.sql_types import Kind

# The group's entries that an epoch wrote, by the names of its files that are no longer live.
ReadFiles = dict[tuple[str, ...], list[MultisetEntry]]


class UnknownGroup(LookupError):
    """There is no such group, and the changelog does not know that there ever was one."""


class GroupReader:
    """Reads one group at one version of a table.

    `read_files` are the multiset rows that an earlier reader of the group has read. With `paths`,
    an explanation has the joined rows behind the group.
    """

    def __init__(
        self,
        table: TableVersion,
        shape: RowShape,
        key: Key,
        buckets: int,
        read_files: ReadFiles | None = None,
        paths: JobDirectory | None = None,
    ) -> None:
        self._read_files = {} if read_files is None else read_files
        self._paths = paths
        self._table = table
        self._shape = shape
        self._key = key
        self._bucket = bucket_of_group(shape.plan, key, buckets)
        self._program = Program(shape.plan)
        self._searchable = searchable_values(shape, key)

    def explain(self, job: str) -> Explained:
        """Return the explanation of the group of a job; raise UnknownGroup without one."""
        newest, rows = self._table.newest, self.epochs
        state, changes = self._newest_state(), self.changes()
        if state is None and not changes:
            named = json.dumps(self._shape.key(self._key), ensure_ascii=False)
            raise UnknownGroup(f"there is no group {named} at epoch {newest.epoch}, nor was one")
        by_number = {each.epoch: each for each in rows}
        row = None
        if state is not None and not state["tombstone"][0].as_py():
            row = self._shape.row(self._key, self._result(state))
        stored = self.read_stored(state)
        late = (row for table in self._rows(LATE, self._searchable) for row in table.to_pylist())
        explained = Explained(
            job=job,
            epoch=newest.epoch,
            moved=newest.moved,
            group=self._shape.key(self._key),
            row=row,
            row_count=None if stored.cells is None else stored.cells[0],
            changed=stored.changed,
            withheld=stored.withheld,
            hidden=stored.hidden,
            closed=stored.closed,
            late=[read_late(each) for each in late],
            written_ms=stored.written_ms,
            arguments=list_arguments(self._program, stored, self._shape.writers),
            epochs=list_epochs(changes, by_number),
            history_complete=bool(rows) and self.complete(rows),
        )
        why = explain_extremes(self._shape.plan, explained, self.multisets, by_number)
        return self._add_joined(msgspec.structs.replace(explained, why=why), by_number)

    def _add_joined(self, explained: Explained, epochs: Mapping[int, EpochRow]) -> Explained:
        """Return the explanation with the joined rows, if the query has joins."""
        tree = None if self._paths is None else find_tree(self._paths, self._shape.plan)
        if tree is None or explained.row_count is None:
            return explained
        root, view = split_root(self._table.root)
        table = TableVersion(root, open_table(root, self._table.version)) if view else self._table
        joined = JoinedGroup(table, tree, self._shape.plan, self._key).read(self._shape.writers)
        rows = [
            JoinedRow(
                each.weight,
                [SideRow(row, epoch, epoch_offsets(epochs, epoch)) for row, epoch in each.rows],
            )
            for each in joined
        ]
        complete = sum(each.weight for each in joined) == explained.row_count
        return msgspec.structs.replace(explained, joined=rows, joined_complete=complete)

    @cached_property
    def epochs(self) -> list[EpochRow]:
        """The rows of all epochs of the table."""
        return self._table.epochs()

    def read_stored(self, state: pa.Table | None) -> StoredGroup:
        """Return what the state has of the group.

        A group that was never emitted has a tombstone and is withheld; one below zero, or that
        HAVING hides, has a tombstone and is not withheld; the tombstone of one that is gone says
        neither.
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

    def changes(self, limit: int | None = None) -> list[Change]:
        """Return the changelog rows of the group, oldest first; at most the newest `limit`."""
        found: list[Change] = []
        for files in some_at_once(_newest_first(self._table.of_part(CHANGELOG))):
            if limit is not None and len(found) == limit and _is_older(files[0], found[0]):
                break
            for rows in self._scan([file.path for file in files], self._searchable):
                found += self._changes_of(rows)
            found.sort(key=_position)
            found = found if limit is None else found[-limit:]
        return found

    def _changes_of(self, rows: pa.Table) -> Iterator[Change]:
        ops, epochs, seqs = (to_list(rows[name]) for name in ("op", "epoch", "seq"))
        results = to_tuples(rows, self._shape.results)
        for op, epoch, seq, result in zip(ops, epochs, seqs, results, strict=True):
            yield Change(op, epoch, seq, self._shape.row(self._key, result))

    # --- state ----------------------------------------------------------------------------------

    def _newest_state(self) -> pa.Table | None:
        """Return the newest accumulator of the group, a tombstone too, as a table of one row."""
        newest, epoch = None, -1
        for files in some_at_once(_newest_first(self._table.of_part(ACCUMULATORS))):
            if epoch > files[0].epoch_max:
                break
            for rows in self._scan([file.path for file in files], self._of_bucket()):
                epochs = to_list(rows["epoch"])
                if epochs and max(epochs) >= epoch:
                    epoch = max(epochs)
                    newest = rows.slice(epochs.index(epoch), 1)
        return newest

    def _rows(self, part: str, wanted: Wanted) -> Iterator[pa.Table]:
        """Yield the rows of the group in the live files of a part, oldest epochs first."""
        for files in some_at_once(self._table.of_part(part)):
            yield from self._scan([file.path for file in files], wanted)

    def _scan(self, names: Sequence[str], wanted: Wanted) -> Iterator[pa.Table]:
        """Yield the rows of the group in some files, in the order of the files."""
        for rows in scan_files(self._table.root, names, wanted):
            if rows.num_rows:
                yield self._mine(rows)

    def _of_bucket(self) -> Wanted:
        """Return what rows of the state have, which have buckets."""
        return {"bucket": self._bucket, **self._searchable}

    def _mine(self, table: pa.Table) -> pa.Table:
        wanted = self._shape.key_bytes(self._key)
        keys = to_tuples(table, self._shape.group)
        marks = [self._shape.key_bytes(key) == wanted for key in keys]
        return table.filter(pa.array(marks, pa.bool_()))

    @cached_property
    def multisets(self) -> MultisetHistory:
        """The group's multisets over the epochs."""
        live = self._table.of_part(MULTISETS)
        known = find_known_multisets(self._table.root, live, self.epochs)
        return MultisetHistory([*self._entry_rows, *self._read_merged(known.merged)], known.since)

    def _read_merged(self, merged: Mapping[int, tuple[str, ...]]) -> list[MultisetEntry]:
        """Return the rows that epochs wrote before merges; thousands of small files."""
        for gone in self._read_files.keys() - set(merged.values()):
            del self._read_files[gone]
        missing = {epoch: n for epoch, n in merged.items() if n not in self._read_files}
        for epochs in some_at_once(missing):
            found: dict[int, list[MultisetEntry]] = {epoch: [] for epoch in epochs}
            names = [name for epoch in epochs for name in missing[epoch]]
            for rows in self._scan(names, self._of_bucket()):
                for entry in self._entries_of(rows):
                    found[entry.epoch].append(entry)
            self._read_files.update((missing[epoch], found[epoch]) for epoch in epochs)
        return [entry for names in merged.values() for entry in self._read_files[names]]

    @cached_property
    def _entry_rows(self) -> list[MultisetEntry]:
        """Every row of the group's multisets that merges have left."""
        tables = self._rows(MULTISETS, self._of_bucket()) if self._program.multisets else ()
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


def searchable_values(shape: RowShape, key: Key) -> Wanted:
    """Return the values of a key that files can be searched for; rows may differ in others."""
    return {
        name: value
        for (name, kind), value in zip(shape.group, key, strict=True)
        if value is None or kind.integer or kind.kind in (Kind.STRING, Kind.BOOLEAN)
    }


def _newest_first(files: Iterable[LiveFile]) -> list[LiveFile]:
    return sorted(files, key=lambda file: file.epoch_max, reverse=True)


def _is_older(file: LiveFile, change: Change) -> bool:
    """Return whether a file has only epochs before that of a change."""
    return file.epoch_max < change.epoch


def _position(change: Change) -> tuple[int, int]:
    return change.epoch, change.seq


def _cell(state: pa.Table, cell: Cell) -> int:
    column = state[cell.name]
    if cell.storage is Storage.DECIMAL:
        return int(from_arrow(column, cell.decimal_type)[0])
    return int(column[0].as_py())
