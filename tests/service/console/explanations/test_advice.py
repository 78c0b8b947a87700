"""Advice: every failure that another start cannot heal says what helps."""

from __future__ import annotations

import pytest

from jobs.running import failure
from service.console.explanations.advice import advise

GENERAL = advise(None, retried=False)
FOR_GOOD = {
    *failure._PERMANENT.values(),
    *(f"publisher-{each.replace('_', '-')}" for each in failure._PUBLISHER_PERMANENT),
    "spec-refused",
} - {f"publisher-{code}" for code in failure._SAME_IN_PUBLISHER}


@pytest.mark.parametrize("code", sorted(FOR_GOOD))
def test_a_failure_for_good_has_advice_of_its_own(code: str) -> None:
    assert advise(code, retried=False) != GENERAL


def test_a_disk_that_is_full_has_advice_too() -> None:
    assert "Free space" in advise(failure.DISK_REFUSED, retried=True)


def test_what_is_tried_again_says_so() -> None:
    assert "starts the job again automatically" in advise("failed", retried=True)
    assert "start the job again" in GENERAL
