"""Compaction: whatever is merged in whatever legal order, the state stays what it was.

random epochs ──► folds ──► files ──merges of random tiers──► files
                    │                                          │ oldest first
               MemoryState            =                   MemoryState
"""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.fold.rules import DEFAULT_RULES, Rules
from jobs.core.fold.state import Clock, MemoryState
from jobs.core.values.change import Op
from jobs.edge.state.bucket_states import StateFiles
from jobs.edge.table import compaction
from jobs.edge.table.compaction import BASE_TIER, Merge, due_merge, merge_files
from jobs.edge.table.epoch_files import Reject
from jobs.edge.table.file_writer import file_name, write_file
from jobs.reading.files import LiveFile
from jobs.reading.parts import (
    ACCUMULATORS,
    CHANGELOG,
    EPOCHS,
    GROUP_STATE,
    MULTISETS,
    PARTS,
    QUARANTINE,
    STATE,
    TIMERS,
)
from schemas import limits
from schemas.limits import COMPACTED_BYTES_MAX, COMPACTION_FAN_IN, LIVE_FILES_MAX, MERGE_FILES_MAX
from schemas.types.arrow_values import to_tuples
from schemas.types.sql_types import BIGINT, DOUBLE, STRING, decimal
from tests.support.examples import examples
from tests.support.tables.folded_table import FoldedTable, Row, a_plan, insert

TIMELESS = (ACCUMULATORS, MULTISETS)


def live(made: FoldedTable, part: str) -> list[LiveFile]:
    return [file for file in made.table.live_files() if file.part == part]


def read(made: FoldedTable, part: str) -> list[tuple[LiveFile, pa.Table]]:
    return [(file, pq.ParquetFile(made.root / file.path).read()) for file in live(made, part)]


def state_in_files(made: FoldedTable) -> MemoryState:
    """All upserts of the table, oldest file first."""
    state = MemoryState()
    for part in STATE:
        for _, table in read(made, part):
            state.apply(made.layout.read_upserts(**{part: table}))
    return state


def contents(state: MemoryState) -> tuple[Any, ...]:
    multisets = {
        place: dict(multiset.counts)
        for place, multiset in vars(state)["_multisets"].items()
        if multiset.counts
    }
    timers = {timer for clock in Clock for timer in state.due(clock, 2**63)}
    return vars(state)["_groups"], multisets, set(state.withheld()), timers


def changelog_set(made: FoldedTable) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for _, table in read(made, CHANGELOG):
        keys, results = made.layout.keys(table), to_tuples(table, made.layout.results)
        ops, epochs = table["op"].to_pylist(), table["epoch"].to_pylist()
        seqs = table["seq"].to_pylist()
        found.update(map(repr, zip(epochs, seqs, ops, keys, results, strict=True)))
    return found


def dead(part: str, table: pa.Table) -> list[dict[str, Any]]:
    """The rows that delete what older rows say."""
    rows = table.to_pylist()
    if part == MULTISETS:
        return [row for row in rows if row["multiplicity"] == 0]
    return [row for row in rows if row["tombstone"] and row.get("withheld") is None]


def require_sound(made: FoldedTable) -> None:
    """Everything that must hold of a table at any time."""
    assert contents(state_in_files(made)) == contents(made.state)
    assert changelog_set(made) == Counter(
        repr((epoch, seq, str(op), key, row)) for epoch, seq, (op, key, row) in made.changelog
    )
    for part in STATE:
        for file, table in read(made, part):
            buckets = table["bucket"].to_numpy()
            assert (np.diff(buckets) >= 0).all(), f"{file.path} is not sorted by bucket"
            assert file.tier != BASE_TIER or not dead(part, table), "it is in the base"
    for file, table in read(made, CHANGELOG):
        places = list(zip(table["epoch"].to_pylist(), table["seq"].to_pylist(), strict=True))
        assert places == sorted(places), f"{file.path} is not in order"


NAMES = st.sampled_from(["a", "b", "", "ü", None, "a\0"])
NUMBERS = st.sampled_from([None, -(2**62), -1, 0, 1, 2, 2**62])
ROWS: dict[str, tuple[str, dict[str, Any], st.SearchStrategy[Row]]] = {
    "plain": (
        "SELECT name, SUM(v) AS total, MAX(v) AS top, COUNT(*) AS n FROM t GROUP BY name",
        {"name": STRING, "v": BIGINT},
        st.tuples(st.tuples(NAMES), st.tuples(NUMBERS), st.sampled_from([1, 1, -1])),
    ),
    "no groups, two multisets": (
        "SELECT MAX(v) AS top, MIN(w) AS low FROM t",
        {"v": BIGINT, "w": STRING},
        st.tuples(st.just(()), st.tuples(NUMBERS, NAMES), st.sampled_from([1, 1, -1])),
    ),
    "values of two columns": (
        "SELECT name, FIRST_VALUE(w ORDER BY v) AS f, ARRAY_AGG(v IGNORE NULLS) AS a, "
        "COUNT(DISTINCT w) AS n FROM t GROUP BY name",
        {"name": STRING, "v": BIGINT, "w": STRING},
        st.tuples(NAMES, NUMBERS, NAMES, st.sampled_from([1, 1, -1])).map(
            lambda row: (
                (row[0],),
                (None if row[2] is None else (row[1], row[2]), row[1], row[2]),
                row[3],
            )
        ),
    ),
    "floats and decimals": (
        "SELECT f, d, MIN(f) AS low, SUM(f) AS total FROM t GROUP BY f, d",
        {"f": DOUBLE, "d": decimal(38, 2)},
        st.sampled_from([math.nan, 0.0, -1.5, None, math.inf]).flatmap(
            lambda f: st.tuples(
                st.tuples(st.just(f), st.sampled_from([None, 10**38 - 1, -1])),
                st.just((f,)),
                st.sampled_from([1, 1, -1]),
            )
        ),
    ),
}


RULES = [Rules(ttl_ms=10), Rules(withhold=True), Rules(ttl_ms=10, withhold=True)]


@pytest.mark.parametrize("kind", ROWS)
@examples(10)
@given(data=st.data())
def test_any_legal_order_of_merges_leaves_the_state_and_the_changelog(
    kind: str, data: st.DataObject
) -> None:
    query, columns, rows = ROWS[kind]
    with tempfile.TemporaryDirectory() as directory:
        rules = data.draw(st.sampled_from([DEFAULT_RULES, *RULES]))
        made = FoldedTable(Path(directory) / "epochs", a_plan(query, columns), rules=rules)
        for _ in range(data.draw(st.integers(2, 6))):
            made.epoch(data.draw(st.lists(rows, max_size=6)), tasks=data.draw(st.integers(1, 3)))
            if rules != DEFAULT_RULES and data.draw(st.booleans()):
                made.time_epoch(data.draw(st.sampled_from([0, 6, 12])), release=rules.withhold)
            for _ in range(data.draw(st.integers(0, 2))):
                merge = legal_merge(made, data)
                if merge is not None:
                    made.merge(merge)
        require_sound(made)


def legal_merge(made: FoldedTable, data: st.DataObject) -> Merge | None:
    """The oldest files of a level, at least two, into the next tier; or all above into the base."""
    part = data.draw(st.sampled_from([*STATE, CHANGELOG, EPOCHS]))
    files = live(made, part)
    tiers = sorted({file.tier for file in files} - {BASE_TIER})
    if not tiers:
        return None
    tier = data.draw(st.sampled_from(tiers))
    if part in STATE and data.draw(st.booleans()):
        return Merge(part, BASE_TIER, tuple(f for f in files if f.tier >= tier))
    # Only whole epochs, oldest first.
    last = data.draw(st.sampled_from([f.epoch_max for f in files if f.tier == tier]))
    level = tuple(file for file in files if file.tier == tier and file.epoch_max <= last)
    return Merge(part, min(tier + 1, BASE_TIER - 1), level)


def test_a_tombstone_stays_until_the_base_takes_it_in(tmp_path: Path) -> None:
    made = FoldedTable(tmp_path / "epochs")
    made.epoch(insert("a", 1) + insert("b", 2))
    made.merge(Merge(ACCUMULATORS, BASE_TIER, tuple(live(made, ACCUMULATORS))))
    made.epoch([(("a",), (1,), -1)])
    made.epoch(insert("c", 3))
    above = tuple(file for file in live(made, ACCUMULATORS) if file.tier == 0)
    made.merge(Merge(ACCUMULATORS, 1, above))
    [(_, base), (_, merged)] = read(made, ACCUMULATORS)
    assert sorted(base["name"].to_pylist()) == ["a", "b"]
    gone = dict(zip(merged["name"].to_pylist(), merged["tombstone"].to_pylist(), strict=True))
    assert gone == {"a": True, "c": False}, "else the base's row would come back to life"
    made.merge(Merge(ACCUMULATORS, BASE_TIER, tuple(live(made, ACCUMULATORS))))
    [(_, base)] = read(made, ACCUMULATORS)
    assert sorted(base["name"].to_pylist()) == ["b", "c"]
    require_sound(made)


def test_the_base_keeps_timers_and_groups_that_nobody_has_seen_yet(tmp_path: Path) -> None:
    rules = Rules(ttl_ms=10, withhold=True)
    made = FoldedTable(tmp_path / "epochs", rules=rules)
    made.epoch(insert("a", 1) + insert("b", 2))
    made.time_epoch(5, release=True)
    made.epoch(insert("a", 3) + insert("c", 4))
    made.time_epoch(5)  # the timers of a and b fire: a is withheld, b expires
    for part in GROUP_STATE:
        made.merge(Merge(part, BASE_TIER, tuple(live(made, part))))
    require_sound(made)
    [(_, groups)] = read(made, ACCUMULATORS)
    told = {row["name"]: (row["tombstone"], row["withheld"]) for row in groups.to_pylist()}
    assert told == {"a": (False, True), "c": (True, True)}
    [(_, timers)] = read(made, TIMERS)
    assert {row["name"]: row["timer_ms"] for row in timers.to_pylist()} == {"a": 15, "c": 15}
    made.time_epoch(release=True)
    told_now = {(op, key[0]) for *_, (op, key, _) in made.changelog[-3:]}
    assert told_now == {(Op.UPDATE_BEFORE, "a"), (Op.UPDATE_AFTER, "a"), (Op.INSERT, "c")}


def test_a_base_of_nothing_but_the_dead_is_no_file(tmp_path: Path) -> None:
    made = FoldedTable(tmp_path / "epochs")
    made.epoch(insert("a", 1))
    made.epoch([(("a",), (1,), -1)])
    for part in TIMELESS:
        assert made.merge(Merge(part, BASE_TIER, tuple(live(made, part)))) == []
        assert live(made, part) == []
    made.epoch(insert("a", 2))
    require_sound(made)


def test_rows_keep_their_epochs(tmp_path: Path) -> None:
    made = FoldedTable(tmp_path / "epochs")
    made.epoch(insert("a", 1))
    made.epoch(insert("b", 1))
    [merged] = made.merge(Merge(ACCUMULATORS, 1, tuple(live(made, ACCUMULATORS))))
    rows = pq.ParquetFile(made.root / merged.path).read()
    found = dict(zip(rows["name"].to_pylist(), rows["epoch"].to_pylist(), strict=True))
    assert found == {"a": 1, "b": 2}
    [file] = live(made, ACCUMULATORS)
    assert (file.epoch_min, file.epoch_max, file.rows) == (1, 2, 2)


# --- large files ------------------------------------------------------------------------------


@pytest.fixture
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROW_GROUP_ROWS_MIN", 20)


def grown(root: Path, epochs: int = 6) -> FoldedTable:
    made = FoldedTable(root, buckets=16)
    chance = random.Random(3)
    for _ in range(epochs):
        names = [f"g{chance.randrange(300)}" for _ in range(200)]
        made.epoch([row for name in names for row in insert(name, chance.randrange(5))], tasks=2)
    return made


@pytest.mark.usefixtures("small_row_groups")
def test_row_groups_hold_whole_buckets_and_one_is_read_without_the_others(tmp_path: Path) -> None:
    made = grown(tmp_path / "epochs")
    for part in TIMELESS:
        for tier in (1, BASE_TIER):  # the second merge reads row groups of the first
            made.merge(Merge(part, tier, tuple(live(made, part))))
            made.epoch(insert("g1", 9))
    require_sound(made)
    for part in TIMELESS:
        base = next(file for file in live(made, part) if file.tier == BASE_TIER)
        metadata = pq.read_metadata(made.root / base.path)
        column = metadata.schema.names.index("bucket")
        assert metadata.num_row_groups > 4
        edges = [
            metadata.row_group(i).column(column).statistics for i in range(metadata.num_row_groups)
        ]
        assert all(a.max < b.min for a, b in pairwise(edges))
    names = [(file.part, file.path) for part in TIMELESS for file in live(made, part)]
    reader = StateFiles(made.root, made.layout, STATE)
    state = MemoryState()
    for bucket in range(16):
        state.apply(reader.of_bucket(bucket, names))
        held = sum(rows.num_rows for _, rows, _ in vars(reader)["_read"].values())
        assert held < 200, "more than the row groups of one bucket"
    assert contents(state) == contents(made.state)


@pytest.mark.usefixtures("small_row_groups")
def test_a_merge_of_large_files_holds_some_buckets_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MERGE_BATCH_ROWS", 10)
    made = grown(tmp_path / "epochs")
    halves = live(made, ACCUMULATORS)
    for half in (halves[:6], halves[6:]):
        made.merge(Merge(ACCUMULATORS, 1, tuple(half)))
    held: list[int] = []
    real = compaction._keep_newest

    def seen(layout: Any, merge: Merge, rows: pa.Table) -> pa.Table:
        held.append(rows.num_rows)
        return real(layout, merge, rows)

    monkeypatch.setattr(compaction, "_keep_newest", seen)
    made.merge(Merge(ACCUMULATORS, BASE_TIER, tuple(live(made, ACCUMULATORS))))
    assert len(held) > 4
    assert max(held) < sum(held) / 3
    require_sound(made)


def test_a_large_merge_becomes_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_row_groups: None
) -> None:
    made = grown(tmp_path / "epochs")
    monkeypatch.setattr(limits, "COMPACTED_ROWS_MAX", 60)
    for part in (*TIMELESS, CHANGELOG):
        added = made.merge(Merge(part, 1, tuple(live(made, part))))
        assert len(added) > 2
        assert len({file.path for file in added}) == len(added)
        assert all(file.rows < 150 for file in added)
    require_sound(made)
    for part in TIMELESS:
        made.merge(Merge(part, BASE_TIER, tuple(live(made, part))))
    require_sound(made)


def test_large_quarantined_messages_are_not_all_held_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = FoldedTable(tmp_path / "epochs")
    monkeypatch.setattr(limits, "ROW_GROUP_BYTES_MAX", 100_000)
    files = []
    for epoch in (1, 2, 3):
        rejects = [Reject("t", 0, epoch * 10 + i, None, "", "", b"x" * 60_000, 1) for i in range(3)]
        rows = made.layout.quarantine_table(epoch, rejects)
        added = write_file(made.root, file_name(QUARANTINE, epoch, "u", "m0"), rows)
        files.append(LiveFile(added.path, QUARANTINE, added.size, 3, epoch, epoch))
    [merged] = merge_files(made.plan, made.root, Merge(QUARANTINE, 1, tuple(files)), "uuid")
    whole = pq.ParquetFile(made.root / merged.path)
    assert whole.num_row_groups > 1
    assert whole.read()["offset"].to_pylist() == [10, 11, 12, 20, 21, 22, 30, 31, 32]


# --- what is due ------------------------------------------------------------------------------


class Simulated:
    """A table of file names and sizes only, and the bytes that were written to it."""

    def __init__(self, sizes: dict[str, tuple[int, int]]) -> None:
        self.sizes = sizes  # part -> files an epoch, bytes a file
        self.files: list[LiveFile] = []
        self.written = 0
        self.rewritten = 0
        self.most = 0
        self.merged: Counter[str] = Counter()

    def epoch(self, epoch: int) -> None:
        for part, (count, size) in self.sizes.items():
            for task in range(count):
                name = file_name(part, epoch, "u", f"f{task}")
                self.files.append(LiveFile(name, part, size, 100, epoch, epoch))
                self.written += size
        self.most = max(self.most, len(self.files))

    def merge(self, merge: Merge, number: int) -> None:
        require_legal(self.files, merge)
        size = sum(file.size for file in merge.files)
        rows = sum(file.rows for file in merge.files)
        last = max(file.epoch_max for file in merge.files)
        first = min(file.epoch_min for file in merge.files)
        name = file_name(merge.part, last, f"m{number}", f"c{merge.tier}-0")
        gone = set(merge.files)
        self.files = [file for file in self.files if file not in gone]
        self.files.append(LiveFile(name, merge.part, size, rows, first, last))
        self.files.sort(key=lambda file: (file.epoch_min, file.epoch_max, file.path))
        self.rewritten += size
        self.merged[merge.part] += 1


def require_legal(files: Sequence[LiveFile], merge: Merge) -> None:
    """Older files of the part are all above the merged ones; else a tombstone could be lost."""
    first = min(file.epoch_min for file in merge.files)
    last = max(file.epoch_max for file in merge.files)
    others = [f for f in files if f.part == merge.part and f not in set(merge.files)]
    inside = [f for f in others if first <= f.epoch_min < last]
    assert not inside, f"{inside[0].path} is between the merged ones"
    if merge.tier == BASE_TIER:
        assert not [f for f in others if f.epoch_min < first], "the base has older ones beneath it"


def test_five_thousand_epochs_keep_few_files_and_write_little_again() -> None:
    simulated = Simulated(
        {
            EPOCHS: (1, 4_000),
            CHANGELOG: (2, 40_000),
            ACCUMULATORS: (2, 26_000),
            MULTISETS: (2, 25_000),
        }
    )
    for epoch in range(1, 5_001):
        simulated.epoch(epoch)
        merge = due_merge(simulated.files, epoch)
        if merge is not None:
            simulated.merge(merge, epoch)
    assert simulated.most <= LIVE_FILES_MAX
    assert simulated.rewritten <= 4 * simulated.written
    assert set(simulated.merged) == set(simulated.sizes)


def test_no_part_starves_when_merges_are_slow() -> None:
    simulated = Simulated(dict.fromkeys(PARTS, (2, 1_000)))
    for epoch in range(1, 3_001):
        simulated.epoch(epoch)
        if epoch % 15 == 0:  # far fewer merges than are due, and yet as many files as one takes
            merge = due_merge(simulated.files, epoch)
            if merge is not None:
                simulated.merge(merge, epoch)
    assert set(simulated.merged) == set(PARTS)
    most = max(simulated.merged.values())
    assert all(count > most / 3 for count in simulated.merged.values()), simulated.merged
    assert len(simulated.files) < 6 * LIVE_FILES_MAX, "merges grow with what waits for them"


def some_files(part: str, count: int, **fields: Any) -> Iterator[LiveFile]:
    known = {"size": 1_000, "rows": 10, **fields}
    for epoch in range(1, count + 1):
        yield LiveFile(
            file_name(part, epoch, "u", "f0"), part, known["size"], known["rows"], epoch, epoch
        )


@pytest.mark.parametrize("part", PARTS)
def test_files_of_a_level_are_merged_when_there_are_enough(part: str) -> None:
    files = list(some_files(part, COMPACTION_FAN_IN))
    assert due_merge(files[:-1], 10**9) is None
    assert due_merge(files, 10**9) == Merge(part, 1, tuple(files))


def test_nothing_that_is_not_yet_published_is_merged() -> None:
    files = list(some_files(CHANGELOG, 2 * COMPACTION_FAN_IN))
    assert due_merge(files, -1) is None
    assert due_merge(files, COMPACTION_FAN_IN - 1) is None
    merge = due_merge(files, COMPACTION_FAN_IN + 3)
    assert merge is not None
    assert [file.epoch_max for file in merge.files] == list(range(1, COMPACTION_FAN_IN + 4))


def test_a_merge_takes_no_more_files_than_a_process_may_open() -> None:
    merge = due_merge(list(some_files(EPOCHS, 5_000)), 10**9)
    assert merge is not None
    assert len(merge.files) == MERGE_FILES_MAX
    assert merge.files[0].epoch_min == 1, "the oldest ones"


@pytest.mark.parametrize("part", [EPOCHS, CHANGELOG, QUARANTINE])
def test_history_that_is_large_already_is_left_alone(part: str) -> None:
    assert due_merge(list(some_files(part, 100, size=COMPACTED_BYTES_MAX)), 10**9) is None


def named(part: str, tier: int, size: int, epoch: int) -> LiveFile:
    return LiveFile(file_name(part, epoch, "u", f"c{tier}-0"), part, size, 10, epoch, epoch)


@pytest.mark.parametrize(
    ("sizes", "due"),
    [
        ([(2, 10)], False),
        ([(2, 10), (2, 10)], True),
        ([(BASE_TIER, 100), (2, 50), (2, 49)], False),
        ([(BASE_TIER, 100), (2, 50), (2, 50)], True),
        ([(BASE_TIER, 100), (3, 60), (2, 40), (1, 1000)], True),
        ([(BASE_TIER, 100), (1, 1000)], False),
    ],
)
def test_the_base_takes_in_what_outweighs_it(sizes: list[tuple[int, int]], due: bool) -> None:
    files = [named(ACCUMULATORS, tier, size, i) for i, (tier, size) in enumerate(sizes)]
    above = tuple(file for file in files if file.tier >= 2)
    expected = Merge(ACCUMULATORS, BASE_TIER, above) if due else None
    assert due_merge(files, 10**9) == expected
    history = [named(CHANGELOG, tier, size, i) for i, (tier, size) in enumerate(sizes)]
    assert due_merge(history, 10**9) is None, "history has no base"


def test_the_tier_of_a_file_is_in_its_name() -> None:
    names = {"f12": 0, "driver": 0, "m0": 0, "c1-0": 1, "c8-0": 8, "c9-13": BASE_TIER}
    for writer, tier in names.items():
        file = LiveFile(file_name(EPOCHS, 1, "u", writer), EPOCHS, 1, 1, 1, 1)
        assert file.tier == tier, writer
