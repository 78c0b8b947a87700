"""Any order of the partitions of a well-formed history gives the results of the live rows.

Messages are where canal has them: an update of a primary key is one message in the partition of
the new key, so that the retraction of the old row may be read before the row itself.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.fold.in_memory import Bundle, MemoryFold
from jobs.core.fold.rules import DEFAULT_RULES, Rules
from jobs.core.rows.projection import row_projection
from jobs.core.values.change import Row
from tests.support.examples import examples
from tests.support.histories.moved_keys import Message, Reader, histories, interleavings, recompute

QUERY = (
    "SELECT k, COUNT(*) AS n, COUNT(v) AS some, SUM(v) AS total, MAX(v) AS top, MIN(v) AS low, "
    "COUNT(DISTINCT v) AS kinds FROM t GROUP BY k"
)
# Without values beside it, a sum is all that is left of rows whose number is zero.
SUMS = "SELECT k, COUNT(*) AS n, COUNT(v) AS some, SUM(v) AS total FROM t GROUP BY k"
CASES = {
    "plain": (QUERY, Rules()),
    "sums": (SUMS, Rules()),
    "withheld": (QUERY, Rules(withhold=True)),
    "ttl": (QUERY, Rules(ttl_ms=1_000_000, refresh=True)),
}


def fold_of(reader: Reader, rules: Rules = DEFAULT_RULES) -> MemoryFold:
    projection = row_projection(reader.plan)
    assert projection is not None
    return MemoryFold(reader.plan, projection, rules=rules)


def fold_all(
    memory_fold: MemoryFold, reader: Reader, bundles: list[list[Message]], *, release: bool = False
) -> dict[Any, Row]:
    """Return the folded changelog of a history that is read in these bundles."""
    table: dict[Any, Row] = {}
    for offset, messages in enumerate(bundles):
        bundle = Bundle()
        for message in messages:
            bundle.add(message.partition, offset, reader.read(message))
        outcomes = [memory_fold.fold(bundle.consolidate())]
        if release:
            outcomes.append(memory_fold.pass_time(release=True))
        for op, key, row in (each for outcome in outcomes for each in outcome.changelog):
            if op in ("+I", "+U"):
                table[key] = row
            elif op == "-D":
                del table[key]
    return table


@pytest.mark.hypothesis
@pytest.mark.parametrize("dedupe", [False, True], ids=["plain", "dedupe"])
@pytest.mark.parametrize("case", CASES)
@examples(60)
@given(data=st.data())
def test_the_results_are_those_of_the_live_rows_in_any_order_of_partitions(
    case: str, dedupe: bool, data: st.DataObject
) -> None:
    query, rules = CASES[case]
    history = data.draw(histories())
    bundles = data.draw(interleavings(history.messages))
    reader = Reader(query, dedupe=dedupe)
    memory_fold = fold_of(reader, rules)
    table = fold_all(memory_fold, reader, bundles, release=rules.withhold)
    folded = sorted(((*key, *row) for key, row in table.items()), key=repr)
    assert folded == recompute(query, history.rows)


@pytest.mark.hypothesis
@examples(60)
@given(data=st.data())
def test_nothing_is_left_of_rows_that_are_gone(data: st.DataObject) -> None:
    history = data.draw(histories(delete_all=True))
    bundles = data.draw(interleavings(history.messages))
    reader = Reader(QUERY, dedupe=False)
    memory_fold = fold_of(reader)
    assert fold_all(memory_fold, reader, bundles) == {}
    assert not memory_fold.state._groups
    assert not memory_fold.state._multisets


@pytest.mark.hypothesis
@examples(60)
@given(data=st.data())
def test_having_hides_and_shows_groups_in_any_order_of_partitions(data: st.DataObject) -> None:
    query = f"{QUERY} HAVING COUNT(*) > 1 AND SUM(v) < 20"
    history = data.draw(histories())
    reader = Reader(query, dedupe=False)
    table = fold_all(fold_of(reader), reader, data.draw(interleavings(history.messages)))
    folded = sorted(((*key, *row) for key, row in table.items()), key=repr)
    assert folded == recompute(query, history.rows)
