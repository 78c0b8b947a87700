"""Last images and derived changes, compared with plain dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.job.job_plan import plan_of
from jobs.core.plan.tree import Plan
from jobs.core.rows.dedupe import (
    DerivedChanges,
    Key,
    KeyChange,
    LastImages,
    derive_changes,
    fingerprint_of,
    key_indexes,
    key_reader,
    pack_summary,
    select_changes,
)
from jobs.core.rows.key_history import KeyState, Kind
from jobs.core.sql.select import parse_query
from jobs.core.values.change import Row
from schemas.spec.file import load_spec
from schemas.types.sql_types import SqlType
from tests.support.examples import examples

COLUMNS = {"shop": "STRING", "id": "BIGINT", "name": "STRING", "cnt": "INT"}
TYPES = {name: SqlType.parse(kind) for name, kind in COLUMNS.items()}
Change = tuple[int, Row]


def plan(*primary_key: str) -> Plan:
    query = "SELECT name, SUM(cnt) AS total FROM t GROUP BY name"
    spec = {"name": "j", "source": {"topic": "t"}, "columns": COLUMNS, "query": query}
    return plan_of(load_spec(spec | {"primary_key": list(primary_key), "dedupe": "pk"}))


PLAN = plan("id")
USED = len(PLAN.used)

# Rows are (name, cnt, id), because the query uses name and cnt.
IDS = st.integers(0, 4)
ROWS = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 3), IDS)
CHANGES = st.lists(st.tuples(st.sampled_from([1, -1]), ROWS), max_size=40)


def test_a_job_keeps_what_its_query_uses_and_the_key() -> None:
    assert [column.name for column in PLAN.image] == ["name", "cnt", "id"]
    assert key_indexes(PLAN) == (2,)
    assert key_reader(PLAN)(("a", 3, 7)) == (7,)
    two = plan("cnt", "shop")
    assert [column.name for column in two.image] == ["name", "cnt", "shop"]
    assert key_reader(two)(("a", 3, "x")) == (3, "x")


def test_without_dedupe_a_plan_is_what_it_was() -> None:
    spec = {
        "name": "j",
        "source": {"topic": "t"},
        "columns": COLUMNS,
        "primary_key": ["id"],
        "query": "SELECT name, SUM(cnt) AS total FROM t GROUP BY name",
    }
    alone = plan_of(load_spec(spec))
    assert alone.image == alone.used
    assert alone.fingerprint == parse_query(str(spec["query"]), TYPES).fingerprint
    assert alone.fingerprint != PLAN.fingerprint


def shipped(changes: Sequence[Change], ordinal: int = 0) -> list[KeyChange]:
    """Return the changes that a decode task sends for a range."""
    key_of = key_reader(PLAN)
    numbers: dict[Key, int] = {}
    keys = [numbers.setdefault(key_of(row), len(numbers)) for _, row in changes]
    signs = np.array([sign for sign, _ in changes], np.int64)
    found = select_changes(np.array(keys, np.int64), signs)
    return [
        KeyChange(key_of(changes[place][1]), changes[place][1], (ordinal << 40) + place, packed)
        for place, packed in zip(found.indexes.tolist(), found.summaries.tolist(), strict=True)
    ]


@dataclass
class Stage:
    """The stage over several epochs: states are its state, rows to fold its output."""

    states: dict[Key, KeyState] = field(default_factory=dict)
    folded: Counter[Row] = field(default_factory=Counter)
    told: list[DerivedChanges] = field(default_factory=list)

    def epoch(self, *ranges: Sequence[Change]) -> DerivedChanges:
        sent = [each for n, changes in enumerate(ranges) for each in shipped(changes, n)]
        before = dict(self.states)
        found = derive_changes(
            reversed(sent),
            lambda keys: [before.get(key) for key in keys],
            USED,
            fingerprint_of(PLAN),
        )
        for key, state in found.states:
            if state is None:
                del self.states[key]
            else:
                self.states[key] = state
        for row, weight in zip(found.rows, found.weights, strict=True):
            self.folded[row] += weight
        self.told.append(found)
        return found

    @property
    def images(self) -> dict[Key, Row]:
        rows = {key: state.image for key, state in self.states.items()}
        return {key: image for key, image in rows.items() if image is not None}


def live(changes: Sequence[Change]) -> dict[Key, Row]:
    """Return the expected rows, by the rule in its shortest form."""
    rows: dict[Key, Row] = {}
    for sign, row in changes:
        if sign > 0:
            rows[row[2],] = row
        else:
            rows.pop((row[2],), None)
    return rows


def used(rows: dict[Key, Row]) -> Counter[Row]:
    return Counter(row[:2] for row in rows.values())


def present(folded: Counter[Row]) -> Counter[Row]:
    assert min(folded.values(), default=0) >= 0, "more was taken away than was there"
    return +folded


# --- a range --------------------------------------------------------------------------------


@examples(150)
@given(CHANGES)
def test_a_range_ships_the_last_change_of_each_key(changes: list[Change]) -> None:
    sent = shipped(changes)
    by_key: dict[Key, list[tuple[int, Change]]] = {}
    for place, change in enumerate(changes):
        by_key.setdefault((change[1][2],), []).append((place, change))
    assert [change.key for change in sent] == sorted(by_key, key=lambda key: by_key[key][-1][0])
    for key, row, position, packed, _, _ in sent:
        place, (sign, last) = by_key[key][-1]
        first_sign = by_key[key][0][1][0]
        assert (row, position) == (last, place)
        kind = Kind.SET if sign > 0 else Kind.DELETE
        assert packed == pack_summary(kind, len(by_key[key]), first_sign < 0)


def test_a_range_without_rows_ships_nothing() -> None:
    assert shipped([]) == []


# --- epochs ---------------------------------------------------------------------------------


@examples(150)
@given(CHANGES, st.lists(st.integers(0, 40), max_size=5))
def test_any_cutting_into_epochs_ends_in_the_live_rows(
    changes: list[Change], cuts: list[int]
) -> None:
    stage, begin = Stage(), 0
    for end in [*sorted(cuts), len(changes)]:
        end = max(begin, min(end, len(changes)))
        stage.epoch(changes[begin:end])
        begin = end
        assert stage.images == live(changes[:end])
        assert present(stage.folded) == used(stage.images)
        assert sum(found.rows_delta for found in stage.told) == len(stage.images)
    assert sum(found.taken for found in stage.told) == len(changes)


@examples(150)
@given(CHANGES, st.lists(st.integers(0, 40), min_size=1, max_size=5))
def test_ranges_count_in_their_order(changes: list[Change], cuts: list[int]) -> None:
    ends = sorted(min(cut, len(changes)) for cut in cuts)
    ranges = [changes[a:b] for a, b in zip([0, *ends], [*ends, len(changes)], strict=True)]
    stage = Stage()
    found = stage.epoch(*ranges)
    assert stage.images == live(changes)
    assert found.taken == len(changes)


@examples(150)
@given(CHANGES, st.integers(0, 40), st.integers(0, 40))
def test_a_part_told_again_changes_nothing_in_the_end(
    changes: list[Change], since: int, until: int
) -> None:
    """A source repeats all changes after its last acknowledged one."""
    until = min(until, len(changes))
    since = min(since, until)
    stage = Stage()
    stage.epoch(changes[:until])
    stage.epoch(changes[since:until])
    stage.epoch(changes[until:])
    assert stage.images == live(changes)
    assert present(stage.folded) == used(live(changes))
    once = Stage()
    once.epoch(changes[:until])
    assert once.epoch(changes[since:until]).rows == [] or since > 0


@examples(150)
@given(CHANGES, CHANGES)
def test_a_snapshot_repeated_is_all_duplicates(before: list[Change], after: list[Change]) -> None:
    stage = Stage()
    stage.epoch(before)
    snapshot = [(1, row) for row in stage.images.values()]
    found = stage.epoch(snapshot)
    assert found.rows == [] and found.states == []
    assert found.duplicates == found.taken == len(snapshot)
    stage.epoch(after)
    assert present(stage.folded) == used(live(before + after))


@examples(150)
@given(CHANGES, st.integers(0, 40))
def test_a_topic_that_begins_in_the_middle_ends_in_the_rows_it_told(
    changes: list[Change], missing: int
) -> None:
    stage = Stage()
    stage.epoch(changes[missing:])
    assert present(stage.folded) == used(live(changes[missing:]))


@examples(150)
@given(CHANGES)
def test_each_retraction_takes_back_what_was_folded_before(changes: list[Change]) -> None:
    stage = Stage()
    for change in changes:
        before = Counter(stage.folded)
        found = stage.epoch([change])
        for row, position, weight in zip(found.rows, found.positions, found.weights, strict=True):
            assert (position < 0) == (weight < 0)
            assert weight > 0 or before[row] > 0
        changed = {key for key, _ in found.states}
        assert (found.duplicates == 0) == bool(changed)


@examples(150)
@given(CHANGES)
def test_one_by_one_in_memory_is_the_same(changes: list[Change]) -> None:
    images, folded = LastImages(PLAN, keys_change=False), Counter[Row]()
    stage = Stage()
    for sign, row in changes:
        for weight, image in images.derive([(sign, row)]):
            folded[image] += weight
        stage.epoch([(sign, row)])
    assert folded == stage.folded
    assert Counter(images.live()) == used(live(changes))
    assert images.duplicates == sum(found.duplicates for found in stage.told)


# --- examples -------------------------------------------------------------------------------


def test_an_update_without_the_row_before_takes_back_the_image_that_is_kept() -> None:
    stage = Stage()
    stage.epoch([(1, ("a", 1, 7))])
    found = stage.epoch([(1, ("b", 2, 7))])
    assert found.rows == [("a", 1), ("b", 2)]
    assert found.weights == [-1, 1]
    assert found.positions == [~0, 0]


def test_a_delete_takes_back_the_image_that_is_kept_and_not_its_own() -> None:
    stage = Stage()
    stage.epoch([(1, ("a", 1, 7))])
    found = stage.epoch([(-1, (None, None, 7))])
    assert (found.rows, found.weights) == ([("a", 1)], [-1])
    assert stage.images == {}


def test_a_retraction_of_a_row_that_is_not_there_is_ignored_and_counted() -> None:
    found = Stage().epoch([(-1, ("a", 1, 7)), (-1, ("a", 1, 8)), (1, ("a", 2, 8))])
    assert found.rows == [("a", 2)]
    assert (found.taken, found.duplicates, found.unknown_retractions) == (3, 1, 2)


def test_what_comes_and_goes_in_one_epoch_is_a_duplicate() -> None:
    found = Stage().epoch([(1, ("a", 1, 7)), (-1, ("a", 1, 7))])
    assert found.rows == []
    assert (found.taken, found.duplicates, found.unknown_retractions) == (2, 2, 0)


def test_a_row_whose_used_columns_did_not_change_still_has_one_image() -> None:
    stage = Stage()
    stage.epoch([(1, ("a", 1, 7)), (1, ("a", 1, 8))])
    assert stage.folded == {("a", 1): 2}
    assert stage.epoch([(-1, ("a", 1, 7)), (1, ("a", 1, 7))]).duplicates == 2
