"""Advice: every failure that another start cannot heal says what helps."""

from __future__ import annotations

import pytest

from schemas.failures.catalogue import failure_kinds
from service.console.pages.jobs import advise

GENERAL = advise(None, retried=False)
FOR_GOOD = [code for code, kind in failure_kinds().items() if kind.ends_job and not kind.retryable]


@pytest.mark.parametrize("code", FOR_GOOD)
def test_a_failure_for_good_has_advice_of_its_own(code: str) -> None:
    assert advise(code, retried=False) != GENERAL


def test_a_disk_that_is_full_has_advice_too() -> None:
    assert "Free space" in advise("disk-refused", retried=True)


def test_what_is_tried_again_says_so() -> None:
    assert "starts the job again automatically" in advise("failed", retried=True)
    assert "start the job again" in GENERAL
