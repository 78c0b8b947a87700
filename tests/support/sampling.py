"""Which of a test's many cases `make test` runs; the others are for `make test-all`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick(
    cases: Iterable[Any], kept: Collection[Any], mark: pytest.MarkDecorator = pytest.mark.slow
) -> list[Any]:
    """Return all cases as parameters, those that are not kept with a mark."""
    found = list(cases)
    assert all(case in found for case in kept), "a kept case is none of the cases"
    return [case if case in kept else _marked(case, mark) for case in found]


def _marked(case: Any, mark: pytest.MarkDecorator) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=mark)
