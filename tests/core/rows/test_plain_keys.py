"""Keys of which only the last change counts: what arrays find is what their history says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given

from jobs.core.rows.dedupe import Key, KeyChange, derive_changes
from jobs.core.rows.key_history import KeyState
from jobs.core.rows.plain_keys import ChangeArrays, KeySummaries, PlainKeys, derive_plain
from jobs.core.rows.truncations import Truncations
from tests.support.histories.keyed_table import (
    FINGERPRINT,
    HISTORIES,
    READS,
    USED,
    Stage,
    by_partition,
    find_truncations,
    read,
    shipped,
    table_of,
)


def derive(
    changes: Sequence[KeyChange], states: dict[Key, KeyState], truncations: Truncations
) -> tuple[list[Key], KeySummaries, PlainKeys]:
    """Return the keys of changes by number, and what the arrays find."""
    numbers: dict[Key, int] = {}
    of = [numbers.setdefault(change.key, len(numbers)) for change in changes]
    columns = zip(*((c.position, c.summary, c.time, c.partition) for c in changes), strict=True)
    positions, summaries, times, partitions = (np.array(column) for column in columns)
    timed = np.ones(len(of), np.bool_)
    arrays = ChangeArrays(np.array(of), positions, summaries, timed, times, partitions)
    keys = KeySummaries.of(arrays, truncations)
    before = [states.get(key) for key in numbers]
    last = [changes[at] for at in keys.last.tolist()]
    pairs = list(zip(before, last, strict=True))
    compared = (
        [state is not None and state.is_row for state in before],
        [state is None for state in before],
        [state is not None and state.partition == change.partition for state, change in pairs],
        [state is not None and state.image == change.image for state, change in pairs],
    )
    return list(numbers), keys, derive_plain(keys, *(np.array(each, np.bool_) for each in compared))


def expected(
    changes: Sequence[KeyChange], state: KeyState | None, truncations: Truncations
) -> tuple[Any, ...]:
    found = derive_changes(changes, lambda _: [state], USED, FINGERPRINT, truncations)
    assert (found.moved_keys, found.ambiguous_keys) == (0, 0)
    counts = found.taken, found.duplicates, found.unknown_retractions, found.rows_delta
    return found.states, list(zip(found.weights, found.rows, found.positions, strict=True)), counts


@given(HISTORIES, READS)
def test_what_a_plain_key_comes_to_is_what_its_history_says(history: Any, reads: Any) -> None:
    stage = Stage()
    for ranges in read(by_partition(table_of(history).sent), reads):
        ordered = sorted(ranges, key=lambda each: each[0])
        sent = [each for n, (of, range_) in enumerate(ordered) for each in shipped(range_, n, of)]
        known = stage.truncations.add(find_truncations(ordered))
        if sent:
            require_same(sent, stage.states, known)
        stage.epoch(ranges)


def require_same(
    sent: Sequence[KeyChange], states: dict[Key, KeyState], truncations: Truncations
) -> None:
    keys, summaries, found = derive(sent, states, truncations)
    for number in np.flatnonzero(found.plain).tolist():
        key, last = keys[number], sent[int(summaries.last[number])]
        before = states.get(key)
        own = [change for change in sent if change.key == key]
        after = (
            None if summaries.removed[number] else KeyState(last.image, last.time, last.partition)
        )
        stored = [(key, after)] if found.changed[number] else []
        rows = []
        if found.old[number]:
            assert before is not None and before.image is not None
            rows.append((-1, before.image[:USED], ~last.position))
        if found.new[number]:
            rows.append((1, last.image[:USED], last.position))
        taken = int(summaries.rows[number])
        _, _, alone = derive(own, states, truncations)
        counts = taken, alone.duplicates, alone.unknown_retractions, sum(row[0] for row in rows)
        assert (stored, rows, counts) == expected(own, before, truncations)


def test_a_row_that_is_set_in_place_or_deleted_is_plain() -> None:
    known: dict[Key, KeyState] = {
        (1,): KeyState(("a", 1, 1), 5, 0),
        (2,): KeyState(("a", 1, 2), 5, 0),
    }
    changes = [
        KeyChange((1,), ("b", 1, 1), 0, 8, 6, 0),
        KeyChange((2,), ("a", 1, 2), 1, 8 + 2, 6, 0),
        KeyChange((3,), ("a", 1, 3), 2, 8 + 1, 6, 0),
    ]
    _, _, found = derive(changes, known, Truncations())
    assert found.plain.all() and found.changed.all()
    assert (found.old.tolist(), found.new.tolist()) == ([True, True, False], [True, False, True])


def test_a_key_that_was_left_arrives_again_or_is_of_another_partition_is_not_plain() -> None:
    known: dict[Key, KeyState] = {(key,): KeyState(("a", 1, key), 5, 0) for key in (1, 2, 3)}
    changes = [
        KeyChange((1,), ("a", 1, 1), 0, 8 + 3, 6, 1),
        KeyChange((2,), ("b", 1, 2), 1, 8, 6, 1),
        KeyChange((3,), ("b", 1, 3), 2, 8 + 1, 6, 0),
    ]
    _, _, found = derive(changes, known, Truncations())
    assert not found.plain.any()
