"""The proof of the core: random histories, judged by recomputing them, and by doing it simply.

`oracle_`: real canal-json bytes through decode, consolidate, gather and fold; after every bundle
the folded changelog is the query over the live rows, as DuckDB computes it from nothing. Finds
what two ways of folding would both have wrong. `any_cutting_`: the same history cut differently
ends in the same table. `differential_`: streams that are not well formed, which no query explains,
against folding row by row with the head rule as it is written down. Finds drift.

Everything follows from seeds; a failure names the one it failed for.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import duckdb
import pytest

from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.fold.rules import Rules
from jobs.core.fold.state import Key
from jobs.core.formats.registry import MessageRules
from jobs.core.plan.tree import Plan
from jobs.core.rows.consolidate import Consolidation, group_indexes
from jobs.core.rows.projection import Projected, row_projection
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Changes, Filtered, Op, Rejected, Row, Skipped
from schemas.types.sql_types import SqlType
from tests.support.examples import scale
from tests.support.histories.folded_changelog import fold_changelog
from tests.support.histories.judge import PLANS, QUERIES, Judge, Table
from tests.support.histories.products import (
    COLUMNS,
    DATABASE,
    TABLE,
    History,
    Message,
    history,
    live_rows,
)

HISTORIES = scale(1_000)
BATCH = 100
OUTCOMES = {"changes": Changes, "rejected": Rejected, "skipped": Skipped, "filtered": Filtered}


def memory_fold_of(plan: Plan) -> MemoryFold:
    projection = row_projection(plan)
    assert projection is not None
    indexes = group_indexes(plan)
    group_of = None if indexes is None else lambda row: tuple(row[at] for at in indexes)
    return MemoryFold(plan, projection, group_of=group_of)


class Reader:
    """Decodes messages and holds them against what the history says of them."""

    def __init__(self, plan: Plan) -> None:
        self.decode = (
            MessageRules("canal-json", DATABASE, TABLE).decoder(plan.columns, plan.used).decode
        )
        names = list(COLUMNS)
        self.places = [names.index(column.name) for column in plan.used]

    def bundle(self, messages: Iterable[Message], offsets: Counter[int]) -> Bundle:
        bundle = Bundle()
        for message in messages:
            decoded = self.decode(message.value)
            assert isinstance(decoded, OUTCOMES[message.outcome]), (message, decoded)
            if isinstance(decoded, Changes):
                assert decoded.changes == [
                    (weight, tuple([row[place] for place in self.places]))
                    for weight, row in message.changes
                ]
                bundle.add(message.partition, offsets[message.partition], decoded.changes)
            offsets[message.partition] += 1
        return bundle


def folded(reader: Reader, plan: Plan, bundles: Sequence[Sequence[Message]]) -> Iterable[Table]:
    """The table that a consumer of the changelog has after each bundle."""
    memory_fold, table, offsets = memory_fold_of(plan), Table(), Counter[int]()
    for messages in bundles:
        outcome = memory_fold.fold(reader.bundle(messages, offsets).consolidate())
        assert outcome.counters.dropped_retractions == 0
        assert outcome.counters.unmatched_retractions == 0
        yield fold_changelog(table, outcome.changelog)


@pytest.mark.parametrize("query", range(len(QUERIES)))
def test_oracle_after_every_bundle_the_changelog_is_the_query_over_the_live_rows(
    query: int,
) -> None:
    plan, reader = PLANS[query], Reader(PLANS[query])
    connection = duckdb.connect()
    seeds = range(query, HISTORIES, len(QUERIES))
    judged = 0
    for start in range(0, len(seeds), BATCH):
        judge = Judge(query)
        for seed in seeds[start : start + BATCH]:
            rng = random.Random(seed)
            made = history(seed, messages=rng.randint(5, 60))
            for cutting in range(2):
                run = judge.begin(f"history {seed}, cutting {cutting}")
                bundles = made.cut(cutting, mean=rng.uniform(0.5, 25))
                live: dict[int, Row] = {}
                for at, table in enumerate(folded(reader, plan, bundles)):
                    live_rows(live, bundles[at])
                    judge.claim(run, at, table, live.values())
        judged += judge.decide(connection)
    assert judged > 2 * len(seeds)


def test_any_cutting_into_bundles_ends_in_the_same_table() -> None:
    for seed in range(0, HISTORIES, 10):
        made, query = history(seed, messages=40), seed % len(QUERIES)
        plan, reader = PLANS[query], Reader(PLANS[query])
        cuttings = [[made.messages], [[message] for message in made.messages]]
        cuttings += [made.cut(number, mean) for number, mean in enumerate((2, 7, 30))]
        tables = [list(folded(reader, plan, cutting))[-1] for cutting in cuttings]
        assert all(table == tables[0] for table in tables), f"history {seed}"


def test_a_history_has_everything_that_it_is_there_for() -> None:
    """A generator that forgot the hard parts would make the other tests easy."""
    made = [message for seed in range(60) for message in history(seed, 60).messages]
    outcomes = Counter(message.outcome for message in made)
    assert min(outcomes[outcome] for outcome in OUTCOMES) > 20  # type: ignore[index]
    several = [message for message in made if len(message.changes) > 2]
    moves = [
        message
        for message in made
        for (minus, before), (plus, after) in zip(
            message.changes[::2], message.changes[1::2], strict=False
        )
        if (minus, plus) == (-1, 1) and before[1] != after[1]
    ]
    nulls = [m for m in made if any(None in row for _, row in m.changes)]
    deletes = [m for m in made if m.changes and all(weight < 0 for weight, _ in m.changes)]
    assert min(map(len, (several, moves, nulls, deletes))) > 50
    assert history(7, 30) == history(7, 30) != history(8, 30)
    assert {message.partition for message in made} == {0, 1, 2, 3}


# --- streams that are not well formed -------------------------------------------------------------

ODD_STREAMS = scale(2_000)
ODD_PLAN = parse_query(
    "SELECT k, COUNT(*) AS n, COUNT(v) AS some, SUM(v) AS s, MAX(v) AS top, MIN(v) AS low FROM t "
    "GROUP BY k",
    {"k": SqlType.parse("STRING"), "v": SqlType.parse("INT")},
)
OddRow = tuple[str | None, int | None, bool]  # k, v, and whether the WHERE lets it through


@dataclass(slots=True)
class NaiveGroup:
    count: int = 0
    values: Counter[int] = field(default_factory=Counter)
    shown: Row = ()

    def add(self, weight: int, value: int | None) -> None:
        self.count += weight
        if value is not None:
            self.values[value] += weight

    def result(self) -> Row:
        some = sum(self.values.values())
        total = sum(value * times for value, times in self.values.items())
        there = [value for value, times in self.values.items() if times > 0]
        summed = total if some else None
        return (self.count, some, summed, max(there, default=None), min(there, default=None))


class NaiveFold:
    """A bundle folded row by row, in the words of SEEDS A.2, A.3 and A.6."""

    def __init__(self) -> None:
        self.groups: dict[str | None, NaiveGroup] = {}
        self.dropped = 0

    def fold(self, changes: Iterable[tuple[int, OddRow]]) -> dict[Key, list[tuple[Op, Row]]]:
        buffers: dict[str | None, list[tuple[int, int | None]]] = {}
        for weight, (key, value, kept) in changes:
            if kept:
                buffers.setdefault(key, []).append((weight, value))
        changelog: dict[Key, list[tuple[Op, Row]]] = {}
        for key, buffer in buffers.items():
            group = self.groups.get(key)
            if group is None:
                while buffer and buffer[0][0] < 0:
                    buffer.pop(0)
                    self.dropped += 1
                if not buffer:
                    continue
            emitted = self._fold_group(key, group, buffer)
            if emitted:
                changelog[key,] = emitted
        return changelog

    def _fold_group(
        self, key: str | None, old: NaiveGroup | None, buffer: list[tuple[int, int | None]]
    ) -> list[tuple[Op, Row]]:
        group = old or NaiveGroup()
        for weight, value in buffer:
            group.add(weight, value)
        if group.count == 0:
            self.groups.pop(key, None)
            return [(Op.DELETE, group.shown)] if old else []
        before, group.shown = group.shown, group.result()
        self.groups[key] = group
        if old is None:
            return [(Op.INSERT, group.shown)]
        if before == group.shown:
            return []
        return [(Op.UPDATE_BEFORE, before), (Op.UPDATE_AFTER, group.shown)]


DROPPING = Rules(drop_early=True)


def odd_memory_fold(rng: random.Random) -> tuple[MemoryFold, float]:
    """With a WHERE or without, and then with what a map task may do where there is none; and how
    many of the rows the WHERE lets through."""

    def projection(row: Row) -> Projected | None:
        key, value, kept = row
        return ((key,), (value,)) if kept else None

    if rng.random() < 0.5:
        return MemoryFold(ODD_PLAN, projection, rules=DROPPING), 0.8
    return MemoryFold(ODD_PLAN, projection, rules=DROPPING, group_of=itemgetter(0)), 1.0


def odd_range(rng: random.Random, kept: float) -> list[tuple[int, OddRow]]:
    """Changes in which a retraction need not match anything."""
    return [
        (
            rng.choice((-1, 1)),
            (rng.choice(("a", "b", None)), rng.choice((0, 1, 2, None)), rng.random() < kept),
        )
        for _ in range(rng.randint(0, 6))
    ]


def consolidated(
    rng: random.Random, ranges: Sequence[Sequence[tuple[int, OddRow]]]
) -> list[Consolidation]:
    """The ranges as map tasks would ship them, each in a few messages."""
    consolidations = []
    for ordinal, changes in enumerate(ranges):
        consolidation = Consolidation(ordinal)
        middle = rng.randint(0, len(changes))
        consolidation.add(changes[:middle])
        consolidation.add(changes[middle:])
        assert consolidation.changes == len(changes)
        consolidations.append(consolidation)
    return consolidations


def by_key(changelog: Iterable[tuple[Op, Key, Row]]) -> dict[Key, list[tuple[Op, Row]]]:
    keyed: dict[Key, list[tuple[Op, Row]]] = {}
    for op, key, row in changelog:
        keyed.setdefault(key, []).append((op, row))
    return keyed


def test_differential_odd_streams_fold_as_row_by_row_with_the_head_rule() -> None:
    dropped_ever = negative_ever = 0
    for seed in range(ODD_STREAMS):
        rng = random.Random(f"odd {seed}")
        memory_fold, kept = odd_memory_fold(rng)
        naive, dropped = NaiveFold(), 0
        for number in range(rng.randint(1, 5)):
            ranges = [odd_range(rng, kept) for _ in range(rng.randint(1, 4))]
            outcome = memory_fold.fold(consolidated(rng, ranges))
            wanted = naive.fold(change for changes in ranges for change in changes)
            assert by_key(outcome.changelog) == wanted, f"odd stream {seed}, bundle {number}"
            dropped += outcome.counters.dropped_retractions
            negative_ever += any(group.count < 0 for group in naive.groups.values())
        assert dropped == naive.dropped, f"odd stream {seed}"
        dropped_ever += dropped
    assert dropped_ever > ODD_STREAMS  # the streams are as odd as they should be
    assert negative_ever > ODD_STREAMS / 10


def test_differential_a_range_cut_in_two_gives_the_same_bundle() -> None:
    """More, smaller map tasks for the same records change nothing."""
    for seed in range(scale(300)):
        rng = random.Random(f"ranges {seed}")
        pieces, kept = odd_memory_fold(rng)
        whole = MemoryFold(
            ODD_PLAN, lambda row: ((row[0],), (row[1],)) if row[2] else None, rules=DROPPING
        )
        for number in range(3):
            changes = [change for _ in range(4) for change in odd_range(rng, kept)]
            at = sorted(rng.randint(0, len(changes)) for _ in range(2))
            cut = [changes[: at[0]], changes[at[0] : at[1]], changes[at[1] :]]
            one = whole.fold(consolidated(rng, [changes]))
            several = pieces.fold(consolidated(rng, cut))
            assert one.changelog == several.changelog, f"ranges {seed}, bundle {number}"
            assert one.counters == several.counters


def test_the_judge_sees_a_wrong_table() -> None:
    made: History = history(1, 10)
    judge = Judge(0)
    run = judge.begin("a wrong claim")
    live = live_rows({}, made.messages)
    judge.claim(run, 0, {("nobody",): (1, 1, 1, 1, 1, 1)}, live.values())
    with pytest.raises(AssertionError, match="a wrong claim, after bundle 0"):
        judge.decide(duckdb.connect())
