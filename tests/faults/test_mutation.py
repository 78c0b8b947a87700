"""Every deliberate break of the core is noticed by the fast tests that it concerns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.faults.mutants import MUTANTS, Mutant
from tests.support.faults.mutation import copy_of_the_checkout, lives, passes
from tests.support.faults.tally import FaultTally

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = copy_of_the_checkout(tmp_path_factory.mktemp("mutants"))
    assert passes(made, sorted({name for mutant in MUTANTS for name in mutant.tests}))
    return made


@pytest.fixture(scope="module")
def tally() -> Iterator[FaultTally]:
    """A break that nobody noticed is a fault that did not happen to anybody."""
    counting = FaultTally("mutation")
    yield counting
    counting.close()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.says)
def test_a_break_of_the_core_is_noticed(mutant: Mutant, checkout: Path, tally: FaultTally) -> None:
    tally.plan(mutant.says)
    assert not lives(mutant, checkout), f"nobody notices {mutant.before!r} -> {mutant.after!r}"
    tally.fire(mutant.says)
