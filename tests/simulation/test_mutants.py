"""A few of the mutants, so that their table and their harness do not rot; all of them are in
tests/faults/test_mutation.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.faults.mutants import MUTANTS
from tests.support.faults.mutation import copy_of_the_checkout, lives
from tests.support.faults.tally import CHECKOUT, FaultTally

FAST = ("fold/laws.py", "fold/state.py")
SOME = [mutant for mutant in MUTANTS if mutant.file in FAST][-3:]


def test_each_mutant_says_where_it_is() -> None:
    assert len(MUTANTS) >= 30
    assert len(SOME) == 3
    for mutant in MUTANTS:
        text = (CHECKOUT / mutant.path).read_text()
        assert text.count(mutant.before) == 1, mutant
        assert mutant.before != mutant.after
        assert all((CHECKOUT / "tests" / name).exists() for name in mutant.tests)


@pytest.mark.slow
@pytest.mark.costly("each broken line is tried in a process of its own")
@pytest.mark.timeout(600)
def test_some_breaks_of_the_core_are_noticed(tmp_path: Path) -> None:
    tally, checkout = FaultTally("mutation, short"), copy_of_the_checkout(tmp_path)
    for mutant in SOME:
        tally.plan(mutant.says)
        assert not lives(mutant, checkout), mutant
        tally.fire(mutant.says)
    tally.close()
