"""The expression of a watermark's time, in plain Python."""

from __future__ import annotations

import pytest

from jobs.core.sql.time_expression import TimeExpression
from jobs.core.values.rounding import EvaluationError
from schemas.types.sql_types import STRING

NOON_US = 1_769_860_800_000_000


@pytest.mark.parametrize("text", ["2026-01-31 12:00:00", "2026-01-31T12:00:00"])
def test_a_text_is_a_time_in_both_forms(text: str) -> None:
    made = TimeExpression.parse("CAST(s AS TIMESTAMP(3))", {"s": STRING})
    assert made.reader(made.columns)((text,)) == NOON_US


def test_a_text_in_another_form_is_no_time() -> None:
    made = TimeExpression.parse("CAST(s AS TIMESTAMP(3))", {"s": STRING})
    with pytest.raises(EvaluationError):
        made.reader(made.columns)(("Three o'clock",))
