"""A job's table written epoch by epoch, without Spark, with its live rows beside it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from jobs.core.fold.program import Program
from jobs.core.fold.rules import Rules
from jobs.core.fold.state import Counts, Group, Key
from jobs.core.plan.bucket import bucket_of
from jobs.core.plan.tree import Plan
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Op, Row, Value
from jobs.edge.process.job_directory import JobDirectory
from jobs.edge.table.compaction import Merge, merge_files
from jobs.edge.table.delta_epochs import EpochTable
from jobs.edge.table.epoch_files import TableLayout
from jobs.edge.table.file_writer import AddedFile, by_part, file_name, write_file
from jobs.edge.table.reading import TableReader
from jobs.reading.parts import ACCUMULATORS, CHANGELOG, MULTISETS
from schemas.spec.file import load_spec, spec_text
from schemas.spec.job import JobSpec
from schemas.types.sql_types import INT, STRING
from tests.support.epoch_rows import epoch_row
from tests.support.tables.folded_table import COLUMNS, QUERY, FoldedTable

BUCKETS = 4
NAMES: list[Value] = ["a", "b", "", "ü", None, "z"]
Live = dict[Key, tuple[int, ...]]  # of each group the values of its rows


class WrittenTable:
    """A table written epoch by epoch; `history` has the live groups after each."""

    def __init__(
        self,
        data: Path,
        query: str,
        columns: Mapping[str, object],
        name: str = "items",
        topic: str = "t",
    ) -> None:
        self.place = JobDirectory(data, name)
        self.topic = topic
        spec = load_spec(
            {
                "name": name,
                "source": {"topic": topic},
                "columns": {name: str(kind) for name, kind in columns.items()},
                "query": query,
                "state": {"buckets": BUCKETS},
            }
        )
        self.plan: Plan = parse_query(spec.query, spec.columns)
        self.layout = TableLayout(Program(self.plan))
        self.place.home.mkdir(parents=True, exist_ok=True)
        self.place.spec.write_text(spec_text(spec))
        self.table = EpochTable.create(self.place.table, self.layout)
        self.history: list[Live] = [{}]
        self.kind = "data"
        self._commit("start", [], 0)

    def epoch(self, live: Live, **counters: Any) -> None:
        """Commit an epoch after which exactly these groups are live."""
        before, number = self.history[-1], len(self.history)
        types = [kind for _, kind in self.layout.group]
        keys = sorted(
            (key for key in {**before, **live} if before.get(key) != live.get(key)),
            key=lambda key: (bucket_of(key, types, BUCKETS), repr(key)),
        )
        buckets = [bucket_of(key, types, BUCKETS) for key in keys]
        changelog = [row for key in keys for row in changes(key, before.get(key), live.get(key))]
        upserts = [(key, group(live[key]) if key in live else None) for key in keys]
        multisets: list[tuple[int, Key, Counts]] = [
            (
                0,
                key,
                {
                    value: live.get(key, ()).count(value)
                    for value in sorted({*before.get(key, ()), *live.get(key, ())})
                },
            )
            for key in keys
        ]
        seqs = list(range(len(changelog)))
        layout = self.layout
        tables = {
            CHANGELOG: layout.changelog_table(number, seqs, changelog),
            ACCUMULATORS: layout.accumulators_table(number, buckets, upserts),
            MULTISETS: layout.multisets_table(number, buckets, multisets),
        }
        uuid = uuid4().hex
        files = [
            write_file(self.place.table, file_name(part, number, uuid, "w"), table)
            for part, table in tables.items()
            if table.num_rows
        ]
        self.history.append(dict(live))
        self._commit(self.kind, files, len(changelog), **counters)

    def continue_with(self, spec: JobSpec) -> None:
        """Continue after an evolve to another query with as many results."""
        self.plan = parse_query(spec.query, spec.columns)
        self.layout = TableLayout(Program(self.plan))
        self.table = EpochTable.open(self.place.table, self.layout)
        self.history.append(self.history[-1])

    def merge(self, part: str, tier: int) -> None:
        """Compact all files of a part into one."""
        files = tuple(file for file in self.table.live_files() if file.part == part)
        uuid = uuid4().hex
        added = merge_files(self.plan, self.place.table, Merge(part, tier, files), uuid)
        self.table.commit(added, files, uuid=uuid, what="merge")
        for file in files:  # as the sweep does later
            (self.place.table / file.path).unlink()

    def forget(self, until: int) -> None:
        """Remove the changelog up to an epoch, as retention does."""
        gone = [f for f in self.table.live_files() if f.part == CHANGELOG and f.epoch_max <= until]
        self.table.commit([], gone, uuid=uuid4().hex, what="retention")

    def reader(self) -> TableReader:
        return TableReader.open(self.place)

    def _commit(
        self, kind: str, files: list[AddedFile], changelog_rows: int, **counters: Any
    ) -> None:
        number = len(self.history) - 1
        self.table.commit_epoch(
            epoch_row(
                number,
                self.plan,
                kind=kind,
                committed_at=number,
                offsets={self.topic: {"0": 10 * number}},
                counters={"changelog_rows": changelog_rows, **counters},
                files=by_part(files),
            ),
            files,
        )


def result(values: tuple[int, ...]) -> Row:
    return (sum(values), max(values))


def group(values: tuple[int, ...]) -> Group:
    return Group((len(values), sum(values), len(values)), result(values))


def changes(
    key: Key, old: tuple[int, ...] | None, new: tuple[int, ...] | None
) -> Iterator[tuple[Op, Key, Row]]:
    if old is None and new is not None:
        yield Op.INSERT, key, result(new)
    elif old is not None and new is None:
        yield Op.DELETE, key, result(old)
    elif old is not None and new is not None and result(old) != result(new):
        yield Op.UPDATE_BEFORE, key, result(old)
        yield Op.UPDATE_AFTER, key, result(new)


def timed(data: Path, rules: Rules) -> tuple[FoldedTable, TableReader]:
    """Return a table of real folds under these rules, and its reader."""
    place = JobDirectory(data, "items")
    document = {
        "name": "items",
        "source": {"topic": "t"},
        "columns": {name: str(kind) for name, kind in COLUMNS.items()},
        "query": QUERY,
        "state": {"buckets": BUCKETS},
    }
    place.home.mkdir(parents=True)
    place.spec.write_text(spec_text(load_spec(document)))
    made = FoldedTable(place.own_table, buckets=BUCKETS, rules=rules)
    return made, TableReader.open(place)


def write_random_history(directory: Path) -> WrittenTable:
    """Write twelve epochs in which groups come, change, stay as they are, go and come again."""
    query = "SELECT name, SUM(v) AS total, MAX(v) AS top FROM t GROUP BY name"
    table = WrittenTable(directory, query, {"name": STRING, "v": INT})
    chance = random.Random(11)
    for _ in range(12):
        live = dict(table.history[-1])
        for name in chance.sample(NAMES, 3):
            count = chance.randint(0, 3)
            live.pop((name,), None)
            if count:
                live[(name,)] = tuple(chance.randint(-9, 9) for _ in range(count))
        table.epoch(live)
    return table
