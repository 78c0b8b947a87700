"""Which quarantined messages an audit decodes again, and which it leaves out."""

from __future__ import annotations

from typing import Any

from jobs.checking.source_rows import names_left_out
from tests.support.tables.folded_table import a_plan

REJECTS: list[dict[str, Any]] = [
    {"topic": "t", "partition": 0, "offset": offset, "quarantine_code": code}
    for offset, code in enumerate(("message", "expression", "future", "shared"))
]


def test_what_a_clock_or_another_view_refused_is_not_decoded_again() -> None:
    assert names_left_out(REJECTS, a_plan()) == {"t/0/2", "t/0/3"}
